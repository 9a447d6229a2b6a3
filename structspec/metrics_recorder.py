"""Counts what an engine does: by its own thread, to be read from any."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from structspec.metrics import GrammarMetrics, Histogram, Metrics, SpecDecodeMetrics
from structspec.request import Request, RequestStatus

_FINISHED_REASONS = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}
_FIRST_TOKEN_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_GAP_BOUNDS = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
_REQUEST_BOUNDS = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 480.0, 960.0),
)
COMPILE_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5, 10)


class OpenHistogram:
    """A histogram that still grows."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Add an observation, or several of the same value."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def frozen(self, more: Sequence[float] = ()) -> Histogram:
        """As it is now, with some observations that it does not keep."""
        copy = OpenHistogram(self._bounds)
        copy._counts, copy._sum = self._counts.copy(), self._sum
        for value in more:
            copy.observe(value)
        return Histogram(self._bounds, tuple(copy._counts), copy._sum)


NO_GRAMMARS = GrammarMetrics(0, 0, 0, 0, OpenHistogram(COMPILE_BOUNDS).frozen())


class _Sums:
    """What requests' own statistics come to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.drafted: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.draft_lengths: list[int] = []
        self.accepted_lengths: list[int] = []

    def add(self, request: Request) -> None:
        # Lists and dicts are copied in one piece each: the engine's thread goes on meanwhile.
        stats, counts = request.stats, self.counts
        if stats.first_token_s is not None:
            counts["prompt_tokens"] += request.num_prompt_tokens
        counts["cached"] += stats.num_cached_tokens
        counts["generation_tokens"] += request.num_output_tokens
        counts["preemptions"] += stats.num_preemptions
        counts["refused"] += stats.num_refused
        counts["drafts"] += stats.num_drafts
        counts["drafted"] += stats.num_drafted
        counts["accepted"] += stats.num_accepted
        counts["invalid"] += stats.num_invalid
        self.drafted.update(stats.drafted_by_source.copy())
        self.accepted.update(stats.accepted_by_source.copy())
        _add(self.draft_lengths, stats.draft_lengths.copy())
        _add(self.accepted_lengths, stats.accepted_lengths.copy())

    def copy(self) -> _Sums:
        copy = _Sums()
        copy.counts, copy.drafted = self.counts.copy(), self.drafted.copy()
        copy.accepted = self.accepted.copy()
        copy.draft_lengths = self.draft_lengths.copy()
        copy.accepted_lengths = self.accepted_lengths.copy()
        return copy

    def as_spec_decode(self) -> SpecDecodeMetrics:
        counts = self.counts
        return SpecDecodeMetrics(
            num_drafts=counts["drafts"],
            num_draft_tokens=counts["drafted"],
            num_accepted_tokens=counts["accepted"],
            num_invalid_tokens=counts["invalid"],
            draft_lengths=tuple(self.draft_lengths),
            accepted_lengths=tuple(self.accepted_lengths),
            draft_tokens_by_source=dict(self.drafted),
            accepted_tokens_by_source=dict(self.accepted),
            num_drafter_faults=counts["drafter_faults"],
        )


class MetricsRecorder:
    """Keeps the sums of finished requests, and adds those that run when it is asked.

    So a step costs next to nothing: only the times between tokens are counted there. `snapshot` may
    be called by any thread, all else by the engine's; what counts never goes back.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        kv_cache_usage: Callable[[], float] = lambda: 0.0,
        grammar: Callable[[], GrammarMetrics] = lambda: NO_GRAMMARS,
    ) -> None:
        self._clock = clock
        self._kv_cache_usage = kv_cache_usage
        self._grammar = grammar
        self._started_at = clock()
        self._lock = threading.Lock()  # of what a finished request moves between
        self._unfinished: dict[Request, None] = {}
        self._sums = _Sums()
        self._finished = dict.fromkeys(_FINISHED_REASONS.values(), 0)
        self._queue = OpenHistogram(_REQUEST_BOUNDS)
        self._first_token = OpenHistogram(_FIRST_TOKEN_BOUNDS)
        self._gaps = OpenHistogram(_GAP_BOUNDS)
        self._gaps_per_token = OpenHistogram(_GAP_BOUNDS)
        self._per_token = OpenHistogram(_GAP_BOUNDS)
        self._latency = OpenHistogram(_REQUEST_BOUNDS)

    def added(self, request: Request) -> None:
        """A request was queued."""
        with self._lock:
            self._unfinished[request] = None

    def begun(self, request: Request) -> None:
        """It has KV blocks now; again, where it was preempted."""
        if request.stats.queue_s is None:
            request.stats.queue_s = self._clock() - request.arrival_time
            self._queue.observe(request.stats.queue_s)

    def finished(self, request: Request) -> None:
        """It has ended, for the reason that it says."""
        assert request.finish_reason is not None
        with self._lock:
            self._unfinished.pop(request, None)
            self._sums.add(request)
            self._finished[_FINISHED_REASONS[request.finish_reason]] += 1
            first_token_s, num_more = request.stats.first_token_s, request.num_output_tokens - 1
            if first_token_s is not None:
                self._first_token.observe(first_token_s)
                if num_more > 0:
                    seconds = request.token_time - request.arrival_time - first_token_s
                    self._per_token.observe(seconds / num_more)
            self._latency.observe(self._clock() - request.arrival_time)

    def drafter_failed(self) -> None:
        """A step, or one request of it, has no drafts because the drafter failed."""
        with self._lock:
            self._sums.counts["drafter_faults"] += 1

    def got_tokens(self, now: float, gaps: Mapping[tuple[float, int], int]) -> None:
        """Requests got tokens now: how many of them so many, their last ones at a moment before.

        At 0 are those that had none yet.
        """
        for (moment, num_tokens), count in gaps.items():
            if moment and num_tokens:
                self._gaps.observe(now - moment, count)
                self._gaps_per_token.observe((now - moment) / num_tokens, count * num_tokens)

    def snapshot(self) -> Metrics:
        """Everything as it is now, that of unfinished requests included."""
        with self._lock:
            unfinished = list(self._unfinished)
            sums, finished = self._sums.copy(), self._finished.copy()
            for request in unfinished:
                sums.add(request)
            firsts = [r.stats.first_token_s for r in unfinished]
            first_token = self._first_token.frozen([s for s in firsts if s is not None])
            latency, per_token = self._latency.frozen(), self._per_token.frozen()
        counts = sums.counts
        num_running = sum(r.status is RequestStatus.RUNNING for r in unfinished)
        return Metrics(
            seconds=self._clock() - self._started_at,
            num_requests_running=num_running,
            num_requests_waiting=len(unfinished) - num_running,
            num_grammar_queue_reqs=sum(r.is_grammar_pending for r in unfinished),
            kv_cache_usage_perc=self._kv_cache_usage(),
            prompt_tokens=counts["prompt_tokens"],
            prefix_cache_hits=counts["cached"],
            generation_tokens=counts["generation_tokens"],
            num_preemptions=counts["preemptions"],
            num_refused_tokens=counts["refused"],
            request_success=finished,
            spec_decode=sums.as_spec_decode(),
            request_queue_time_seconds=self._queue.frozen(),
            time_to_first_token_seconds=first_token,
            inter_token_latency_seconds=self._gaps.frozen(),
            inter_token_latency_per_token_seconds=self._gaps_per_token.frozen(),
            request_time_per_output_token_seconds=per_token,
            e2e_request_latency_seconds=latency,
            grammar=self._grammar(),
        )


def _add(sums: list[int], more: Sequence[int]) -> None:
    sums.extend([0] * (len(more) - len(sums)))
    for place, count in enumerate(more):
        sums[place] += count
