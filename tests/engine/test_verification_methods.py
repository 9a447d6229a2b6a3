"""What the methods of verification owe: block is exact, the others keep to the grammar."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import GrammarCompiler
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.engine import verifiers
from structspec.engine.batch import Batch, Mask, ScheduledRequest, guessed
from structspec.engine.device_sampled import DeviceSampled
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.engine.randomness import ACCEPT, uniforms
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from tests.engine.coupled import HopefulPace
from tests.engine.test_engine_distribution import (
    CONSTRAINTS,
    MAX_TOKENS,
    PROMPT,
    exact_outputs,
    other_logits,
    worst_deviation,
)
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine

VOCAB_SIZE = VOCABULARY.vocab_size
NUM_DRAFTS = 3


def config(method, num_tokens=NUM_DRAFTS, **others):
    return SpeculativeConfig(
        rejection_sample_method=method, num_speculative_tokens=num_tokens, **others
    )


def plain(speculative):
    return RejectionSampler(VOCAB_SIZE, (STOP,), speculative)


def on_device(speculative, num_rows=8):
    """The sampler of a GPU, for any number of rows up to this."""
    last = torch.zeros(num_rows, dtype=torch.int64)
    num_drafts = speculative.num_speculative_tokens
    sampler = DeviceSampler(
        VOCABULARY,
        [num_rows],
        num_drafts,
        last,
        Lanes(torch.device("cpu")),
        lambda rows: rows,
        speculative=speculative,
    )

    def sample(logits, batch, draft, mask):
        rest = torch.zeros(num_rows - len(logits), VOCAB_SIZE)
        return sampler(torch.cat([logits, rest]), batch, draft, mask)

    return sample


def make_mask(num_rows, allowed, num_valid):
    """`allowed`: the tokens of every row."""
    word = sum(1 << token_id for token_id in allowed)
    return Mask(
        torch.full((num_rows, 1), word, dtype=torch.int32),
        torch.arange(num_rows),
        torch.arange(num_rows),
        num_valid,
    )


def run(sampler, logits, drafts, num_valid, *, params=None, probs=None, seed=0, allowed=range(5)):
    """A step of requests with `len(draft)` drafts each; logits [num_rows, VOCAB_SIZE]."""
    params = params or SamplingParams()
    requests = [Request(i, [0], params, 16) for i in range(len(drafts))]
    for index, request in enumerate(requests):
        request.seed = seed + index
    batch = Batch(
        [ScheduledRequest(r, 1, len(d), True) for r, d in zip(requests, drafts, strict=True)]
    )
    mask = make_mask(len(logits), allowed, num_valid)
    return sampler(logits.clone(), batch, guessed(drafts, probs), mask).read()


# block


@pytest.mark.parametrize("kind", ["free", "cfg"])
def test_blocks_of_probabilistic_drafts_leave_the_distribution_as_it_is(kind):
    drafter = RandomDrafter(7, other_logits)
    worst, eps = worst_deviation(kind, drafter, 1.0, sampler=plain(config("block")))
    assert worst < eps


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sampler", [plain, on_device], ids=["cpu", "device"])
def test_drafts_without_probabilities_are_verified_as_ever(sampler, temperature):
    generator = torch.Generator().manual_seed(1)
    standard, block = sampler(config("standard")), sampler(config("block"))
    for seed in range(20):
        logits = torch.randn(8, VOCAB_SIZE, generator=generator)
        drafts = [logits[:3].argmax(-1).tolist(), logits[4:7].argmax(-1).tolist()]
        params = SamplingParams(temperature=temperature)
        one, other = (
            run(each, logits, drafts, [3, 2], params=params, seed=seed)
            for each in (standard, block)
        )
        assert (one.token_ids, one.num_accepted) == (other.token_ids, other.num_accepted)


# standard, in parts


def test_parts_of_any_size_give_the_same_tokens(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(24, VOCAB_SIZE, generator=generator)
    q = torch.rand(NUM_DRAFTS, VOCAB_SIZE, generator=generator)
    q /= q.sum(-1, keepdim=True)
    drafts = [[1, 2, 3]] * 6
    probs = [None, q] * 3
    params = SamplingParams(temperature=1.0)

    def write():
        return run(plain(config("standard")), logits, drafts, [3] * 6, params=params, probs=probs)

    whole, sizes = write(), []
    target_probs = verifiers.compute_target_probs
    monkeypatch.setattr(
        verifiers,
        "compute_target_probs",
        lambda rows, params: (sizes.append(len(rows)), target_probs(rows, params))[1],
    )
    assert write() == whole and sizes == [12, 12]
    for most, expected in ((8, [8, 4, 8, 4]), (1, [4] * 6)):  # rows; one request at least
        sizes.clear()
        monkeypatch.setattr(verifiers, "_MAX_PROBS", most * VOCAB_SIZE)
        assert write() == whole and sizes == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("has_probs", [False, True])
@pytest.mark.parametrize("method", ["standard", "block", "fly"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_half_precision_logits_are_verified_as_their_float32_values(
    dtype, method, has_probs, temperature
):
    generator = torch.Generator().manual_seed(5)
    logits = (3 * torch.randn(80, VOCAB_SIZE, generator=generator)).to(dtype)
    drafts = logits.view(20, 4, VOCAB_SIZE)[:, :3].argmax(-1).tolist()
    q = torch.full((3, VOCAB_SIZE), 1 / VOCAB_SIZE)
    half, single = (
        run(
            plain(config(method)),
            values,
            drafts,
            [3] * 20,
            params=SamplingParams(temperature=temperature),
            probs=[q if has_probs else None] * 20,
            allowed=[0, 1, 2],
        )
        for values in (logits, logits.float())
    )
    assert half == single and 0 < sum(half.num_accepted) <= 60


@pytest.mark.parametrize("method", ["standard", "block", "fly"])
def test_greedy_drafts_are_verified_without_a_random_number(method, monkeypatch):
    monkeypatch.delattr(verifiers, "uniforms")
    q = torch.full((3, VOCAB_SIZE), 0.2)
    rows = torch.eye(VOCAB_SIZE)[[1, 2, 3, 0]] * 9
    assert run(plain(config(method)), rows, [[1, 2, 0]], [3], probs=[q]).token_ids == [[1, 2, 3]]


# synthetic


@pytest.mark.parametrize("sampler", [plain, on_device], ids=["cpu", "device"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("has_probs", [False, True])
@pytest.mark.parametrize(
    ("rates", "num_valid", "num_accepted"),
    [([1, 1, 0], 3, 2), ([1, 1, 1], 3, 3), ([0, 0, 0], 3, 0), ([1, 1, 1], 1, 1)],
)
def test_so_many_drafts_stand_as_is_set_but_none_that_is_forbidden(
    sampler, temperature, has_probs, rates, num_valid, num_accepted
):
    """The target never writes token 2, of which the drafts are made, and the mask forbids 3."""
    logits = torch.tensor([[0.0, 9.0, -60.0, 50.0, 0.0]]).repeat(4, 1)
    output = run(
        sampler(config("synthetic", synthetic_acceptance_rates=rates)),
        logits,
        [[2, 2, 2]],
        [num_valid],
        params=SamplingParams(temperature=temperature),
        probs=[torch.full((3, VOCAB_SIZE), 0.2)] if has_probs else None,
        allowed=[0, 1, 2, 4],
    )
    assert output.num_accepted == [num_accepted]
    assert list(output.token_ids[0][:-1]) == [2] * num_accepted
    assert output.token_ids[0][-1] in ([1] if temperature == 0 else [0, 1, 4])


@pytest.mark.parametrize("sampler", [plain, on_device], ids=["cpu", "device"])
def test_a_draft_that_the_target_would_write_is_rejected_as_often(sampler):
    never = config("synthetic", synthetic_acceptance_rate=0)
    output = run(sampler(never), torch.eye(VOCAB_SIZE)[[1, 1, 1, 1]], [[1, 1, 1]], [3])
    assert (output.num_accepted, [list(ids) for ids in output.token_ids]) == ([0], [[1]])


def test_the_mean_is_the_length_that_was_asked_for():
    """Hoeffding: of N steps with lengths in [1, 4] the mean is off by eps with 2 exp(-2N(eps/3)²).

    That is 1e-6 here, and the seeds are fixed.
    """
    num_steps, length = 4000, 2.6
    sampler = plain(config("synthetic", synthetic_acceptance_length=length))
    logits = torch.zeros(4 * num_steps, VOCAB_SIZE)
    output = run(sampler, logits, [[1, 2, 3]] * num_steps, [3] * num_steps)
    assert set(output.num_accepted) == {1, 2}  # the whole number, or one more
    eps = 3 * math.sqrt(math.log(2 / 1e-6) / (2 * num_steps))
    assert abs(sum(map(len, output.token_ids)) / num_steps - length) < eps


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**40), st.floats(0, 1), st.integers(0, 3), st.sampled_from([0.0, 1.0]))
def test_both_samplers_accept_the_same_number_by_seed_and_place(seed, rate, num_valid, temperature):
    speculative = config("synthetic", synthetic_acceptance_rate=rate)
    logits = torch.randn(8, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))
    one, other = (
        run(
            each(speculative),
            logits,
            [[1, 2, 3], [0, 0, 0]],
            [num_valid, 3],
            params=SamplingParams(temperature=temperature),
            seed=seed,
        )
        for each in (plain, on_device)
    )
    assert list(one.num_accepted) == list(other.num_accepted)
    assert one.num_accepted[0] <= num_valid


def test_synthetic_steps_stay_on_the_device():
    sampler = on_device(config("synthetic", synthetic_acceptance_rate=1))
    requests = [Request(0, [0], SamplingParams(), 16)]
    batch = Batch([ScheduledRequest(requests[0], 1, 3, True)])
    q = torch.full((3, VOCAB_SIZE), 0.2)
    sampled = sampler(
        torch.zeros(4, VOCAB_SIZE), batch, guessed([[1, 2, 3]], [q]), make_mask(4, range(5), [3])
    )
    assert isinstance(sampled, DeviceSampled)
    assert sampled.read().token_ids == [[1, 2, 3, 0]]


# fly

SURE, UNSURE = [0.0, 50.0, 0.0, 0.0, 0.0], [1.0, 1.1, 1.0, 1.0, 1.0]  # of token 1


@pytest.mark.parametrize("sampler", [plain, on_device], ids=["cpu", "device"])
@pytest.mark.parametrize("has_probs", [False, True])
@pytest.mark.parametrize(
    ("first", "drafts", "num_valid", "expected"),
    [
        pytest.param(UNSURE, [2, 1, 1], 3, [2, 1, 1, 1], id="passes"),
        pytest.param(SURE, [2, 1, 1], 3, [1], id="the-target-is-sure"),
        pytest.param(UNSURE, [2, 1, 0], 3, [1], id="one-behind-it-is-wrong"),
        pytest.param(UNSURE, [1, 2, 1], 3, [1, 1], id="too-few-are-behind-it"),
        pytest.param(UNSURE, [2, 1, 1], 2, [1], id="the-window-ends-at-num-valid"),
        pytest.param(UNSURE, [3, 1, 1], 3, [1], id="the-mask-forbids-it"),
        pytest.param(UNSURE, [3, 1, 1], 0, [1], id="it-is-forbidden"),
    ],
)
def test_a_wrong_draft_passes_where_the_target_wavers_and_then_agrees(
    sampler, has_probs, first, drafts, num_valid, expected
):
    """The window is two drafts. All rows are sure of token 1 but that of the first other draft.

    Drafts with probabilities are all but certain for their drafter; seed 1 rejects the unlikely.
    """
    assert min(uniforms(1, ACCEPT, 0, 3)) > 0.3
    logits = torch.tensor([SURE] * 4)
    logits[[draft != 1 for draft in drafts].index(True)] = torch.tensor(first)
    q = torch.zeros(3, VOCAB_SIZE)
    q[range(3), drafts] = 1
    output = run(
        sampler(config("fly", fly_window_size=2)),
        logits,
        [drafts],
        [num_valid],
        params=SamplingParams(temperature=float(has_probs)),
        probs=[q] if has_probs else None,
        seed=1,
        allowed=[0, 1, 2, 4],
    )
    assert output.num_accepted == [len(expected) - 1]
    assert list(output.token_ids[0][:-1]) == expected[:-1]
    if not has_probs:
        assert output.token_ids[0][-1] == expected[-1]
    elif len(expected) <= 3:  # recovered
        assert output.token_ids[0][-1] not in (drafts[len(expected) - 1], 3)


def test_behind_a_draft_that_passed_another_may():
    speculative = config("fly", 5, fly_window_size=1)
    logits = torch.tensor([UNSURE, SURE, UNSURE, SURE, UNSURE, SURE])
    output = run(plain(speculative), logits, [[2, 1, 2, 1, 2]], [5])
    assert [list(ids) for ids in output.token_ids] == [[2, 1, 2, 1, 1]]
    assert output.num_accepted == [4]


def test_what_passed_is_counted_as_far_as_it_stands():
    """Of three wrong drafts with a right one behind each, the target is sure about the second."""
    request = Request(0, [0], SamplingParams(), 16)
    batch = Batch([ScheduledRequest(request, 1, 6, True)])
    logits = torch.tensor([UNSURE, SURE, SURE, SURE, UNSURE, SURE, SURE])
    sampler = plain(config("fly", 6, fly_window_size=1))
    draft = guessed([[2, 1, 2, 1, 2, 1]])
    output = sampler(logits, batch, draft, make_mask(7, range(5), [6])).read()
    assert (output.num_accepted, request.stats.num_let_pass) == ([2], 1)


@pytest.mark.parametrize(("threshold", "passes"), [(1.09, True), (1.11, False)])
def test_the_entropy_of_the_three_best_is_in_nats(threshold, passes):
    """Of three equals, all there is: ln 3 = 1.0986…"""
    speculative = config("fly", 2, fly_entropy_threshold=threshold)
    logits = torch.tensor([[5.0, 5.0, 5.0, -90.0, -90.0], SURE, SURE])
    output = run(plain(speculative), logits, [[2, 1]], [2])
    assert output.num_accepted == [2 * passes]


# whole engines


@pytest.mark.parametrize("kind", ["regex", "cfg"])
@pytest.mark.parametrize("asks_afterwards", [False, True])
@pytest.mark.parametrize("drafter", ["one-hot", "probabilistic"])
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"synthetic_acceptance_rate": 1}, id="synthetic"),
        pytest.param({"fly_window_size": 1, "fly_entropy_threshold": 0}, id="fly"),
    ],
)
def test_junk_is_drafted_and_what_is_written_is_the_grammars(
    kind, asks_afterwards, drafter, settings
):
    method = next(iter(settings)).partition("_")[0]
    compiler = GrammarCompiler(VOCABULARY)
    compiled = compiler.submit(CONSTRAINTS[kind])
    valid = {output for output, _ in exact_outputs(compiled.result(), 1.0)}
    toy = ToyEngine(
        EngineConfig(
            block_size=2,
            num_blocks=200,
            max_num_requests=16,
            speculative=SpeculativeConfig(num_speculative_tokens=3),
        ),
        RandomDrafter(1, other_logits if drafter == "probabilistic" else None),
        masker=Masker(VOCABULARY),
        sampler=plain(config(method, **settings)),
        runs_ahead=asks_afterwards,
        pace=HopefulPace() if asks_afterwards else None,
    )
    requests = [
        toy.add(PROMPT, max_tokens=MAX_TOKENS, temperature=i % 2, seed=i, compiled=compiled)
        for i in range(60)
    ]
    toy.run(requests)
    compiler.close()
    assert all(request.error is None for request in requests)
    assert {tuple(request.output_token_ids) for request in requests} <= valid
    assert sum(request.stats.num_accepted for request in requests) > 10
