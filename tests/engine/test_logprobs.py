"""Logprobs of what is written: the same however steps are taken, and what softmax says by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.engine.batch import Batch, Draft, ScheduledRequest, guessed
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.engine.logprobs import guess_certain
from structspec.engine.pace import Pace
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.engine.sampling_probs import compute_target_probs
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from structspec.token_logprob import TokenLogprob
from tests.engine.coupled import FicklePace
from tests.engine.test_logit_edits import edited
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar, ready

TEXTS = ("abcca", "abccb", "abca", "cb")
PROMPT = (0, 1)
DRAWS = {
    "greedy": {},
    "drawn": {"temperature": 0.7, "seed": 3},
    "filtered": {"temperature": 1.3, "seed": 4, "top_k": 3, "min_p": 0.05},
    "nucleus": {"temperature": 0.9, "seed": 5, "top_p": 0.6},
    "edited": {"temperature": 0.6, "seed": 6, "repetition_penalty": 1.4, "logit_bias": ((2, 2.0),)},
}


def by_hand(
    params: SamplingParams, texts: Sequence[str] | None, written: Sequence[int]
) -> list[list[float]]:
    """What each written token was drawn from, or of raw ones what the model itself says."""
    matcher = ToyGrammar(tuple(texts)).matcher() if texts is not None else None
    rows = []
    for place, token_id in enumerate(written):
        before = written[:place]
        logits = hashed_logits((*PROMPT, *before))
        if params.logprobs_mode == "processed":
            logits = edited(logits, params, PROMPT, before)
            allowed = matcher.allowed() if matcher is not None else range(5)
            logits = [x if t in allowed else -math.inf for t, x in enumerate(logits)]
            if params.temperature > 0:
                probs = compute_target_probs(torch.tensor([logits]), [params])
                logits = probs[0].log().tolist()
        rows.append(torch.tensor(logits, dtype=torch.float64).log_softmax(0).tolist())
        assert matcher is None or matcher.accept(token_id)
    return rows


def check(
    logprobs: Sequence[TokenLogprob], rows: list[list[float]], written: Sequence[int], n: int
):
    assert [one.token_id for one in logprobs] == list(written)
    for one, row in zip(logprobs, rows, strict=True):
        assert one.logprob == pytest.approx(row[one.token_id], abs=1e-4)
        best = sorted((x for x in row if x > -math.inf), reverse=True)[:n]
        assert [x for _, x in one.top] == pytest.approx(best, abs=1e-4)
        assert all(row[t] == pytest.approx(x, abs=1e-4) for t, x in one.top)


def make_config(**changes: int) -> EngineConfig:
    sizes = {"block_size": 2, "num_blocks": 24, "max_num_requests": 5, **changes}
    return EngineConfig(**sizes, speculative=SpeculativeConfig(num_speculative_tokens=3))


@pytest.mark.parametrize("mode", ["raw", "processed"])
@pytest.mark.parametrize("way", ["plain", "ahead", "ahead-and-fickle"])
def test_they_are_what_softmax_gives_however_steps_are_taken(mode: str, way: str) -> None:
    """Certain tokens and guesses, requests that are preempted, and some that ask for none."""
    for seed in range(6):
        pace = FicklePace(0.25, seed) if way == "ahead-and-fickle" else Pace(1.0)
        toy = ToyEngine(
            make_config(),
            RestlessDrafter(seed),
            masker=Masker(VOCABULARY),
            runs_ahead=way != "plain",
            pace=pace,
        )
        asked = [
            (texts, params)
            for texts in (None, TEXTS)
            for params in DRAWS.values()
            if "top_k" not in params or mode == "processed"
        ]
        silent = [toy.add(PROMPT, max_tokens=9, compiled=ready(ToyGrammar(TEXTS)))]
        requests = [
            toy.add(
                PROMPT,
                max_tokens=9,
                compiled=ready(ToyGrammar(texts)) if texts is not None else None,
                logprobs=2,
                logprobs_mode=mode,
                **params,
            )
            for texts, params in asked
        ]
        toy.run([*silent, *requests])
        assert silent[0].logprobs == []
        for (texts, _), request in zip(asked, requests, strict=True):
            assert request.error is None
            written = request.output_token_ids
            check(request.logprobs, by_hand(request.params, texts, written), written, 2)


def test_speculation_changes_none_of_them() -> None:
    told = []
    for is_on in (True, False):
        toy = ToyEngine(make_config(num_blocks=60), RandomDrafter(1))
        requests = [
            toy.add(PROMPT, max_tokens=12, logprobs=5, speculative=is_on, **params)
            for params in DRAWS.values()
        ]
        toy.run(requests)
        told.append([request.logprobs for request in requests])
    for one, other in zip(*told, strict=True):
        assert [each.token_id for each in one] == [each.token_id for each in other]
        for a, b in zip(one, other, strict=True):
            assert [a.logprob, *(x for _, x in a.top)] == pytest.approx(
                [b.logprob, *(x for _, x in b.top)], abs=1e-5
            )


def test_drafts_with_probabilities_leave_them_what_they_are() -> None:
    toy = ToyEngine(make_config(), RandomDrafter(2, hashed_logits), masker=Masker(VOCABULARY))
    request = toy.add(PROMPT, max_tokens=12, logprobs=1, temperature=1.0, seed=1)
    toy.run([request])
    written = request.output_token_ids
    check(request.logprobs, by_hand(request.params, None, written), written, 1)


def test_tokens_behind_a_stop_have_none_and_the_stop_token_has_its_own() -> None:
    toy = ToyEngine(make_config(), RandomDrafter(0))
    bias = ((STOP, 3.0),)
    requests = [
        toy.add((t, 1), max_tokens=12, temperature=1.0, seed=t, logprobs=0, logit_bias=bias)
        for t in range(4)
    ]
    toy.run(requests)
    for request in requests:
        assert [one.token_id for one in request.logprobs] == request.output_token_ids
        assert all(one.top == () for one in request.logprobs)
    assert any(request.output_token_ids[-1] == STOP for request in requests)


@pytest.mark.parametrize("mode", ["raw", "processed"])
@pytest.mark.parametrize("num_drafts", [0, 3])
def test_a_device_says_what_the_plain_sampler_says(mode: str, num_drafts: int) -> None:
    """Of greedy requests all of it, of drawn ones how likely each token is at its place."""
    asks = [
        SamplingParams(logprobs=3, logprobs_mode=mode),
        SamplingParams(),
        SamplingParams(logprobs=1, logprobs_mode=mode, ignore_eos=True),
        SamplingParams(logprobs=0, logprobs_mode=mode, repetition_penalty=1.5),
        SamplingParams(logprobs=4, logprobs_mode=mode),
    ]
    requests = [Request(i, [1, 2], params, 10) for i, params in enumerate(asks)]
    requests[4].compiled = ready(ToyGrammar(("acb",)))
    requests[4].start_matching(requests[4].compiled.result())
    batch = Batch([ScheduledRequest(r, 1, num_drafts, r is not requests[1], 1) for r in requests])
    num_rows = 4 * (1 + num_drafts)
    logits = torch.randn(num_rows, 5, generator=torch.Generator().manual_seed(num_drafts))
    best = logits.argmax(-1).view(4, -1)[:, :num_drafts].tolist()
    draft = guessed([best[0], [], best[1], best[2], [0, 2, 1][:num_drafts]])
    mask = Masker(VOCABULARY).fill(batch, draft)
    last = torch.zeros(32, dtype=torch.int64)
    sampler = DeviceSampler(VOCABULARY, [32], 3, last, Lanes(last.device), lambda rows: rows, 2)
    padded = torch.cat([logits, torch.full((7, 5), float("nan"))])
    ours = sampler(padded, batch, draft, mask).read()
    plain = RejectionSampler(VOCABULARY.vocab_size, VOCABULARY.stop_token_ids)
    theirs = plain(logits.clone(), batch, draft, mask).read()
    assert [*map(list, ours.token_ids)] == [*map(list, theirs.token_ids)]
    assert set(ours.logprobs) == set(theirs.logprobs) == {0, 2, 3, 4}
    for index, logprobs in ours.logprobs.items():
        for one, other in zip(logprobs, theirs.logprobs[index], strict=True):
            assert one.token_id == other.token_id
            assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
            assert dict(one.top) == pytest.approx(dict(other.top), abs=1e-5)


@pytest.mark.parametrize("params", [DRAWS["filtered"], DRAWS["nucleus"]], ids=["k", "p"])
def test_a_device_tells_how_likely_a_limited_draw_was(params: dict[str, float]) -> None:
    requests = [
        Request(
            i,
            [1],
            SamplingParams(logprobs=2, logprobs_mode="processed", **{**params, "seed": i}),
            9,
        )
        for i in range(30)
    ]
    batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
    draft = guessed([[]] * 30)
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(9))
    last = torch.zeros(32, dtype=torch.int64)
    sampler = DeviceSampler(VOCABULARY, [30], 0, last, Lanes(last.device), lambda rows: rows)
    output = sampler(logits.clone(), batch, draft, Masker(VOCABULARY).fill(batch, draft)).read()
    probs = compute_target_probs(logits, [request.params for request in requests])
    for index, row in enumerate(probs.log().tolist()):
        check(output.logprobs[index], [row], output.token_ids[index], 2)


def test_where_they_are_asked_for_certain_tokens_are_guessed() -> None:
    asking = Request(0, [1], SamplingParams(logprobs=0), 9)
    other = Request(1, [1], SamplingParams(), 9)
    batch = Batch([ScheduledRequest(request, 1, 3, True) for request in (asking, other)])
    q = torch.full((1, 5), 0.2)
    draft = Draft([[3, 1, 0], [2]], [q, None], [[True, True, False], [True]], [2, 1])
    changed = guess_certain(batch, draft)
    assert changed.num_certain == [0, 1]
    assert changed.token_ids == draft.token_ids
    assert changed.probs[0] is not None and changed.probs[1] is None
    assert changed.probs[0].argmax(-1).tolist()[:2] == [3, 1]
    assert torch.equal(changed.probs[0][2:], q)
    assert guess_certain(
        Batch(batch.requests[1:]), Draft([[2]], [None], [[True]], [1])
    ).num_certain == [1]


def prompt_by_hand(prompt: Sequence[int]) -> list[list[float]]:
    return [
        torch.tensor(hashed_logits(tuple(prompt[:n])), dtype=torch.float64).log_softmax(0).tolist()
        for n in range(1, len(prompt))
    ]


@pytest.mark.parametrize("way", ["plain", "ahead"])
@pytest.mark.parametrize("max_num_draft_tokens", [0, 5, 64])
def test_a_prompts_tokens_have_theirs_however_it_is_computed(
    way: str, max_num_draft_tokens: int
) -> None:
    """In chunks, preempted, beside others, and with a cache that knows its beginning."""
    for seed in range(6):
        config = make_config(
            max_num_draft_tokens=max_num_draft_tokens, max_num_batched_tokens=7 + seed
        )
        drafter = RandomDrafter(seed)
        toy = ToyEngine(config, drafter, runs_ahead=way != "plain", pace=Pace(1.0))
        prompts = [[(seed + i) % 4 for i in range(n)] for n in (1, 2, 9, 9, 16)]
        requests = [toy.add(p, max_tokens=8, prompt_logprobs=i) for i, p in enumerate(prompts)]
        requests.append(toy.add(prompts[-1], max_tokens=4, logprobs=1))
        toy.run(requests[:-1])
        toy.run(requests)
        assert requests[-1].prompt_logprobs == []
        for num_top, (prompt, request) in enumerate(zip(prompts, requests[:-1], strict=True)):
            assert request.error is None
            check(request.prompt_logprobs, prompt_by_hand(prompt), prompt[1:], num_top)


def test_a_preempted_request_computes_its_prompt_for_them_only_once() -> None:
    toy = ToyEngine(make_config(), RandomDrafter(0))
    prompt = [0, 1, 2, 3, 0, 1, 2]
    request = toy.add(prompt, max_tokens=9, prompt_logprobs=1)
    toy.engine.step()
    told = list(request.prompt_logprobs)
    assert len(told) == 6
    toy.scheduler.preempt(request)
    assert not request.needs_prompt_rows
    toy.run([request])
    assert request.prompt_logprobs == told
    assert request.stats.num_cached_tokens == 6  # three blocks
