"""The two mask calls of an engine step: fill rows before sampling, advance matchers after."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from structspec.bitmask import allocate_bitmask, first_logits_rows
from structspec.engine.batch import Batch, Draft, Mask, SamplerOutput, no_mask
from structspec.errors import EngineError, NothingAllowed
from structspec.grammars.base import (
    BatchMatching,
    Bitmask,
    CompiledGrammar,
    DeadEnd,
    FillJob,
    Matcher,
    Move,
    Row,
)
from structspec.grammars.drafts import count_taken, fill_stop_row, is_allowed, take_each
from structspec.grammars.wrapping import WrappedMatching
from structspec.request import Request
from structspec.vocabulary import Vocabulary
from structspec.wide_masks import WideFinder, WideMasks

logger = logging.getLogger("structspec")


class Masker:
    """Fills the bitmask rows of constrained requests and keeps their matchers in step.

    Used by the engine's thread alone. A request whose matcher fails gets an EngineError in
    `request.error`, to be dropped before its tokens are used; the others are not touched. One whose
    text has no way on gets a NothingAllowed there, which ends it behind the tokens before.
    """

    def __init__(self, vocabulary: Vocabulary, *, is_pinned: bool = False) -> None:
        """With `is_pinned` rows stand in memory that a GPU copies from by itself."""
        self._vocabulary = vocabulary
        self._is_pinned = is_pinned
        # they grow, and are used in turns: what a GPU copies from must stay a while
        self._bitmasks = [allocate_bitmask(0, vocabulary.vocab_size) for _ in range(2)]
        self._finder = WideFinder()
        self._wide: list[Sequence[Row]] = [(), ()]  # the wide rows at their heads
        self._turn = 0
        # by turn: wide rows that stood alone there, the buffer they stood in, and both as tensors
        self._wide_only: list[tuple[WideMasks, Bitmask, tuple[Tensor, Tensor, Tensor]] | None]
        self._wide_only = [None, None]
        self._wrapped: dict[BatchMatching | None, BatchMatching] = {}
        self._stop_row = allocate_bitmask(1, vocabulary.vocab_size)
        fill_stop_row(self._stop_row, 0, vocabulary.stop_token_ids)

    def fill(self, batch: Batch, draft: Draft, is_masked: Sequence[bool] | None = None) -> Mask:
        """Rows for every guess and bonus position; matchers move behind certain tokens only.

        Of the requests that are to be masked (None: all constrained ones), those that have ended
        since the step was planned, and stale ones, get none. Those that are not share the wide row
        of their grammar, if it has one, or for their first token its row at the start, and their
        matchers do not move. The bitmask is a view of a buffer that the call after the next
        overwrites.
        """
        guesses = draft.guesses
        num_valid = [*map(len, guesses)]
        if is_masked is None:
            is_masked = [s.request.matcher is not None and s.is_sampled for s in batch.requests]
        wide = self._finder.find(batch, is_masked, num_valid, _take_starts(batch, draft, is_masked))
        num_wide = len(wide.bitmask_rows)
        if not any(is_masked):
            return self._only_wide(wide, num_valid)
        logits_rows = first_logits_rows(num_valid, [s.is_sampled for s in batch.requests])
        requests = [scheduled.request for scheduled in batch.requests]
        rows: list[int] = []
        jobs: dict[int, FillJob] = {}
        for index in _masked(batch, is_masked):
            request, num_certain = requests[index], draft.num_certain[index]
            _accept(request, draft.token_ids[index][:num_certain])
            if _has_ended(request):
                continue
            jobs[index] = FillJob(_matcher(request), num_wide + len(rows), guesses[index])
            request.needs_mask = False
            request.num_unseen = 1
            rows += range(logits_rows[index], logits_rows[index] + 1 + num_valid[index])
        bitmask = self._buffer(num_wide + len(rows))
        self._put_wide(wide.bitmask_rows, bitmask)
        for backend, indices in self._by_backend(requests, jobs).items():
            group = [(requests[i], jobs[i]) for i in indices]
            counts = self._fill_group(backend, group, bitmask)
            for index, count in zip(indices, counts, strict=True):
                num_valid[index] = count
        dead_ends = frozenset(index for index in jobs if _is_lost(requests[index]))
        places = np.arange(num_wide, len(bitmask))
        return Mask(
            torch.from_numpy(bitmask),  # the pinned memory itself: a copy need not be waited for
            torch.from_numpy(np.concatenate((wide.rows, np.array(rows, np.int64)))),
            torch.from_numpy(np.concatenate((wide.places, places))),
            num_valid,
            jobs,
            wide.bitmask_rows,
            dead_ends,
        )

    def _only_wide(self, wide: WideMasks, num_valid: list[int]) -> Mask:
        """The mask of a step without rows of its own; made once for the same wide rows."""
        if not wide.bitmask_rows:
            return no_mask(self._vocabulary.num_words, num_valid)
        bitmask = self._buffer(len(wide.bitmask_rows))
        self._put_wide(wide.bitmask_rows, bitmask)
        known = self._wide_only[self._turn]
        if known is None or known[0] is not wide or known[1] is not self._bitmasks[self._turn]:
            tensors = (
                torch.from_numpy(bitmask),
                torch.from_numpy(wide.rows),
                torch.from_numpy(wide.places),
            )
            known = self._wide_only[self._turn] = (wide, self._bitmasks[self._turn], tensors)
        return Mask(*known[2], num_valid, wide=wide.bitmask_rows)

    def take_back(self, batch: Batch, draft: Draft, is_masked: Sequence[bool]) -> None:
        """Move matchers back before the certain tokens that `fill` has moved them behind."""
        for index in _masked(batch, is_masked):
            request, num_certain = batch.requests[index].request, draft.num_certain[index]
            if not num_certain or _has_ended(request):
                continue
            try:
                _matcher(request).rollback(num_certain)
            except Exception as error:
                _fail(request, error)

    def advance(
        self, batch: Batch, draft: Draft, mask: Mask, output: SamplerOutput
    ) -> SamplerOutput:
        """Move each matcher over its request's new tokens, and say what stands of them.

        What a masked row's grammar refuses is our fault and fails the request. Of tokens drawn
        without a mask those before the first that is refused stand, and if that is the last of them
        the first of its runners-up that is taken. At a dead end the tokens before it stand.
        """
        requests = [scheduled.request for scheduled in batch.requests]
        shown: list[int] = []
        unseen: list[int] = []
        lost = {index: 0 for index in mask.dead_ends}  # and how many of the new tokens stand
        for index, (scheduled, token_ids) in enumerate(
            zip(batch.requests, output.token_ids, strict=True)
        ):
            request = scheduled.request
            if request.matcher is None or not token_ids or _has_ended(request):
                continue
            if scheduled.is_stale:
                continue
            job = mask.jobs.get(index)
            if job is None:
                unseen.append(index)
            elif _is_shown(mask, job, token_ids):
                shown.append(index)
            else:
                _accept(request, token_ids)
        for backend, indices in self._by_backend(requests, shown).items():
            moves = [(_matcher(requests[i]), output.token_ids[i]) for i in indices]
            for index, error in zip(indices, backend.take_shown(moves), strict=True):
                if error is not None:
                    _fail(requests[index], error)
                if _is_lost(requests[index]):
                    lost[index] = len(output.token_ids[index]) - 1
        if unseen:
            output = self._take_unseen(requests, unseen, draft, output)
        return _cut(output, lost) if lost else output

    def _take_unseen(
        self,
        requests: Sequence[Request],
        unseen: Sequence[int],
        draft: Draft,
        output: SamplerOutput,
    ) -> SamplerOutput:
        standing: dict[int, list[int]] = {}  # of requests whose grammar has refused a token
        for backend, indices in self._by_backend(requests, unseen).items():
            certain = [draft.token_ids[i][: draft.num_certain[i]] for i in indices]
            moves = [
                (
                    _matcher(requests[i]),
                    [*known, *output.token_ids[i]] if known else output.token_ids[i],
                )
                for i, known in zip(indices, certain, strict=True)
            ]
            counts = [
                _past_certain(move, len(known), count)
                for move, known, count in zip(
                    moves, certain, backend.take_unseen(moves), strict=True
                )
            ]
            replaceable: list[int] = []
            for index, (_, token_ids), known, count in zip(
                indices, moves, certain, counts, strict=True
            ):
                if isinstance(count, Exception):
                    _fail(requests[index], count)
                elif count < len(known):
                    _fail(requests[index], AssertionError(f"token {token_ids[count]} was certain"))
                elif count < len(token_ids):
                    _diverge(requests[index])
                    standing[index] = [*token_ids[len(known) : count]]
                    if count == len(token_ids) - 1 and output.runners_up:
                        replaceable.append(index)
            if replaceable:
                self._replace(backend, requests, replaceable, output.runners_up, standing)
        if not standing:
            return output
        tokens = [standing.get(i, ids) for i, ids in enumerate(output.token_ids)]
        # a refused token was no guess that could be counted as accepted
        accepted = [
            min(count, len(standing[i])) if i in standing else count
            for i, count in enumerate(output.num_accepted)
        ]
        return replace(
            output, token_ids=tokens, num_accepted=accepted, diverged=frozenset(standing)
        )

    def _replace(
        self,
        backend: BatchMatching,
        requests: Sequence[Request],
        indices: Sequence[int],
        runners_up: Sequence[Sequence[int]],
        standing: dict[int, list[int]],
    ) -> None:
        """Have the best runner-up that its grammar takes stand in place of a refused token."""
        moves = [(_matcher(requests[i]), runners_up[i]) for i in indices]
        for index, place in zip(indices, backend.take_first(moves), strict=True):
            if isinstance(place, Exception):
                _fail(requests[index], place)
            elif place < len(runners_up[index]):
                standing[index].append(runners_up[index][place])
                requests[index].needs_mask = False

    def _by_backend(
        self, requests: Sequence[Request], indices: Iterable[int]
    ) -> dict[BatchMatching, list[int]]:
        """Who asks the matchers of which requests; a grammar's backend only those it made."""
        groups: dict[BatchMatching, list[int]] = {}
        found: dict[tuple[Future[CompiledGrammar] | None, bool], list[int]] = {}
        for index in indices:
            compiled, is_wrapped = requests[index].compiled, bool(requests[index].wrappers)
            key = compiled, is_wrapped
            if key not in found:  # to ask a future takes a lock
                backend = None if compiled is None else compiled.result().backend
                if is_wrapped:
                    backend = self._around(backend)
                assert backend is not None, "a matcher without its grammar"
                found[key] = groups.setdefault(backend, [])
            found[key].append(index)
        return groups

    def _around(self, backend: BatchMatching | None) -> BatchMatching:
        if backend not in self._wrapped:
            self._wrapped[backend] = WrappedMatching(self._vocabulary, backend)
        return self._wrapped[backend]

    def _buffer(self, num_rows: int) -> Bitmask:
        """Rows with whatever was in them."""
        self._turn = 1 - self._turn
        if num_rows > len(self._bitmasks[self._turn]):
            shape = (2 * num_rows, self._vocabulary.num_words)
            rows = torch.zeros(shape, dtype=torch.int32, pin_memory=self._is_pinned)
            self._bitmasks[self._turn] = rows.numpy()
            self._wide[self._turn] = ()
        return self._bitmasks[self._turn][:num_rows]

    def _put_wide(self, wide: Sequence[Row], bitmask: Bitmask) -> None:
        """Write them at the head, where they are not there since the turn before."""
        before = self._wide[self._turn]
        for place, row in enumerate(wide):
            if place >= len(before) or before[place] is not row:
                bitmask[place] = row
        self._wide[self._turn] = wide

    def _fill_group(
        self, backend: BatchMatching, group: Sequence[tuple[Request, FillJob]], bitmask: Bitmask
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


def _take_starts(batch: Batch, draft: Draft, is_masked: Sequence[bool]) -> dict[int, Row]:
    """The rows at the start of their text of those that draw their first token here, unmasked."""
    starts = {}
    for index, scheduled in enumerate(batch.requests):
        row = scheduled.request.start_row
        if row is None or not scheduled.is_sampled:
            continue
        scheduled.request.start_row = None
        if not is_masked[index] and not draft.num_certain[index]:
            starts[index] = row
    return starts


def _masked(batch: Batch, is_masked: Sequence[bool]) -> Iterator[int]:
    for index, (scheduled, masked) in enumerate(zip(batch.requests, is_masked, strict=True)):
        if masked and not scheduled.is_stale and not _has_ended(scheduled.request):
            yield index


def _is_shown(mask: Mask, job: FillJob, token_ids: Sequence[int]) -> bool:
    """Whether its rows say that the grammar takes these tokens."""
    if len(token_ids) > 1 + len(job.draft_token_ids):
        return False
    rows = range(job.first_row, job.first_row + len(token_ids))
    return all(map(is_allowed, repeat(mask.bitmask.numpy()), rows, token_ids))


def _past_certain(move: Move, num_certain: int, count: int | Exception) -> int | Exception:
    """The count, where a refused token was certain that of the matcher which said so.

    A look may want forced text spelled in another way from its middle on; the text is the same.
    """
    if isinstance(count, Exception) or count >= num_certain:
        return count
    matcher, token_ids = move
    more = count_taken(matcher, token_ids[count:])
    return more if isinstance(more, Exception) else count + more


def _diverge(request: Request) -> None:
    """Go on from what stands; unless the refused token is replaced, the next has to be masked."""
    request.num_divergences += 1
    request.stats.num_refused += 1
    request.needs_mask = True


def _has_ended(request: Request) -> bool:
    return request.is_finished or request.error is not None


def _is_lost(request: Request) -> bool:
    return isinstance(request.error, NothingAllowed)


def _cut(output: SamplerOutput, lost: Mapping[int, int]) -> SamplerOutput:
    """The output with so many tokens of these requests, whose texts have no way on."""
    tokens = [ids[: lost.get(i, len(ids))] for i, ids in enumerate(output.token_ids)]
    return replace(output, token_ids=tokens, dead_ends=frozenset(lost))


def _accept(request: Request, token_ids: Sequence[int]) -> None:
    if request.matcher is None or not token_ids or _has_ended(request):
        return
    (error,) = take_each([(request.matcher, token_ids)])
    if error is not None:
        _fail(request, error)


def _matcher(request: Request) -> Matcher:
    assert request.matcher is not None
    return request.matcher


def _fail(request: Request, error: Exception) -> None:
    """End one request; what went wrong is chained to its error."""
    if isinstance(error, DeadEnd):  # the caller's wishes have come to nothing
        request.error = NothingAllowed(str(error))
        return
    logger.error("the grammar of request %d failed", request.request_id, exc_info=error)
    request.error = EngineError(f"the grammar failed: {error}")
    request.error.__cause__ = error
