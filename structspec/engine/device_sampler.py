"""Mask, draw and verify on a GPU, captured as CUDA graphs by the number of logits rows.

A copy stream brings what the host decides (masks, parameters, guesses) while the forward pass still
runs, and takes new tokens back while the next one does; the host reads them when it needs them.
Parameters that need a row's sorted probabilities (top_k, top_p, min_p) and drafts with
probabilities of their own go through RejectionSampler, which waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.engine.batch import (
    Batch,
    Draft,
    Mask,
    Sampled,
    SamplerOutput,
    ScheduledRequest,
)
from structspec.engine.graphs import Graphs, bucket_sizes
from structspec.engine.lanes import Lanes
from structspec.engine.rejection_sampler import RejectionSampler, draw_position
from structspec.engine.staging import Field, Layout, Staging, make_layout
from structspec.kernels.sample_rows import sample_rows
from structspec.kernels.verify_greedy import verify_greedy
from structspec.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class DeviceSampled:
    """New tokens on their way to the host."""

    last_token_ids: Tensor
    tokens: Tensor  # [num_rows, 1 + longest draft], pinned
    num_accepted: Tensor  # [num_rows], pinned
    arrival: Callable[[], None]  # waits for the copy
    is_sampled: Sequence[bool]

    def read(self) -> SamplerOutput:
        """The output, once it is there."""
        self.arrival()
        num_sampled = sum(self.is_sampled)
        accepted = self.num_accepted[:num_sampled].tolist()
        rows = iter(zip(self.tokens[:num_sampled].tolist(), accepted, strict=True))
        token_ids: list[Sequence[int]] = []
        num_accepted: list[int] = []
        for sampled in self.is_sampled:
            row, n = next(rows) if sampled else ([], -1)
            token_ids.append(row[: n + 1])
            num_accepted.append(max(n, 0))
        return SamplerOutput(token_ids, num_accepted)


class DeviceSampler:
    """Draws every request's next tokens, as RejectionSampler does; used by one thread.

    `last_token_ids` [max_num_rows] is written at every step, for the forward pass that follows.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_num_rows: int,
        max_num_drafts: int,
        last_token_ids: Tensor,
        lanes: Lanes,
    ) -> None:
        device = last_token_ids.device
        self._last_token_ids = last_token_ids
        self._max_num_drafts = max_num_drafts
        self._lanes = lanes
        self._general = RejectionSampler(vocabulary.vocab_size, vocabulary.stop_token_ids)
        self._stop_token_ids = torch.tensor(vocabulary.stop_token_ids, device=device)
        self._bitmask = torch.zeros(
            (max_num_rows, vocabulary.num_words), dtype=torch.int32, device=device
        )
        self._graphs = Graphs(self._run, bucket_sizes(max_num_rows))
        self._staging = Staging(_layout(max_num_rows).num_bytes, device)
        is_pinned = device.type == "cuda"
        shape = (max_num_rows, max_num_drafts + 2)  # tokens, and how many guesses were accepted
        self._output = torch.zeros(shape, dtype=torch.int64, device=device)
        self._arrived = [torch.zeros(shape, dtype=torch.int64, pin_memory=is_pinned) for _ in "ab"]
        self._turn = 0

    def capture(self, pool: Any, captured_logits: Callable[[int], Tensor]) -> None:
        """Record the graphs; `captured_logits` says where each size's logits will stand."""
        self._captured_logits = captured_logits
        self._graphs.capture(pool)

    def __call__(self, logits: Tensor, batch: Batch, draft: Draft, mask: Mask) -> Sampled:
        """Launch the sampling of a step; `logits` must be those of the runner."""
        sampled = [scheduled for scheduled in batch.requests if scheduled.is_sampled]
        guesses = [
            ids
            for scheduled, ids in zip(batch.requests, draft.guesses, strict=True)
            if scheduled.is_sampled
        ]
        num_rows = len(sampled) + sum(map(len, guesses))
        if any(map(_needs_sorting, sampled)) or any(q is not None for q in draft.probs):
            return self._sample_generally(logits[:num_rows], batch, draft, mask)
        layout = _layout(len(logits))
        num_valid = [
            n
            for scheduled, n in zip(batch.requests, mask.num_valid, strict=True)
            if scheduled.is_sampled
        ]
        certain = [
            n
            for scheduled, n in zip(batch.requests, draft.num_certain, strict=True)
            if scheduled.is_sampled
        ]
        _pack(self._staging.host(layout), sampled, certain, guesses, num_valid, mask)
        with self._lanes.copying():
            self._staging.send(layout)
            if len(mask.rows):
                self._bitmask[: len(mask.rows)].copy_(mask.bitmask, non_blocking=True)
        self._lanes.compute_waits()
        if self._graphs.is_captured:
            self._graphs(len(logits))
        else:
            self._draw(logits)
        return self._fetch(len(logits), [scheduled.is_sampled for scheduled in batch.requests])

    def _run(self, num_rows: int) -> None:
        self._draw(self._captured_logits(num_rows))

    def _draw(self, logits: Tensor) -> None:
        arrays = self._staging.on_device(_layout(len(logits)))
        targets = sample_rows(
            logits,
            self._bitmask,
            arrays["mask_rows"],
            self._stop_token_ids,
            arrays["bans_stops"],
            arrays["temperature"],
            arrays["seeds"],
            arrays["draws"],
        )
        token_ids, num_accepted = verify_greedy(
            targets,
            arrays["guesses"],
            arrays["cu_num_guesses"],
            arrays["num_valid"],
            self._max_num_drafts,
            last=self._last_token_ids[: len(logits)],
        )
        output = self._output[: len(logits)]
        output[:, :-1].copy_(token_ids)
        output[:, -1].copy_(num_accepted)

    def _fetch(self, num_rows: int, is_sampled: Sequence[bool]) -> DeviceSampled:
        self._turn = 1 - self._turn
        arrived = self._arrived[self._turn][:num_rows]
        self._lanes.copy_waits()
        with self._lanes.copying():
            arrived.copy_(self._output[:num_rows], non_blocking=True)
            arrival = self._lanes.mark()
        tokens, accepted = arrived[:, :-1], arrived[:, -1]
        return DeviceSampled(self._last_token_ids, tokens, accepted, arrival, is_sampled)

    def _sample_generally(self, logits: Tensor, batch: Batch, draft: Draft, mask: Mask) -> Sampled:
        ready = self._general(logits, batch, draft, mask)
        last = ready.last_token_ids
        self._last_token_ids[: len(last)].copy_(last)
        return _GeneralSampled(self._last_token_ids, ready)


@dataclass(frozen=True, slots=True)
class _GeneralSampled:
    """What RejectionSampler drew, its last tokens where the forward pass looks for them."""

    last_token_ids: Tensor
    ready: Sampled

    def read(self) -> SamplerOutput:
        """The output."""
        return self.ready.read()


def _needs_sorting(scheduled: ScheduledRequest) -> bool:
    params = scheduled.request.params
    is_cut = params.top_k > 0 or params.top_p < 1 or params.min_p > 0
    return params.temperature > 0 and is_cut


def _layout(num_rows: int) -> Layout:
    """Per logits row, and for guesses per request: there are no more of those than rows."""
    return make_layout(
        (
            Field("mask_rows", np.int64, num_rows),
            Field("seeds", np.int64, num_rows),
            Field("draws", np.int64, num_rows),
            Field("temperature", np.float32, num_rows),
            Field("bans_stops", np.int8, num_rows),
            Field("guesses", np.int64, num_rows),
            Field("cu_num_guesses", np.int32, num_rows + 1),
            Field("num_valid", np.int32, num_rows),
        )
    )


def _pack(
    host: dict[str, NDArray[Any]],
    sampled: Sequence[ScheduledRequest],
    num_certain: Sequence[int],
    guesses: Sequence[Sequence[int]],
    num_valid: Sequence[int],
    mask: Mask,
) -> None:
    """Fill a step's arrays; padded requests have no rows, and padded rows are greedy."""
    requests = [scheduled.request for scheduled in sampled]
    counts = np.array([1 + len(ids) for ids in guesses], np.int64)
    num_requests, num_rows = len(requests), int(counts.sum())
    positions = [draw_position(s, n) for s, n in zip(sampled, num_certain, strict=True)]
    bans = [request.params.ignore_eos and request.compiled is None for request in requests]
    ends = np.cumsum(counts)
    offsets = np.arange(num_rows) - np.repeat(ends - counts, counts)
    per_request = {
        "seeds": [request.seed for request in requests],
        "temperature": [request.params.temperature for request in requests],
        "bans_stops": bans,
        "draws": positions,
    }
    for name, values in per_request.items():
        host[name][:num_rows] = np.repeat(np.array(values, host[name].dtype), counts)
        host[name][num_rows:] = 0
    host["draws"][:num_rows] += offsets
    host["mask_rows"].fill(-1)
    host["mask_rows"][mask.rows.numpy()] = np.arange(len(mask.rows))
    flat = [token_id for ids in guesses for token_id in ids]
    host["guesses"][: len(flat)] = flat
    host["guesses"][len(flat) :] = 0
    cu = [0, *accumulate(map(len, guesses))]
    host["cu_num_guesses"][: len(cu)] = cu
    host["cu_num_guesses"][len(cu) :] = cu[-1]
    host["num_valid"][:num_requests] = num_valid
    host["num_valid"][num_requests:] = 0
