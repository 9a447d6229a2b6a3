"""All that a request may ask, in any combination and company: what a reader would write by hand.

The reference knows no engine: one token after the other, the best that a fresh matcher allows of
the logits as docs/logits.md changes them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.registry import make_drafter
from structspec.engine.cost_model import CostModel
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.draft_length import AdaptiveLengths, DraftLengths, TableLengths
from structspec.engine.lanes import Lanes
from structspec.engine.pace import Pace
from structspec.errors import Cancelled, NothingAllowed
from structspec.grammars.base import DeadEnd
from structspec.grammars.drafts import allowed_tokens
from structspec.grammars.wrapping import FreeMatcher, Wrapper
from structspec.masking import Masker
from structspec.reasoning_boundary import BEFORE, REASONING, Boundary, State
from structspec.reasoning_matcher import ReasoningBound
from structspec.reasoning_progress import ReasoningProgress
from structspec.request import FinishReason, Request, RequestStatus, SamplingParams
from structspec.speculation import Speculation
from tests.engine.coupled import FicklePace, HopefulPace
from tests.engine.toy import LIMITER, STOP, VOCABULARY, ToyEngine, hashed_logits
from tests.engine.toy_grammar import ToyGrammar

BOUNDARY = Boundary(VOCABULARY, "bb", "cc")
LIMITS = (
    {},
    {},
    {"min_tokens": 4, "stop_token_ids": (3,)},
    {"stop_token_ids": (2,)},
    {"bad_words": ("cc", "ba")},
    {"allowed_token_ids": (0, 1, 2)},
)
EDITS = (
    {},
    {},
    {"presence_penalty": 1.5, "frequency_penalty": -0.5},
    {"repetition_penalty": 1.5, "logit_bias": ((0, 1.0), (4, -2.0))},
)


class Alone(NamedTuple):
    """What a request writes by itself."""

    token_ids: list[int]
    logprobs: list[float]
    text: str
    reason: FinishReason


@dataclass(frozen=True)
class Ask:
    """A request, and what happens to it when."""

    texts: tuple[str, ...] | None
    prompt: tuple[int, ...]
    params: SamplingParams
    reasoning: tuple[int, int | None] | None  # the phase it begins in, and its limit
    prediction: tuple[int, ...] | None  # None: what it will write
    arrives: int
    compiled_after: int
    cancelled_at: int | None

    def request(self, request_id: int) -> Request:
        assert self.params.max_tokens is not None
        wrappers: tuple[Wrapper, ...] = ()
        progress = None
        if self.reasoning is not None:
            state, limit = State(self.reasoning[0]), self.reasoning[1]
            wrappers = (ReasoningBound(BOUNDARY, state, self.params.max_tokens, limit),)
            progress = ReasoningProgress(BOUNDARY, state)
        is_constrained = self.texts is not None
        return Request(
            request_id,
            self.prompt,
            self.params,
            self.params.max_tokens,
            Future() if is_constrained else None,
            LIMITER.limit(self.params, wrappers, is_constrained=is_constrained),
            reasoning=progress,
            prediction_token_ids=self.prediction or (),
        )

    def allowed(self, request: Request) -> list[int]:
        """What may follow, by a fresh matcher; nothing at a dead end."""
        if self.texts is None and not request.wrappers:
            return [t for t in range(5) if t != STOP or not self.params.ignore_eos]
        matcher = (
            FreeMatcher(VOCABULARY) if self.texts is None else ToyGrammar(self.texts).matcher()
        )
        for wrapper in request.wrappers:
            matcher = wrapper.around(matcher)
        assert all(map(matcher.accept, request.output_token_ids))
        bitmask = allocate_bitmask(1, VOCABULARY.vocab_size)
        try:
            matcher.fill(bitmask, 0)
        except DeadEnd:
            return []
        return [*allowed_tokens(bitmask, 0)]

    def logits(self, written: Sequence[int]) -> list[float]:
        params, logits = self.params, hashed_logits((*self.prompt, *written))
        for token_id, bias in params.logit_bias:
            logits[token_id] += bias
        for t in {*self.prompt, *written}:
            factor = params.repetition_penalty
            logits[t] = logits[t] / factor if logits[t] > 0 else logits[t] * factor
        for t in {*written}:
            logits[t] -= params.frequency_penalty * written.count(t) + params.presence_penalty
        return logits

    def alone(self) -> Alone:
        request, logprobs = self.request(0), []
        reason: FinishReason | None = None
        while reason is None:
            written, allowed = request.output_token_ids, self.allowed(request)
            if not allowed:
                reason = "error"
                break
            logits = self.logits(written)
            best = max(allowed, key=logits.__getitem__)
            total = math.log(sum(math.exp(logits[t]) for t in allowed))
            logprobs.append(logits[best] - total)
            request.token_ids.append(best)
            is_stop = best in (STOP, *self.params.stop_token_ids)
            if is_stop or request.append_text(best, VOCABULARY.token_bytes[best] or b""):
                reason = "stop"
            elif request.num_output_tokens == self.params.max_tokens:
                reason = "length"
        request.end_text()
        return Alone(request.output_token_ids, logprobs, request.text.text, reason)


PARAMS = st.builds(
    lambda limits, edits, **rest: SamplingParams(**limits, **edits, **rest),
    limits=st.sampled_from(LIMITS),
    edits=st.sampled_from(EDITS),
    max_tokens=st.sampled_from([4, 12, 20]),
    stop=st.sampled_from([(), (), ("ca",), ("b", "aa")]),
    ignore_eos=st.booleans(),
    speculative=st.sampled_from([True, True, True, False]),
    speculation=st.sampled_from(
        [
            Speculation(),
            Speculation(),
            Speculation(num_speculative_tokens=1),
            Speculation(num_speculative_tokens=99, drafters=("ngram", "forced")),
            Speculation(drafters=("prediction",)),
        ]
    ),
    logprobs=st.none() | st.sampled_from([0, 2]),
    logprobs_mode=st.just("processed"),
    prompt_logprobs=st.none() | st.just(1),
    token_details=st.none() | st.just(2),
)
ASKS = st.builds(
    Ask,
    texts=st.none()
    | st.lists(st.text("abc", min_size=1, max_size=7), min_size=1, max_size=4).map(tuple),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=9).map(tuple),
    params=PARAMS,
    reasoning=st.none()
    | st.tuples(st.sampled_from([BEFORE, REASONING]), st.sampled_from([None, 0, 3])),
    prediction=st.none() | st.lists(st.integers(0, 3), max_size=8).map(tuple),
    arrives=st.integers(0, 6),
    compiled_after=st.integers(0, 5),
    cancelled_at=st.sampled_from([None, None, None, 9, 15]),
)
METHODS = (
    *("hybrid", "hybrid", "suffix", "ngram", "ngram_gpu", "prediction", "forced"),
    "custom_class",
)
PACES = {
    "by turns": lambda seed: FicklePace(0.25, seed),
    "looked at afterwards": lambda seed: HopefulPace(),
    "as measured": lambda seed: Pace(),
}


def make_toy(config: EngineConfig, pace: str | None, seed: int) -> ToyEngine:
    """The plain engine, or with a pace one of the GPU's sampler that runs ahead."""
    # now there is time to walk requests, and now none
    chance = random.Random(seed)
    drafter = make_drafter(
        VOCABULARY, config.speculative, step_seconds=lambda _: chance.choice([0.0, 1e9])
    )
    table = config.speculative.num_speculative_tokens_per_batch_size
    lengths: DraftLengths | None = None if table is None else TableLengths(table)
    if table is None and chance.random() < 0.5:
        lengths = AdaptiveLengths(CostModel({1: 1.0, 8: chance.choice([1.0, 4.0])}))
    if pace is None:
        return ToyEngine(config, drafter, masker=Masker(VOCABULARY), draft_lengths=lengths)
    last = torch.zeros(400, dtype=torch.int64)
    sampler = DeviceSampler(VOCABULARY, [400], 4, last, Lanes(last.device), lambda rows: rows, 3)
    return ToyEngine(
        config,
        drafter,
        masker=Masker(VOCABULARY),
        sampler=sampler,
        runs_ahead=True,
        pace=PACES[pace](seed),
        draws_early=pace != "as measured",
        draft_lengths=lengths,
    )


@settings(max_examples=120, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=5),
    pace=st.none() | st.sampled_from(sorted(PACES)),
    method=st.sampled_from(METHODS),
    num_speculative_tokens=st.sampled_from([1, 4, 4, 50]),
    table=st.none() | st.just([(1, 1, 1), (2, 2, 0)]),
    block_size=st.integers(1, 4),
    num_more_blocks=st.sampled_from([0, 5, 60]),
    budget=st.sampled_from([1, 5, 24, 200]),
    num_draft_tokens=st.sampled_from([0, 3, 64]),
    preempted_at=st.lists(st.integers(0, 30), max_size=4),
    seed=st.integers(0, 99),
)
def test_each_request_writes_what_it_would_write_alone(
    asks: list[Ask],
    pace: str | None,
    method: str,
    num_speculative_tokens: int,
    table: list[tuple[int, int, int]] | None,
    block_size: int,
    num_more_blocks: int,
    budget: int,
    num_draft_tokens: int,
    preempted_at: list[int],
    seed: int,
) -> None:
    config = EngineConfig(
        block_size=block_size,
        num_blocks=-(-30 // block_size) + num_more_blocks,
        max_num_requests=3,
        max_num_batched_tokens=budget,
        max_num_draft_tokens=num_draft_tokens,
        speculative=SpeculativeConfig(
            method=method,
            model="tests.drafters.wild.Anything" if method == "custom_class" else None,
            num_speculative_tokens=num_speculative_tokens,
            num_speculative_tokens_per_batch_size=table,
        ),
    )
    toy = make_toy(config, pace, seed)
    requests = [ask.request(index) for index, ask in enumerate(asks)]
    expected = [ask.alone() for ask in asks]
    for ask, request, alone in zip(asks, requests, expected, strict=True):
        if ask.prediction is None:
            request.prediction_token_ids = alone.token_ids
    for moment in range(40):
        for ask, request in zip(asks, requests, strict=True):
            if moment == ask.arrives:
                toy.scheduler.add(request)
            if request.compiled is not None and moment == ask.arrives + ask.compiled_after:
                request.compiled.set_result(ToyGrammar(ask.texts or ()))
            if moment == ask.cancelled_at:
                toy.scheduler.fail(request, Cancelled("enough"))
            if moment in preempted_at and request.status is RequestStatus.RUNNING:
                toy.scheduler.preempt(request)
        toy.engine.step()
    toy.run(requests)
    for _ in range(2):  # steps that run ahead of the end
        toy.engine.step()
    assert toy.block_manager.num_free_blocks == toy.block_manager.num_blocks
    for alone, request in zip(expected, requests, strict=True):
        check(alone, request)


def check(alone: Alone, request: Request) -> None:
    written, params, stats = request.output_token_ids, request.params, request.stats
    if isinstance(request.error, Cancelled):
        assert written == alone.token_ids[: len(written)]
        return
    assert (written, request.text.text, request.finish_reason) == (
        alone.token_ids,
        alone.text,
        alone.reason,
    )
    assert isinstance(request.error, NothingAllowed) == (alone.reason == "error")
    if params.logprobs is not None:
        assert [one.token_id for one in request.logprobs] == written
        told = [one.logprob for one in request.logprobs]
        assert told == pytest.approx(alone.logprobs, abs=1e-3)
    if params.token_details is not None:
        assert [one.token_id for one in request.token_details] == written
        told = [one.masked_logprob for one in request.token_details]
        assert told == pytest.approx(alone.logprobs, abs=1e-3)
    if params.prompt_logprobs is not None and written:
        read = [one.token_id for one in request.prompt_logprobs]
        assert read == [*request.prompt_token_ids[1:]]
    # a step brings one token beside the accepted ones, but where it ends the text or one is refused
    num_missing = stats.num_accepted + stats.num_target_steps - len(written)
    assert 0 <= num_missing <= 1 + stats.num_refused
    assert stats.num_accepted + stats.num_invalid <= stats.num_drafted
    assert params.speculative or not stats.num_drafted
    assert stats.num_drafted == sum(stats.drafted_by_source.values())
    assert stats.num_accepted == sum(stats.accepted_by_source.values())
    for source, num_accepted in stats.accepted_by_source.items():
        assert num_accepted <= stats.drafted_by_source[source]
    for lengths, num_tokens, per_position in (
        (stats.draft_lengths, stats.num_drafted, stats.drafted_per_position),
        (stats.accepted_lengths, stats.num_accepted, stats.accepted_per_position),
    ):
        assert sum(lengths) == stats.num_drafts
        assert sum(per_position) == num_tokens
        assert per_position == sorted(per_position, reverse=True)
    most = params.speculation.num_speculative_tokens
    assert most is None or len(stats.draft_lengths) <= most + 1
