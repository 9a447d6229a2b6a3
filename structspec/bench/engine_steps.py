"""Where a step's time goes, and how it grows with requests, context and guesses.

Only steps count in which every request writes: those behind the last that reads a prompt, and
before the first that ends a request.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from structspec.bench.engine_insides import engine_of, most_guesses, network_of, synchronize
from structspec.bench.engine_runs import (
    Figure,
    Patience,
    prepare,
    run_prepared,
    with_random_prompt,
)
from structspec.bench.engine_stopwatch import DEVICE_PARTS, HOST_PARTS, Step, Stopwatch
from structspec.bench.engine_workload import Workload, make_jobs
from structspec.drafters.base import count_slots
from structspec.engine.batch import Batch, Draft, Drafting, guessed
from structspec.engine.pace import Pace
from structspec.service import Prepared, Service

_MAX_CONTEXT_TOKENS = 80_000  # of all requests: reading them is not what is measured
_SHARE_KEPT = 0.95  # the slowest steps are the machine's, not the engine's
_PLAIN = ("x", {"temperature": 0.0, "ignore_eos": True})


class JunkDrafter:
    """Random guesses, so many per request: what verifying costs when none holds."""

    def __init__(self, num_guesses: int, vocab_size: int) -> None:
        self._num_guesses = num_guesses
        self._token_ids = np.random.default_rng(0).integers(vocab_size, size=10_000).tolist()
        self._next = itertools.count()

    def propose(self, batch: Batch) -> Draft:
        """As many as there are slots for, at most."""
        return guessed(
            [
                self._take(min(count_slots(one), self._num_guesses) if one.may_guess else 0)
                for one in batch.requests
            ]
        )

    def _take(self, num_tokens: int) -> list[int]:
        return [self._token_ids[next(self._next) % len(self._token_ids)] for _ in range(num_tokens)]


class _Waiting(Pace):
    """Always guesses: each step waits for the one before it to be read."""

    @property
    def drafting(self) -> Drafting:
        return Drafting.GUESSES

    def must_wait(self, batch: Batch, draft: Draft) -> bool:
        return True


def run_steps(
    service: Service,
    workload: Workload,
    sizes: Sequence[int],
    *,
    contexts: Sequence[int],
    guesses: Sequence[int],
    max_tokens: int,
    patience: Patience,
) -> Iterator[Figure]:
    """By test, with and without drafts; then by context; then by guesses of a junk drafter."""
    for size, test, is_speculative in itertools.product(
        sizes, ("plain", "same", "regex"), (False, True)
    ):
        jobs = make_jobs(workload, test, size, max_tokens)
        for _ in range(2):  # the first compiles grammars, and any kernel that is left
            prepared = [prepare(service, job, is_speculative=is_speculative) for job in jobs]
            steps = _record(service, prepared)
        told = {"test": test, "requests": size, "is_speculative": is_speculative}
        yield {"part": "steps", "by": "test", **told, **summarize(steps)}
        if patience.is_over:
            return
    for size, context in itertools.product((1, 8), contexts):
        if context + max_tokens > service.max_model_len or size * context > _MAX_CONTEXT_TOKENS:
            continue
        steps = _record(service, _plain(service, size, context, max_tokens, is_speculative=False))
        yield {"part": "steps", "by": "context", "requests": size, "context": context} | summarize(
            steps
        )
        if patience.is_over:
            return
    for size, num_guesses in itertools.product(sizes, guesses):
        if num_guesses > most_guesses(service, size):
            continue
        with _junk_drafts(service, num_guesses):
            for _ in range(2):
                prepared = _plain(service, size, 64, max_tokens, is_speculative=True)
                steps = _record(service, prepared)
        told = {"requests": size, "guesses": num_guesses}
        yield {"part": "steps", "by": "guesses", **told, **summarize(steps)}
        if patience.is_over:
            return


def _plain(
    service: Service, num_requests: int, context: int, max_tokens: int, *, is_speculative: bool
) -> list[Prepared]:
    prompt, options = _PLAIN
    job = (prompt, {**options, "max_tokens": max_tokens})
    return [
        with_random_prompt(service, job, context, seed=place, is_speculative=is_speculative)
        for place in range(num_requests)
    ]


@contextlib.contextmanager
def _junk_drafts(service: Service, num_guesses: int) -> Iterator[None]:
    engine = engine_of(service)
    before = engine._drafter, engine._pace, engine._outlook
    engine._drafter = JunkDrafter(num_guesses, service.vocabulary.vocab_size)
    engine._outlook = None
    if num_guesses:
        engine._pace = _Waiting()
    try:
        yield
    finally:
        engine._drafter, engine._pace, engine._outlook = before


def _record(service: Service, prepared: Sequence[Prepared]) -> list[Step]:
    for one in prepared:
        if one.request.compiled is not None:
            one.request.compiled.result()  # all start at once
    device = network_of(service).device
    with Stopwatch(engine_of(service), device) as stopwatch:
        run_prepared(service, prepared)
        synchronize(device)
    return stopwatch.steps


def summarize(steps: Sequence[Step]) -> Figure:
    """Means over the steps that count, in milliseconds; without the first and the slowest of them.

    Empty where too few count.
    """
    begins = [index + 1 for index, step in enumerate(steps) if step.has_prompts]
    begin = max(begins, default=0) + 1  # +1: that one waits for the last prompt
    ends = [index for index, step in enumerate(steps) if step.has_finished]
    end = min(ends, default=len(steps)) - 1
    chosen = [
        (steps[index + 1].began - steps[index].began, steps[index]) for index in range(begin, end)
    ]
    if len(chosen) < 3:
        return {"num_steps": len(chosen)}
    kept = sorted(chosen, key=lambda one: one[0])[: max(1, int(len(chosen) * _SHARE_KEPT))]
    wall = statistics.mean(seconds for seconds, _ in kept)
    host = {part: statistics.mean(step.seconds[part] for _, step in kept) for part in HOST_PARTS}
    host["other"] = wall - sum(host.values())
    device = {
        part: statistics.mean(step.device_s(part) for _, step in kept) * 1e3
        for part in DEVICE_PARTS
        if all(step.spans for _, step in kept)
    }
    return {
        "num_steps": len(kept),
        "step_ms": wall * 1e3,
        "step_ms_median": statistics.median(seconds for seconds, _ in kept) * 1e3,
        "requests_per_step": statistics.mean(step.num_requests for _, step in kept),
        "drafts_per_step": statistics.mean(step.num_drafts for _, step in kept),
        "host_ms": {part: seconds * 1e3 for part, seconds in host.items()},
        "device_ms": device,
    }
