"""The two mask calls of an engine step: fill rows before sampling, advance matchers after."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import repeat

import torch

from structspec.bitmask import allocate_bitmask, first_logits_rows
from structspec.engine.batch import Batch, Draft, Mask, SamplerOutput
from structspec.errors import EngineError
from structspec.grammars.base import Backend, Bitmask, CompiledGrammar, FillJob, Matcher
from structspec.grammars.drafts import fill_stop_row, is_allowed, take_each
from structspec.request import Request
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_NO_ROWS = torch.zeros(0, dtype=torch.int64)


class Masker:
    """Fills the bitmask rows of constrained requests and keeps their matchers in step.

    Used by the engine's thread alone. A request whose matcher fails gets an EngineError in
    `request.error`, to be dropped before its tokens are used; the others are not touched.
    """

    def __init__(self, vocabulary: Vocabulary, *, is_pinned: bool = False) -> None:
        """With `is_pinned` rows stand in memory that a GPU copies from by itself."""
        self._vocabulary = vocabulary
        self._is_pinned = is_pinned
        self._bitmask = allocate_bitmask(0, vocabulary.vocab_size)  # grows, is reused
        self._stop_row = allocate_bitmask(1, vocabulary.vocab_size)
        fill_stop_row(self._stop_row, 0, vocabulary.stop_token_ids)
        # the batch last filled, and what was filled for each of its requests
        self._filled: Batch | None = None
        self._jobs: dict[int, FillJob] = {}

    def fill(self, batch: Batch, draft: Draft) -> Mask:
        """Mask rows for every guess and bonus position; matchers move behind certain tokens only.

        The bitmask is a view of a buffer that the next call overwrites. Requests that have ended
        since the step was planned get no rows.
        """
        guesses = draft.guesses
        num_valid = [*map(len, guesses)]
        self._filled, self._jobs = batch, {}
        requests = [scheduled.request for scheduled in batch.requests]
        if all(request.matcher is None for request in requests):
            return Mask(torch.from_numpy(self._bitmask[:0]), _NO_ROWS, num_valid)
        logits_rows = first_logits_rows(num_valid, [s.is_sampled for s in batch.requests])
        num_certain = draft.num_certain
        rows: list[int] = []
        jobs: dict[int, FillJob] = {}
        for index, request in enumerate(requests):
            if request.matcher is None or not batch.requests[index].is_sampled:
                continue
            if num_certain[index]:
                _accept(request, draft.token_ids[index][: num_certain[index]])
            if _has_ended(request):
                continue
            jobs[index] = FillJob(request.matcher, len(rows), guesses[index])
            rows += range(logits_rows[index], logits_rows[index] + 1 + num_valid[index])
        bitmask = self._buffer(len(rows))
        for backend, indices in _by_backend(requests, jobs).items():
            group = [(requests[i], jobs[i]) for i in indices]
            counts = self._fill_group(backend, group, bitmask)
            for index, count in zip(indices, counts, strict=True):
                num_valid[index] = count
        self._jobs = jobs
        # of the pinned memory itself: a copy from it need not be waited for
        return Mask(torch.from_numpy(bitmask), torch.tensor(rows, dtype=torch.int64), num_valid)

    def take_back(self, batch: Batch, draft: Draft) -> None:
        """Move matchers back before the certain tokens that `fill` has moved them behind."""
        for scheduled, num_certain in zip(batch.requests, draft.num_certain, strict=True):
            request = scheduled.request
            if request.matcher is None or not num_certain or _has_ended(request):
                continue
            try:
                request.matcher.rollback(num_certain)
            except Exception as error:
                _fail(request, error)

    def advance(self, batch: Batch, output: SamplerOutput) -> None:
        """Accept each constrained request's new tokens; a refusal is our fault and fails it."""
        requests = [scheduled.request for scheduled in batch.requests]
        shown: list[int] = []
        for index, token_ids in enumerate(output.token_ids):
            if batch is self._filled and self._is_shown(requests[index], index, token_ids):
                shown.append(index)
            else:
                _accept(requests[index], token_ids)
        for backend, indices in _by_backend(requests, shown).items():
            moves = [(_matcher(requests[i]), output.token_ids[i]) for i in indices]
            for index, error in zip(indices, backend.take_shown(moves), strict=True):
                if error is not None:
                    _fail(requests[index], error)

    def _is_shown(self, request: Request, index: int, token_ids: Sequence[int]) -> bool:
        """Whether its rows, as they were filled last, say that the grammar takes these tokens."""
        job = self._jobs.get(index)
        if job is None or len(token_ids) > 1 + len(job.draft_token_ids) or _has_ended(request):
            return False
        rows = range(job.first_row, job.first_row + len(token_ids))
        return all(map(is_allowed, repeat(self._bitmask), rows, token_ids))

    def _buffer(self, num_rows: int) -> Bitmask:
        """Rows with whatever was in them."""
        if num_rows > len(self._bitmask):
            shape = (2 * num_rows, self._vocabulary.num_words)
            rows = torch.zeros(shape, dtype=torch.int32, pin_memory=self._is_pinned)
            self._bitmask = rows.numpy()
        return self._bitmask[:num_rows]

    def _fill_group(
        self, backend: Backend, group: Sequence[tuple[Request, FillJob]], bitmask: Bitmask
    ) -> list[int]:
        """Fill one backend's jobs; where that fails, one by one, so that only the culprits fail."""
        start = time.perf_counter()
        for _, job in group:
            if job.draft_token_ids:  # not all of its rows need be filled, and any may be sampled
                self._allow_the_end(job, bitmask)
        try:
            counts = backend.fill_drafts([job for _, job in group], bitmask)
        except Exception as error:
            if len(group) == 1:
                request, job = group[0]
                _fail(request, error)
                self._allow_the_end(job, bitmask)
                return [0]
            return [self._fill_group(backend, [member], bitmask)[0] for member in group]
        num_rows = sum(1 + len(job.draft_token_ids) for _, job in group)
        ms_per_row = (time.perf_counter() - start) * 1e3 / num_rows
        for request, job in group:
            request.stats.mask_ms += ms_per_row * (1 + len(job.draft_token_ids))
        return counts

    def _allow_the_end(self, job: FillJob, bitmask: Bitmask) -> None:
        bitmask[job.first_row : job.first_row + 1 + len(job.draft_token_ids)] = self._stop_row


def _has_ended(request: Request) -> bool:
    return request.is_finished or request.error is not None


def _accept(request: Request, token_ids: Sequence[int]) -> None:
    if request.matcher is None or not token_ids or _has_ended(request):
        return
    (error,) = take_each([(request.matcher, token_ids)])
    if error is not None:
        _fail(request, error)


def _by_backend(requests: Sequence[Request], indices: Iterable[int]) -> dict[Backend, list[int]]:
    groups: dict[Backend, list[int]] = {}
    found: dict[Future[CompiledGrammar], list[int]] = {}
    for index in indices:
        compiled = requests[index].compiled
        assert compiled is not None, "a matcher without its grammar"
        if compiled not in found:  # to ask a future takes a lock
            found[compiled] = groups.setdefault(compiled.result().backend, [])
        found[compiled].append(index)
    return groups


def _matcher(request: Request) -> Matcher:
    assert request.matcher is not None
    return request.matcher


def _fail(request: Request, error: Exception) -> None:
    """End one request; what went wrong is chained to its error."""
    logger.error("the grammar of request %d failed", request.request_id, exc_info=error)
    request.error = EngineError(f"the grammar failed: {error}")
    request.error.__cause__ = error
