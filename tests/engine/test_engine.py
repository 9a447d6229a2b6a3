from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.engine.pace import Pace
from structspec.errors import Cancelled, EngineError
from structspec.request import Request
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine, greedy_alone, hashed_logits


def small_config(**changes: int) -> EngineConfig:
    sizes = {"block_size": 2, "num_blocks": 20, "max_num_batched_tokens": 16, **changes}
    return EngineConfig(**sizes, speculative=SpeculativeConfig(num_speculative_tokens=4))


def assert_blocks_add_up(toy: ToyEngine, requests: list[Request]) -> None:
    held = Counter(block_id for request in requests for block_id in request.block_table)
    assert len(held) + toy.block_manager.num_free_blocks == toy.block_manager.num_blocks
    # a block of two requests holds what both begin with, computed and verified
    sizes = toy.block_manager.block_size
    for request in requests:
        for index, block_id in enumerate(request.block_table):
            if held[block_id] > 1:
                assert (index + 1) * sizes <= request.num_computed_tokens
    assert all(not request.block_table for request in requests if request.is_finished)


@settings(max_examples=150, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=6),
    block_size=st.integers(1, 4),
    num_tokens=st.integers(24, 60),
    budget=st.integers(1, 24),
    max_num_requests=st.integers(1, 6),
    keeps_prefixes=st.booleans(),
    max_share_aside=st.sampled_from([None, 0.0, 0.25, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_batching_preemption_prefixes_and_drafts_write_what_the_model_alone_writes(
    prompts, block_size, num_tokens, budget, max_num_requests, keeps_prefixes, max_share_aside, seed
):
    config = small_config(
        enable_prefix_caching=keeps_prefixes,
        block_size=block_size,
        num_blocks=-(-num_tokens // block_size),
        max_num_batched_tokens=budget,
        max_num_requests=max_num_requests,
    )
    ahead = {} if max_share_aside is None else {"runs_ahead": True, "pace": Pace(max_share_aside)}
    toy = ToyEngine(config, RandomDrafter(seed), **ahead)
    requests = [toy.add(prompt, max_tokens=12) for prompt in prompts]
    toy.run(requests, lambda: assert_blocks_add_up(toy, requests))
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.output_token_ids == greedy_alone(prompt, 12)
        expected = "stop" if request.token_ids[-1] == STOP else "length"
        assert request.finish_reason == expected


def test_running_out_of_blocks_preempts_the_newest_and_finishes_everybody():
    toy = ToyEngine(small_config(num_blocks=8), RandomDrafter(0))
    requests = [toy.add([i, 1, 2], max_tokens=12, ignore_eos=True) for i in range(4)]
    toy.run(requests)
    assert sum(request.stats.num_preemptions for request in requests) > 0
    assert requests[0].stats.num_preemptions == 0
    assert all(request.num_output_tokens == 12 for request in requests)


def test_drafts_alone_never_preempt_anybody():
    # 2 requests of 3 + 5 tokens fill the 8 blocks exactly: drafts get what room there still is.
    toy = ToyEngine(small_config(num_blocks=8), RandomDrafter(1))
    requests = [toy.add([i, 1, 2], max_tokens=5, ignore_eos=True) for i in range(2)]
    toy.run(requests)
    assert sum(request.stats.num_drafted for request in requests) > 0
    assert all(request.stats.num_preemptions == 0 for request in requests)


def test_max_tokens_is_exact_when_it_falls_inside_a_draft():
    for max_tokens in range(1, 9):
        toy = ToyEngine(small_config(), RandomDrafter(max_tokens, hashed_logits))
        request = toy.add([0, 1], max_tokens=max_tokens, ignore_eos=True)
        toy.run([request])
        assert request.num_output_tokens == max_tokens
        assert request.finish_reason == "length"


def test_speculative_false_drafts_nothing_and_writes_the_same():
    toy = ToyEngine(small_config(), RandomDrafter(3))
    request = toy.add([2, 1], max_tokens=9, speculative=False)
    toy.run([request])
    assert request.stats.num_drafted == 0
    assert request.output_token_ids == greedy_alone([2, 1], 9)


def test_stop_string_cuts_the_text_where_it_first_appears():
    for seed in range(20):
        toy = ToyEngine(small_config(), RandomDrafter(seed))
        request = toy.add([seed % 4, 0], max_tokens=16, stop=("ba", "cc"))
        toy.run([request])
        written = greedy_alone([seed % 4, 0], 16)
        whole = VOCABULARY.decode_bytes(written).decode()
        ends = [whole.find(stop) for stop in ("ba", "cc") if stop in whole]
        assert request.text.text == (whole[: min(ends)] if ends else whole)


def test_cancelling_frees_the_blocks_and_leaves_the_others_alone():
    toy = ToyEngine(small_config(), RandomDrafter(5))
    first, second = (toy.add([i, 1], max_tokens=10) for i in range(2))
    toy.engine.step()
    toy.scheduler.fail(first, Cancelled("enough"))
    toy.run([first, second], lambda: assert_blocks_add_up(toy, [first, second]))
    assert first.finish_reason == "cancelled"
    assert second.output_token_ids == greedy_alone([1, 1], 10)


def test_a_fault_in_a_step_fails_its_requests_and_the_engine_goes_on(caplog):
    def explode(context: tuple[int, ...]) -> list[float]:
        if 3 in context:
            raise RuntimeError("boom")
        return hashed_logits(context)

    toy = ToyEngine(small_config(max_num_requests=1), RandomDrafter(0), conditional=explode)
    bad = toy.add([3, 3], max_tokens=4)
    toy.run([bad])
    assert isinstance(bad.error, EngineError) and "boom" in str(bad.error)
    good = toy.add([0], max_tokens=1)
    toy.run([good])
    assert good.error is None and good.num_output_tokens == 1
    assert_blocks_add_up(toy, [bad, good])


def test_statistics_count_every_draft_and_every_accepted_one():
    toy = ToyEngine(small_config(), RandomDrafter(11, hashed_logits))
    request = toy.add([1, 2, 3], max_tokens=30, ignore_eos=True)
    toy.run([request])
    stats = request.stats
    assert stats.num_accepted + stats.num_target_steps == request.num_output_tokens
    assert sum(stats.drafted_per_position) == stats.num_drafted > stats.num_accepted > 0
    assert sum(stats.accepted_per_position) == stats.num_accepted
