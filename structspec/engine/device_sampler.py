"""Mask, draw and verify on a GPU, captured as CUDA graphs by the number of logits rows.

Mask rows come on a copy stream while the forward pass still runs, and only if there are any; new
tokens go back by themselves, and the host reads them when it needs them. Every size has two graphs:
one for steps in which top_k, top_p or min_p limit a row, one without their kernels. Steps in which
bias or penalties change logits launch the same kernels one by one: there may be any number of such
edits. So do those of which logprobs are asked for. Drafts with probabilities of their own go
through RejectionSampler, which waits for the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, compress, product
from operator import is_
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.engine.batch import Batch, Draft, Mask, Sampled, ScheduledRequest
from structspec.engine.device_sampled import DeviceSampled, GeneralSampled
from structspec.engine.filter_columns import filter_columns
from structspec.engine.graphs import Graphs
from structspec.engine.lanes import Lanes
from structspec.engine.logit_edits import LogitEdits, collect_edits
from structspec.engine.logprobs import (
    DeviceLogprobs,
    LogprobRows,
    StepLogprobs,
    find_logprob_rows,
)
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.engine.staging import Field, Layout, Staging, fill_padded, make_layout
from structspec.engine.synthetic import accept_some
from structspec.grammars.base import Row
from structspec.kernels.sample_rows import is_allowed_reference, sample_rows
from structspec.kernels.sample_rows_filters import Filters
from structspec.kernels.verify_greedy import verify_greedy
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig
from structspec.verification import acceptance_chances
from structspec.vocabulary import Vocabulary


class DeviceSampler:
    """Draws every request's next tokens, as RejectionSampler does; used by one thread.

    `head` turns what the runner gives into logits. `last_token_ids` [max_num_rows] is written at
    every step, for the forward pass that follows. Where a constrained request has no masked rows,
    the output says which `num_runners_up` tokens come next best behind each request's last.
    Rows that many requests share are copied when they are new.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        sizes: Sequence[int],
        max_num_drafts: int,
        last_token_ids: Tensor,
        lanes: Lanes,
        head: Callable[[Tensor], Tensor],
        num_runners_up: int = 0,
        speculative: SpeculativeConfig | None = None,
    ) -> None:
        device, max_num_rows = last_token_ids.device, sizes[-1]
        self._last_token_ids = last_token_ids
        self._head = head
        self._max_num_drafts = max_num_drafts
        self._lanes = lanes
        speculative = speculative or SpeculativeConfig()
        self._general = RejectionSampler(
            vocabulary.vocab_size, vocabulary.stop_token_ids, speculative
        )
        self._chances = acceptance_chances(speculative)
        self._is_fly = speculative.rejection_sample_method == "fly"
        self._stop_token_ids = torch.tensor(vocabulary.stop_token_ids, device=device)
        self._bitmask = torch.zeros(
            (max_num_rows, vocabulary.num_words), dtype=torch.int32, device=device
        )
        self._sizes = sizes
        self._graphs: Graphs[tuple[int, bool]] | None = None
        self._layout = functools.lru_cache(maxsize=256)(_layout)
        self._staging = Staging(_layout(max_num_rows).num_bytes, device)
        self._wide: Sequence[Row] = ()  # the rows at the head of that, sent in steps before
        self._constants = _Constants()
        is_pinned = device.type == "cuda"
        self._num_runners_up = num_runners_up
        self._runners_up = torch.zeros(
            (max_num_rows, num_runners_up), dtype=torch.int64, device=device
        )
        shape = (max_num_rows, num_runners_up + max_num_drafts + 2)  # as DeviceSampled has it
        self._output = torch.zeros(shape, dtype=torch.int64, device=device)
        self._arrived = [torch.zeros(shape, dtype=torch.int64, pin_memory=is_pinned) for _ in "ab"]
        self._turn = 0

    def capture(self, pool: Any, hidden: Callable[[int], Tensor]) -> None:
        """Record the graphs; `hidden` says where the runner leaves so many rows."""
        sizes = list(product(self._sizes, (False, True)))
        self._graphs = Graphs(lambda size: self._draw(hidden(size[0]), has_filters=size[1]), sizes)
        self._graphs.capture(pool)
        self._warm_up_edits(hidden(1))

    def warm_up(self, hidden: Callable[[int], Tensor]) -> None:
        """Compile what `capture` would; `hidden` gives so many rows as the runner does."""
        for num_rows in reversed(self._sizes):
            self._draw(hidden(num_rows), has_filters=False)
        self._draw(hidden(1), has_filters=True)  # of its kernels there is one for all sizes
        self._warm_up_edits(hidden(1))

    def _warm_up_edits(self, hidden: Tensor) -> None:
        ids, values = np.zeros(1, np.int32), np.ones(1, np.float32)
        LogitEdits(ids, ids, values, values, values).apply(self._head(hidden))

    def __call__(self, hidden: Tensor, batch: Batch, draft: Draft, mask: Mask) -> Sampled:
        """Launch the sampling of a step from what the runner gave."""
        if self._chances is not None:
            mask = accept_some(batch, draft, mask, self._chances)
        is_sampled = [scheduled.is_sampled for scheduled in batch.requests]
        rows = _Rows.of(batch, draft, mask, is_sampled)
        if self._needs_probs(draft):
            num_rows = len(rows.scheduled) + sum(map(len, rows.guesses or ()))
            num_rows += batch.num_prompt_rows
            return self._sample_generally(self._head(hidden)[:num_rows], batch, draft, mask)
        is_sent = self._send_bitmask(mask)
        layout = self._layout(len(hidden))
        self._constants.pack(self._staging.host(layout), rows, mask)
        self._staging.send(layout)
        if is_sent:
            self._lanes.compute_waits()
        edits = collect_edits(batch, draft) if self._constants.has_edits else None
        logprobs = None
        if self._constants.has_logprobs or batch.num_prompt_rows:
            logprobs = self._draw_told(hidden, find_logprob_rows(batch, draft), edits)
        elif self._graphs is None or edits is not None:
            self._draw(hidden, has_filters=self._constants.has_filters, edits=edits)
        else:
            self._graphs((len(hidden), self._constants.has_filters))
        if len(mask.rows):
            self._lanes.copies_wait()  # the next step's rows go where this one reads its own
        return self._fetch(
            is_sampled,
            has_guesses=rows.guesses is not None,
            has_unmasked=len(self._constants.constrained) > len(mask.jobs),
            logprobs=logprobs,
        )

    def _needs_probs(self, draft: Draft) -> bool:
        """Whether guesses are verified by more than the token of each row."""
        if self._is_fly:
            return draft.num_guessing > 0
        return self._chances is None and any(q is not None for q in draft.probs)

    def _send_bitmask(self, mask: Mask) -> bool:
        """Copy the rows beside the forward pass, unless all are there since an earlier step."""
        num_rows, num_wide = len(mask.bitmask), len(mask.wide)
        are_known = num_wide <= len(self._wide) and all(map(is_, mask.wide, self._wide))
        if num_rows == num_wide and are_known:
            return False
        self._wide = ()  # for as long as the copy may fail
        with self._lanes.copying():
            self._bitmask[:num_rows].copy_(mask.bitmask, non_blocking=True)
        self._wide = mask.wide
        return True

    def _draw_told(
        self, hidden: Tensor, wanted: LogprobRows | None, edits: LogitEdits | None
    ) -> DeviceLogprobs | None:
        """Draw, and say how likely the tokens were."""
        logits = self._head(hidden)
        logprobs = StepLogprobs(wanted, logits) if wanted is not None else None
        if edits is not None:
            edits.apply(logits)
        if logprobs is not None and (rows := logprobs.processed_rows) is not None:
            arrays = self._staging.on_device(self._layout(len(hidden)))
            is_allowed = is_allowed_reference(
                logits.shape[1],
                self._bitmask,
                arrays["mask_rows"][rows],
                self._stop_token_ids,
                arrays["bans_stops"][rows],
            )
            logprobs.process(logits[rows].masked_fill(~is_allowed, float("-inf")))
        self._draw_rows(logits, has_filters=self._constants.has_filters)
        if logprobs is None:
            return None
        token_ids = self._output[: len(hidden), self._num_runners_up : -1]
        return logprobs.of_tokens(token_ids).fetched(is_awaited=False)

    def _draw(self, hidden: Tensor, *, has_filters: bool, edits: LogitEdits | None = None) -> None:
        logits = self._head(hidden)
        if edits is not None:
            edits.apply(logits)
        self._draw_rows(logits, has_filters=has_filters)

    def _draw_rows(self, logits: Tensor, *, has_filters: bool) -> None:
        num_rows = len(logits)
        arrays = self._staging.on_device(self._layout(num_rows))
        filters = Filters(arrays["top_k"], arrays["top_p"], arrays["min_p"])
        n, output = self._num_runners_up, self._output[:num_rows]
        runners_up = self._runners_up[:num_rows] if n else None
        targets = sample_rows(
            logits,
            self._bitmask,
            arrays["mask_rows"],
            self._stop_token_ids,
            arrays["bans_stops"],
            arrays["temperature"],
            arrays["seeds"],
            arrays["draws"],
            filters if has_filters else None,
            runners_up=runners_up,
        )
        token_ids, num_accepted = verify_greedy(
            targets,
            arrays["guesses"],
            arrays["cu_num_guesses"],
            arrays["num_valid"],
            self._max_num_drafts,
            last=self._last_token_ids[:num_rows],
            runners_up=runners_up,
            last_runners_up=output[:, :n] if n else None,
            accepts_valid=self._chances is not None,
        )
        output[:, n:-1].copy_(token_ids)
        output[:, -1].copy_(num_accepted)

    def _fetch(
        self,
        is_sampled: Sequence[bool],
        *,
        has_guesses: bool,
        has_unmasked: bool,
        logprobs: DeviceLogprobs | None,
    ) -> DeviceSampled:
        self._turn = 1 - self._turn
        num_sampled, n = sum(is_sampled), self._num_runners_up
        arrived = self._arrived[self._turn][:num_sampled]
        arrived.copy_(self._output[:num_sampled], non_blocking=True)
        arrival = self._lanes.mark()
        if not has_unmasked:
            arrived, n = arrived[:, n:], 0
        constrained = self._constants.constrained
        asking = constrained if len(constrained) < num_sampled else None
        return DeviceSampled(
            self._last_token_ids, arrived, arrival, is_sampled, has_guesses, n, asking, logprobs
        )

    def _sample_generally(self, logits: Tensor, batch: Batch, draft: Draft, mask: Mask) -> Sampled:
        ready = self._general(logits.float(), batch, draft, mask)
        last = ready.last_token_ids
        self._last_token_ids[: len(last)].copy_(last)
        return GeneralSampled(self._last_token_ids, ready)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The sampled requests of a step and what they verify; None: nothing, so one row each."""

    scheduled: Sequence[ScheduledRequest]
    num_certain: Sequence[int]
    guesses: Sequence[Sequence[int]] | None
    num_valid: Sequence[int]

    @staticmethod
    def of(batch: Batch, draft: Draft, mask: Mask, is_sampled: Sequence[bool]) -> _Rows:
        """Those of a step."""
        guesses = draft.guesses if draft.num_guessing else None
        if all(is_sampled):
            return _Rows(batch.requests, draft.num_certain, guesses, mask.num_valid)
        return _Rows(
            list(compress(batch.requests, is_sampled)),
            list(compress(draft.num_certain, is_sampled)),
            None if guesses is None else list(compress(guesses, is_sampled)),
            list(compress(mask.num_valid, is_sampled)),
        )


class _Constants:
    """What the arrays say of the requests themselves, kept while these stay the same."""

    def __init__(self) -> None:
        self.has_filters = False  # whether top_k, top_p or min_p limit a row
        self.has_edits = False  # whether bias or penalties change a logit
        self.has_logprobs = False  # whether they are asked for
        self.constrained: Sequence[int] = ()  # of the requests
        self._requests: list[Request] = []
        self._columns: dict[str, NDArray[Any]] = {}
        self._prompts = np.zeros(0, np.int64)  # their lengths

    def pack(self, host: dict[str, NDArray[Any]], rows: _Rows, mask: Mask) -> None:
        """Fill a step's arrays; padded requests have no rows, and padded rows are greedy."""
        requests = [scheduled.request for scheduled in rows.scheduled]
        self._update(requests)
        lasts = [scheduled.first_position + scheduled.num_tokens for scheduled in rows.scheduled]
        draws = np.array(lasts, np.int64) + np.array(rows.num_certain, np.int64) - self._prompts
        columns = {**self._columns, "draws": draws}
        num_rows = num_requests = len(requests)
        if rows.guesses is None:
            host["cu_num_guesses"].fill(0)
            host["num_valid"].fill(0)
        else:
            lengths = np.array([len(ids) for ids in rows.guesses], np.int64)
            counts, ends = lengths + 1, np.cumsum(lengths + 1)
            num_rows = int(ends[-1])
            indices = np.repeat(np.arange(num_requests), counts)
            columns = {name: column[indices] for name, column in columns.items()}
            columns["draws"] += np.arange(num_rows) - (ends - counts)[indices]
            fill_padded(host["guesses"], list(chain.from_iterable(rows.guesses)), 0)
            total = int(lengths.sum())
            host["cu_num_guesses"][0] = 0
            fill_padded(host["cu_num_guesses"][1:], np.cumsum(lengths), total)
            fill_padded(host["num_valid"], rows.num_valid, 0)
        for name, column in columns.items():
            fill_padded(host[name], column, 0)
        host["mask_rows"].fill(-1)
        if len(mask.rows):
            host["mask_rows"][mask.rows.numpy()] = mask.places.numpy()

    def _update(self, requests: list[Request]) -> None:
        if requests == self._requests:
            return
        self._requests = requests
        self._prompts = np.array([request.num_prompt_tokens for request in requests], np.int64)
        params = [request.params for request in requests]
        self.has_filters = any(p.is_filtered for p in params)
        self.has_edits = any(p.edits_logits for p in params)
        self.has_logprobs = any(p.tells_logprobs for p in params)
        self.constrained = [index for index, request in enumerate(requests) if request.is_judged]
        self._columns = {
            "seeds": np.array([request.seed for request in requests], np.int64),
            **filter_columns(params),
            "bans_stops": np.array(
                [
                    p.ignore_eos and not request.is_judged
                    for request, p in zip(requests, params, strict=True)
                ],
                np.int8,
            ),
        }


def _layout(num_rows: int) -> Layout:
    """Per logits row, and for guesses per request: there are no more of those than rows."""
    return make_layout(
        (
            Field("mask_rows", np.int64, num_rows),
            Field("seeds", np.int64, num_rows),
            Field("draws", np.int64, num_rows),
            Field("temperature", np.float32, num_rows),
            Field("top_k", np.int32, num_rows),
            Field("top_p", np.float32, num_rows),
            Field("min_p", np.float32, num_rows),
            Field("bans_stops", np.int8, num_rows),
            Field("guesses", np.int64, num_rows),
            Field("cu_num_guesses", np.int32, num_rows + 1),
            Field("num_valid", np.int32, num_rows),
        )
    )
