"""Beginnings that were computed before: found again, shared, given away, and never wrong."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.engine.block_manager import BlockManager
from structspec.request import Request, SamplingParams
from tests.engine.toy import RandomDrafter, ToyEngine, hashed_logits


def engine(conditional=hashed_logits, **changes) -> ToyEngine:
    sizes = {"block_size": 2, "num_blocks": 20, "max_num_batched_tokens": 16, **changes}
    config = EngineConfig(**sizes, speculative=SpeculativeConfig(num_speculative_tokens=3))
    return ToyEngine(config, RandomDrafter(0), conditional=conditional)


def run(toy: ToyEngine, prompt: list[int], max_tokens: int = 3) -> Request:
    request = toy.add(prompt, max_tokens=max_tokens, ignore_eos=True)
    toy.run([request])
    return request


def test_the_second_to_begin_alike_computes_what_is_new_and_writes_the_same():
    toy = engine()
    first, second = run(toy, [0, 1, 2, 3, 0, 1]), run(toy, [0, 1, 2, 3, 3])
    assert (first.stats.num_cached_tokens, second.stats.num_cached_tokens) == (0, 4)
    assert run(toy, [0, 1, 2, 3, 3]).output_token_ids == second.output_token_ids
    assert second.output_token_ids == run(engine(), [0, 1, 2, 3, 3]).output_token_ids


def test_the_last_token_is_always_computed():
    toy = engine()
    for _ in range(2):
        request = run(toy, [0, 1, 2, 3])
    assert request.stats.num_cached_tokens == 2  # of blocks of 2; the last has the logits


def test_what_was_written_is_found_as_the_beginning_of_a_longer_prompt():
    toy = engine()
    first = run(toy, [0, 1], max_tokens=6)
    second = run(toy, [*first.token_ids, 2])
    assert second.stats.num_cached_tokens == 6  # the last token of an output was never computed


def test_equal_tokens_behind_another_beginning_are_not_taken():
    toy = engine()
    run(toy, [0, 1, 2, 3, 0])
    assert run(toy, [1, 1, 2, 3, 0]).stats.num_cached_tokens == 0


def test_the_cache_can_be_switched_off():
    toy = engine(enable_prefix_caching=False)
    for _ in range(2):
        assert run(toy, [0, 1, 2, 3, 0]).stats.num_cached_tokens == 0


def test_running_requests_share_a_block_and_it_is_free_when_the_last_ends():
    toy = engine()
    first = toy.add([0, 1, 2, 3, 0], max_tokens=9, ignore_eos=True)
    toy.engine.step()
    second = toy.add([0, 1, 2, 3, 1], max_tokens=2, ignore_eos=True)
    toy.engine.step()
    assert first.block_table[:2] == second.block_table[:2]
    toy.run([second])
    num_free = toy.block_manager.num_free_blocks
    assert num_free == 20 - len(first.block_table)
    toy.run([first])
    assert toy.block_manager.num_free_blocks == 20


def test_a_preempted_request_finds_its_blocks_where_nobody_took_them():
    toy = engine(num_blocks=9)
    requests = [toy.add([i, 1, 2, 3], max_tokens=9, ignore_eos=True) for i in range(2)]
    toy.run(requests)
    assert requests[1].stats.num_preemptions > 0
    assert requests[1].stats.num_cached_tokens > 0
    alone = [run(engine(), [i, 1, 2, 3], max_tokens=9) for i in range(2)]
    assert [one.output_token_ids for one in requests] == [one.output_token_ids for one in alone]


def test_a_failed_step_leaves_nothing_to_be_found():
    faults = []

    def explode(context: tuple[int, ...]) -> list[float]:
        if not faults:
            faults.append(context)
            raise RuntimeError("boom")
        return hashed_logits(context)

    toy = engine(explode)
    bad = toy.add([0, 1, 2, 3, 0], max_tokens=2)
    toy.run([bad])
    good = run(toy, [0, 1, 2, 3, 0], max_tokens=2)
    assert bad.error is not None and good.error is None
    assert good.stats.num_cached_tokens == 0


def computed(manager: BlockManager, tokens: list[int]) -> Request:
    """A request whose tokens are all in the cache."""
    request = Request(0, tokens, SamplingParams(), 1)
    request.num_computed_tokens = manager.reuse(request)
    assert manager.allocate(request, len(tokens))
    request.num_computed_tokens = len(tokens)
    manager.keep(request, len(tokens))
    return request


def num_found(manager: BlockManager, tokens: list[int]) -> int:
    """How many tokens a prompt that goes on behind these would find; nothing is changed."""
    request = Request(0, [*tokens, 9], SamplingParams(), 1)
    num_tokens = manager.reuse(request)
    manager.free(request)
    return num_tokens


def test_the_block_unused_the_longest_is_given_away_first_and_ends_before_beginnings():
    manager = BlockManager(num_blocks=6, block_size=1)
    for tokens in ([0, 1, 2], [3, 4, 5]):
        manager.free(computed(manager, tokens))
    texts = [Request(0, tokens, SamplingParams(), 1) for tokens in ([0, 1, 2], [3, 4, 5])]
    for num_taken, left in enumerate([(3, 3), (2, 3), (1, 3), (0, 3), (0, 2)]):
        other = Request(1, [7] * 6, SamplingParams(), 1)
        assert manager.allocate(other, num_taken)
        known = [
            [digest in manager._blocks for digest in manager._digests_of(one, 3)] for one in texts
        ]
        assert known == [[index < num_left for index in range(3)] for num_left in left]
        manager.free(other)


def test_using_a_beginning_makes_it_young_again():
    manager = BlockManager(num_blocks=4, block_size=1)
    manager.free(computed(manager, [0, 1]))
    manager.free(computed(manager, [2, 3]))
    assert num_found(manager, [0, 1]) == 2
    assert manager.allocate(Request(1, [7, 7], SamplingParams(), 1), 2)
    assert (num_found(manager, [0, 1]), num_found(manager, [2, 3])) == (2, 0)


TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(
    block_size=st.integers(1, 3),
    actions=st.lists(st.tuples(st.sampled_from(["start", "end"]), TEXTS), max_size=25),
)
def test_a_found_block_holds_the_tokens_that_were_computed_into_it(block_size, actions):
    manager = BlockManager(12, block_size)
    content: dict[int, tuple[int, ...]] = {}  # of each block, the whole text up to its end
    running: list[Request] = []
    for action, tokens in actions:
        if action == "end" and running:
            manager.free(running.pop(len(tokens) % len(running)))
        elif action == "start":
            request = Request(0, tokens, SamplingParams(), 1)
            num_cached = manager.reuse(request)
            assert num_cached < len(tokens) and num_cached % block_size == 0
            for index, block_id in enumerate(request.block_table):
                assert content[block_id] == tuple(tokens[: (index + 1) * block_size])
            if not manager.allocate(request, len(tokens)):
                manager.free(request)
                continue
            for index in range(num_cached // block_size, len(request.block_table)):
                content[request.block_table[index]] = tuple(tokens[: (index + 1) * block_size])
            request.num_computed_tokens = len(tokens)
            manager.keep(request, len(tokens))
            running.append(request)
        held = {block_id for request in running for block_id in request.block_table}
        assert len(held) + manager.num_free_blocks == manager.num_blocks
    for request in running:
        manager.free(request)
    assert manager.num_free_blocks == manager.num_blocks
