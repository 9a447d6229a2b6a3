"""The two mask calls of an engine step: fill rows before sampling, advance matchers after."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import torch

from structspec.bitmask import allocate_bitmask, first_logits_rows
from structspec.engine.batch import Batch, Draft, Mask, SamplerOutput
from structspec.errors import EngineError
from structspec.grammars.base import Backend, Bitmask, FillJob
from structspec.grammars.drafts import fill_stop_row
from structspec.request import Request
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")


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

    def fill(self, batch: Batch, draft: Draft) -> Mask:
        """Mask rows for every guess and bonus position; matchers move behind certain tokens only.

        The bitmask is a view of a buffer that the next call overwrites. Requests that have ended
        since the step was planned get no rows.
        """
        guesses = draft.guesses
        num_valid = [len(token_ids) for token_ids in guesses]
        logits_rows = first_logits_rows(num_valid, [s.is_sampled for s in batch.requests])
        rows: list[int] = []
        jobs: dict[int, FillJob] = {}
        for index, scheduled in enumerate(batch.requests):
            request = scheduled.request
            if not scheduled.is_sampled:
                continue
            _accept(request, draft.token_ids[index][: draft.num_certain[index]])
            if request.matcher is None or _has_ended(request):
                continue
            jobs[index] = FillJob(request.matcher, len(rows), guesses[index])
            rows += range(logits_rows[index], logits_rows[index] + 1 + num_valid[index])
        bitmask = self._buffer(len(rows))
        requests = [scheduled.request for scheduled in batch.requests]
        for backend, indices in _by_backend(requests, jobs).items():
            group = [(requests[i], jobs[i]) for i in indices]
            for index, count in zip(indices, _fill_group(backend, group, bitmask), strict=True):
                num_valid[index] = count
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
        for scheduled, token_ids in zip(batch.requests, output.token_ids, strict=True):
            _accept(scheduled.request, token_ids)

    def _buffer(self, num_rows: int) -> Bitmask:
        """Rows that allow the stop tokens alone, so that one nobody fills can still be sampled."""
        if num_rows > len(self._bitmask):
            shape = (2 * num_rows, self._vocabulary.num_words)
            rows = torch.zeros(shape, dtype=torch.int32, pin_memory=self._is_pinned)
            self._bitmask = rows.numpy()
        bitmask = self._bitmask[:num_rows]
        bitmask[:] = self._stop_row
        return bitmask


def _has_ended(request: Request) -> bool:
    return request.is_finished or request.error is not None


def _accept(request: Request, token_ids: Sequence[int]) -> None:
    if request.matcher is None or not token_ids or _has_ended(request):
        return
    for token_id in token_ids:
        try:
            is_taken = request.matcher.accept(token_id)
        except Exception as error:
            _fail(request, error)
            return
        if not is_taken:
            _fail(request, AssertionError(f"token {token_id} was written but is forbidden"))
            return


def _by_backend(requests: Sequence[Request], jobs: dict[int, FillJob]) -> dict[Backend, list[int]]:
    groups: dict[Backend, list[int]] = {}
    for index in jobs:
        compiled = requests[index].compiled
        assert compiled is not None, "a matcher without its grammar"
        groups.setdefault(compiled.result().backend, []).append(index)
    return groups


def _fill_group(
    backend: Backend, group: Sequence[tuple[Request, FillJob]], bitmask: Bitmask
) -> list[int]:
    """Fill one backend's jobs; where that fails, one by one, so that only the culprits fail."""
    start = time.perf_counter()
    try:
        counts = backend.fill_drafts([job for _, job in group], bitmask)
    except Exception as error:
        if len(group) == 1:
            _fail(group[0][0], error)
            return [0]
        return [_fill_group(backend, [member], bitmask)[0] for member in group]
    num_rows = sum(1 + len(job.draft_token_ids) for _, job in group)
    ms_per_row = (time.perf_counter() - start) * 1e3 / num_rows
    for request, job in group:
        request.stats.mask_ms += ms_per_row * (1 + len(job.draft_token_ids))
    return counts


def _fail(request: Request, error: Exception) -> None:
    """End one request; what went wrong is chained to its error."""
    logger.error("the grammar of request %d failed", request.request_id, exc_info=error)
    request.error = EngineError(f"the grammar failed: {error}")
    request.error.__cause__ = error
