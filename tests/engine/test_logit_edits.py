"""Bias and penalties: what becomes of each logit, and of everything that is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from structspec import GrammarCompiler
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.engine.logit_edits import collect_edits
from structspec.engine.pace import Pace
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from tests.engine.coupled import FicklePace
from tests.engine.test_engine_distribution import (
    CONSTRAINTS,
    PROMPT,
    allowed_tokens,
    other_logits,
)
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine, hashed_logits
from tests.engine.toy_grammar import ToyGrammar, ready

NUM_SAMPLES = 1200
MAX_TOKENS = 3
TEMPERATURE = 0.5  # at which every edit shows
EDITS = {
    "logit-bias": {"logit_bias": ((0, -1.5), (2, 2.0))},
    "presence": {"presence_penalty": 2.0},
    "frequency": {"frequency_penalty": -2.0},
    "repetition": {"repetition_penalty": 1.8},
    "all": {
        "logit_bias": ((1, 1.0), (4, 0.5)),
        "presence_penalty": -0.7,
        "frequency_penalty": 0.9,
        "repetition_penalty": 0.6,
    },
}
BIASES = st.dictionaries(st.integers(0, 4), st.floats(-100, 100, width=32), max_size=3)
PENALTIES = st.floats(-2, 2, width=32)
IDS = st.lists(st.integers(0, 4), max_size=5)


def edited(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], written: Sequence[int]
) -> list[float]:
    """The formulas, one token at a time."""
    result = []
    for token_id, x in enumerate(logits):
        x += dict(params.logit_bias).get(token_id, 0.0)
        if token_id in prompt or token_id in written:
            x = x / params.repetition_penalty if x > 0 else x * params.repetition_penalty
        count = list(written).count(token_id)
        x -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
        result.append(x)
    return result


@given(
    bias=BIASES,
    presence=PENALTIES,
    frequency=PENALTIES,
    repetition=st.sampled_from([1.0, 1.3, 0.5]),
    prompt=IDS.filter(bool),
    steps=st.lists(st.tuples(IDS, IDS, st.integers(0, 5)), min_size=1, max_size=4),
)
def test_each_row_is_edited_by_the_text_that_its_token_follows(
    bias: dict[int, float],
    presence: float,
    frequency: float,
    repetition: float,
    prompt: list[int],
    steps: list[tuple[list[int], list[int], int]],
) -> None:
    """Steps: certain tokens, guesses, and how many of these stand."""
    params = SamplingParams(
        logit_bias=tuple(bias.items()),
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
    )
    plain = Request(0, [1, 2], SamplingParams(), 9)
    request = Request(1, prompt, params, 90)
    for certain, guesses, num_standing in steps:
        first = len(request.token_ids) - 1
        batch = Batch(
            [
                ScheduledRequest(plain, 1, 0, False, 0),
                ScheduledRequest(plain, 1, 1, True, 1),
                ScheduledRequest(request, 1, 9, True, first),
            ]
        )
        drafts = [[], [3], [*certain, *guesses]]
        draft = Draft(drafts, [None] * 3, drafts, [0, 0, len(certain)])
        rows = torch.randn(2 + 1 + len(guesses), 5, generator=torch.Generator().manual_seed(first))
        logits = rows.clone()
        edits = collect_edits(batch, draft)
        assert (edits is None) == (not params.edits_logits)
        if edits is not None:
            places = list(zip(edits.rows.tolist(), edits.token_ids.tolist(), strict=True))
            assert len(set(places)) == len(places)
            edits.apply(logits)
        expected = rows[:2].tolist()
        for j in range(1 + len(guesses)):
            written = [*request.output_token_ids, *certain, *guesses[:j]]
            expected.append(edited(rows[2 + j].tolist(), params, prompt, written))
        assert torch.allclose(logits, torch.tensor(expected), rtol=1e-5, atol=1e-4)
        request.token_ids += [*certain, *guesses[:num_standing], first % 5]


def test_a_share_that_is_dropped_anyway_is_not_edited() -> None:
    request = Request(0, [1], SamplingParams(presence_penalty=1.0), 9)
    stale = ScheduledRequest(request, 1, 0, True, 7)  # of tokens that do not stand
    request.num_divergences = 1
    assert collect_edits(Batch([stale]), Draft([[]], [None], [[]], [0])) is None


def exact_outputs(
    allowed: object, params: SamplingParams, written: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every output with its probability, under the edited and masked target."""
    if len(written) == MAX_TOKENS or written[-1:] == (STOP,):
        yield written, 1.0
        return
    ids = allowed_tokens(allowed, written)
    logits = edited(hashed_logits((*PROMPT, *written)), params, PROMPT, written)
    scaled = torch.tensor(logits, dtype=torch.float64)[ids] / TEMPERATURE
    probs = scaled.softmax(0).tolist()
    for token_id, p in zip(ids, probs, strict=True):
        for output, rest in exact_outputs(allowed, params, (*written, token_id)):
            yield output, p * rest


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("drafter", ["one-hot", "probabilistic"])
@pytest.mark.parametrize("kind", ["free", "regex"])
def test_outputs_are_distributed_as_the_edited_target_writes_them(
    name: str, drafter: str, kind: str
) -> None:
    """Hoeffding and a union bound, as in test_engine_distribution: wrong once in a million."""
    compiler = GrammarCompiler(VOCABULARY)
    constraint = CONSTRAINTS[kind]
    compiled = compiler.submit(constraint) if constraint is not None else None
    config = EngineConfig(
        block_size=2,
        num_blocks=400,
        max_num_requests=64,
        speculative=SpeculativeConfig(num_speculative_tokens=3),
    )
    conditional = other_logits if drafter == "probabilistic" else None
    toy = ToyEngine(config, RandomDrafter(3, conditional), masker=Masker(VOCABULARY))
    params = SamplingParams(temperature=TEMPERATURE, **EDITS[name])
    exact = dict(exact_outputs(compiled.result() if compiled else None, params))
    plain = dict(exact_outputs(compiled.result() if compiled else None, SamplingParams()))
    requests = [
        toy.add(
            PROMPT,
            max_tokens=MAX_TOKENS,
            temperature=TEMPERATURE,
            seed=i,
            compiled=compiled,
            **EDITS[name],
        )
        for i in range(NUM_SAMPLES)
    ]
    toy.run(requests)
    compiler.close()
    assert sum(request.stats.num_accepted for request in requests) > NUM_SAMPLES / 10
    counts = Counter(tuple(request.output_token_ids) for request in requests)
    assert set(counts) <= set(exact)
    eps = math.sqrt(math.log(2 * len(exact) / 1e-6) / (2 * NUM_SAMPLES))
    assert max(abs(counts[output] / NUM_SAMPLES - p) for output, p in exact.items()) < eps
    assert max(abs(plain[output] - p) for output, p in exact.items()) > eps, "it shows"


def greedy_alone(prompt: Sequence[int], params: SamplingParams, max_tokens: int) -> list[int]:
    """What the edited toy model writes at temperature 0, token by token."""
    written: list[int] = []
    while len(written) < max_tokens and STOP not in written:
        logits = edited(hashed_logits((*prompt, *written)), params, prompt, written)
        written.append(logits.index(max(logits)))
    return written


@pytest.mark.parametrize("way", ["plain", "ahead", "ahead-and-fickle"])
def test_greedy_text_is_the_edited_models_however_steps_are_taken(way: str) -> None:
    """Some requests of the batch are edited, and those beside them are as ever."""
    for seed in range(20):
        pace = FicklePace(0.25, seed) if way == "ahead-and-fickle" else Pace(1.0)
        config = EngineConfig(
            block_size=2,
            num_blocks=30,  # too few: some are preempted
            max_num_requests=6,
            speculative=SpeculativeConfig(num_speculative_tokens=3),
        )
        toy = ToyEngine(config, RandomDrafter(seed), runs_ahead=way != "plain", pace=pace)
        asked = [(PROMPT, edits) for edits in EDITS.values()] + [((1, 3), {}), ((2, 2), {})]
        requests = [toy.add(prompt, max_tokens=12, **edits) for prompt, edits in asked]
        toy.run(requests)
        for (prompt, edits), request in zip(asked, requests, strict=True):
            assert request.error is None
            expected = greedy_alone(prompt, SamplingParams(**edits), 12)
            assert request.output_token_ids == expected


def test_a_device_draws_the_same_for_requests_that_stand_beside_edited_ones() -> None:
    params = [
        SamplingParams(),
        SamplingParams(temperature=0.9, seed=3),
        SamplingParams(temperature=0.9, seed=4, top_k=3),
        SamplingParams(temperature=0.9, seed=5, logit_bias=((0, 100.0),)),
    ]
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))

    def draw(chosen: Sequence[int]) -> list[list[int]]:
        batch = Batch([ScheduledRequest(Request(i, [1], params[i], 9), 1, 0, True) for i in chosen])
        draft = Draft(
            [[]] * len(chosen), [None] * len(chosen), [[]] * len(chosen), [0] * len(chosen)
        )
        last = torch.zeros(8, dtype=torch.int64)
        sampler = DeviceSampler(VOCABULARY, [8], 2, last, Lanes(last.device), lambda rows: rows)
        mask = Masker(VOCABULARY).fill(batch, draft)
        output = sampler(rows[list(chosen)].clone(), batch, draft, mask).read()
        return [list(ids) for ids in output.token_ids]

    together = draw([0, 1, 2, 3])
    assert together[:3] == draw([0, 1, 2])
    assert together[3] == [0]


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-4, 1e300])
@pytest.mark.parametrize(
    "edits",
    [
        {"repetition_penalty": 100.0, "logit_bias": ((0, -100.0), (1, -100.0))},
        {"repetition_penalty": 0.01, "logit_bias": ((2, 100.0),)},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 100.0},
    ],
)
def test_no_edit_is_so_strong_that_a_forbidden_token_is_written(
    edits: dict[str, Any], temperature: float
) -> None:
    """Logits of a model as large as they come, of both signs."""

    def steep(context: tuple[int, ...]) -> list[float]:
        return [1e4 * logit for logit in hashed_logits(context)]

    config = EngineConfig(block_size=2, num_blocks=40)
    last = torch.zeros(80, dtype=torch.int64)
    for sampler in (
        None,
        DeviceSampler(VOCABULARY, [80], 15, last, Lanes(last.device), lambda rows: rows),
    ):
        toy = ToyEngine(
            config, RandomDrafter(3), conditional=steep, masker=Masker(VOCABULARY), sampler=sampler
        )
        requests = [
            toy.add(
                (0, 1, place),
                temperature=temperature,
                seed=place,
                compiled=ready(ToyGrammar(("abcab", "acb"))),
                **edits,
            )
            for place in range(4)
        ]
        toy.run(requests)
        assert {request.text.text for request in requests} <= {"abcab", "acb"}
        assert all(request.error is None for request in requests)
