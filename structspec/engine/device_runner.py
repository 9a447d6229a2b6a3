"""Run the target model on a GPU: steps whose arrays never move, captured as CUDA graphs by size.

    tables, tokens -> hidden states, of them the rows to sample from

A step's arrays travel in one copy and land where the graphs read them. A token that the step before
has not told the host yet is read where its sampler wrote it.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.engine.block_tables import MAX_UPDATES, BlockTables
from structspec.engine.graphs import Graphs, bucket_sizes
from structspec.engine.kv_cache import KVCache
from structspec.engine.memory import build_kv_cache, max_num_logits_rows
from structspec.engine.staging import Field, Layout, Staging, fill_padded, make_layout
from structspec.models.inputs import AttentionMetadata, ForwardInput
from structspec.models.network import Network
from structspec.request import Request

MAX_GRAPH_ROWS = 4096  # beyond, kernels take longer than their launches
_MANY_ROWS = 512  # of a step with more, most belong to prompts
_ROW_STEP = 64  # there, sizes are multiples of this: memory that one step freed fits the next


class _Size(NamedTuple):
    """Of a step's arrays, padding included."""

    num_rows: int
    num_requests: int
    max_query_len: int  # rows of one request at most; 0: any number, and mostly few


_Place = tuple[Request, int, int]  # the last position of its share, and its preemptions so far


def _decode(num_rows: int) -> _Size:
    return _Size(num_rows, num_rows, 1)


class SplitNetwork(Network, Protocol):
    """A network that can be run in two parts, each without looking at its inputs' values."""

    def body(self, token_ids: Tensor, metadata: AttentionMetadata, kv_cache: KVCache) -> Tensor:
        """The hidden states of all rows."""

    def head(self, hidden: Tensor) -> Tensor:
        """The logits of some of them."""


class DeviceRunner:
    """The target model and its KV cache on one device; used by one thread.

    Work is launched, not awaited, and what it gives is overwritten by the next step.
    `last_token_ids` must be the tensor given to the constructor: graphs read it where it is.
    """

    def __init__(self, network: Network, config: EngineConfig, last_token_ids: Tensor) -> None:
        self._network = network
        self._device = network.device
        self._config = config
        self._block_size = config.block_size
        self.kv_cache = build_kv_cache(network, config)
        self.logits_sizes = bucket_sizes(max_num_logits_rows(config))
        self._max_num_rows = max_num_rows = config.max_num_batched_tokens
        max_len = min(network.config.max_model_len, self.kv_cache.num_blocks * config.block_size)
        self._tables = BlockTables(
            config.max_num_requests, -(-max_len // config.block_size), self._device
        )
        self._last_token_ids = last_token_ids
        self._can_split = hasattr(network, "body")
        most_decodes = min(config.max_num_requests, MAX_GRAPH_ROWS, max_num_rows)
        self._decode_sizes = [_decode(n) for n in bucket_sizes(most_decodes)]
        self._mixed_sizes = [
            self._mixed(n) for n in bucket_sizes(min(MAX_GRAPH_ROWS, max_num_rows))
        ]
        self._body = Graphs(self._run_body, [*self._mixed_sizes, *self._decode_sizes])
        self._layout = functools.lru_cache(maxsize=256)(self._make_layout)
        largest = self._layout(_Size(max_num_rows, config.max_num_requests, 0))
        self._staging = Staging(largest.num_bytes, self._device)
        self._hidden: Tensor | None = None  # [max_num_logits_rows, hidden_size]
        self._last_step: tuple[Batch, Draft] | None = None  # whose rows those are

    def fit_logits(self, num_rows: int) -> int:
        """How many rows are sampled from where so many are wanted."""
        index = bisect.bisect_left(self.logits_sizes, num_rows)
        return self.logits_sizes[index]

    def capture(self, pool: Any) -> None:
        """Record the graphs; afterwards nothing is compiled in a request's time."""
        self._body.capture(pool)

    @property
    def can_capture(self) -> bool:
        """Whether steps are to be recorded; else the kernels of each are launched."""
        return self._can_split and not self._config.enforce_eager

    def warm_up(self) -> None:
        """Compile the kernels of steps that are not captured; block 0 is scribbled."""
        largest = [min(n, self._max_num_rows) for n in (self._max_num_rows, MAX_GRAPH_ROWS + 1)]
        sizes = {self._fit(np.array([num_rows])) for num_rows in largest}
        if not self.can_capture:
            sizes |= {*self._mixed_sizes, *self._decode_sizes}
        for size in sorted(sizes, reverse=True):
            if self._can_split:
                self._run_body(size)
            else:
                self._run_whole(size, 1)

    @property
    def idle_sizes(self) -> Sequence[int]:
        """Numbers of rows whose steps tell what all others cost."""
        return self.logits_sizes

    @property
    def is_padded(self) -> bool:
        """Whether steps are padded to certain numbers of rows."""
        return self.can_capture

    def run_idle(self, num_rows: int) -> None:
        """Compute a step of so many rows with drafts and wait for it; block 0 is scribbled."""
        size = self._mixed_sizes[bisect.bisect_left(self._mixed_sizes, self._mixed(num_rows))]
        if self._can_split:
            self._body(size)
            self.head(self.hidden(self.fit_logits(num_rows)))
        else:
            self._run_whole(size, num_rows)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def hidden(self, num_rows: int) -> Tensor:
        """Where the body leaves what the head turns into logits, [num_rows, hidden_size].

        Of a network in one part, logits of its own making.
        """
        if not self._can_split:
            return self._run_whole(self._fit(np.array([num_rows])), num_rows)
        assert self._hidden is not None, "the body has not run yet"
        return self._hidden[:num_rows]

    def head(self, hidden: Tensor) -> Tensor:
        """The logits of what `forward` gave."""
        return cast(SplitNetwork, self._network).head(hidden) if self._can_split else hidden

    def forward(self, batch: Batch, draft: Draft, last_token_ids: Tensor | None = None) -> Tensor:
        """What is sampled from, [fit_logits(num_rows), …]: 1 + guesses rows per sampled request.

        Of a network in two parts these are `hidden` states, of another logits. They stand in the
        batch's order, behind them those of prompts; rows behind these are noise. Keys and values of
        all computed tokens and drafts are written at their positions: block tables must have room
        for them.
        """
        assert last_token_ids is None or last_token_ids is self._last_token_ids
        if (rows := self._find_standing(batch, draft)) is not None:
            return self._take_standing(rows, batch, draft)
        counts = np.array(
            [
                scheduled.num_tokens + len(drafts)
                for scheduled, drafts in zip(batch.requests, draft.token_ids, strict=True)
            ],
            np.int64,
        )
        size = self._fit(counts)
        layout = self._layout(size)
        num_fitted = self.fit_logits(
            self._pack(self._staging.host(layout), batch, draft, counts, size)
        )
        self._staging.send(layout)
        if not self._can_split:
            return self._run_whole(size, num_fitted)
        self._last_step = None  # for as long as it may fail
        self._body(size)
        self._last_step = batch, draft
        return self.hidden(num_fitted)

    def _find_standing(self, batch: Batch, draft: Draft) -> list[int] | None:
        """The rows of the last step that this one would compute again; None if it does more.

        A token drawn before its grammar was ready and then refused is drawn from such a row again.
        """
        again = batch.requests
        if any(one.num_tokens > 1 or one.last_index >= 0 or not one.is_sampled for one in again):
            return None  # the common case, seen at the first
        if any(draft.token_ids) or self._last_step is None:
            return None
        places = _places(*self._last_step)
        rows = [places.get(_place(scheduled)) for scheduled in again]
        known = [row for row in rows if row is not None]
        return known if len(known) == len(rows) else None

    def _take_standing(self, rows: list[int], batch: Batch, draft: Draft) -> Tensor:
        assert self._hidden is not None
        places = torch.tensor(rows).to(self._device, non_blocking=True)
        self._hidden[: len(rows)].copy_(self._hidden[places])
        self._last_step = batch, draft
        return self.hidden(self.fit_logits(len(rows)))

    def _fit(self, counts: NDArray[np.int64]) -> _Size:
        """The captured size that takes these rows per request, or about it where there is none."""
        num_rows, num_requests = int(counts.sum()), len(counts)
        if num_rows == num_requests <= self._decode_sizes[-1].num_rows:
            return self._decode_sizes[bisect.bisect_left(self._decode_sizes, _decode(num_rows))]
        if num_rows <= self._mixed_sizes[-1].num_rows:
            index = bisect.bisect_left(self._mixed_sizes, self._mixed(num_rows))
            return self._mixed_sizes[index]
        fitted = min(-(-num_rows // _ROW_STEP) * _ROW_STEP, self._max_num_rows)
        return _Size(fitted, num_requests, fitted)

    def _mixed(self, num_rows: int) -> _Size:
        longest = num_rows if num_rows > _MANY_ROWS else 0
        return _Size(num_rows, min(num_rows, self._config.max_num_requests), longest)

    def _make_layout(self, size: _Size) -> Layout:
        num_rows, num_requests = size.num_rows, size.num_requests
        return make_layout(
            (
                Field("token_ids", np.int64, num_rows),
                Field("last_indices", np.int64, num_rows),
                Field("positions", np.int64, num_rows),
                Field("slot_mapping", np.int64, num_rows),
                Field("cu_seqlens_q", np.int64, num_requests + 1),
                Field("context_lens", np.int64, num_requests),
                Field("logits_rows", np.int64, min(num_rows, self.logits_sizes[-1])),
                Field("table_places", np.int64, MAX_UPDATES),
                Field("table_values", np.int64, MAX_UPDATES),
            )
        )

    def _pack(
        self,
        host: dict[str, NDArray[Any]],
        batch: Batch,
        draft: Draft,
        counts: NDArray[np.int64],  # rows of each request
        size: _Size,
    ) -> int:
        """Fill a step's arrays, padding included; how many rows are sampled from."""
        requests = batch.requests
        self._tables.update(
            [scheduled.request for scheduled in requests],
            host["table_places"],
            host["table_values"],
        )
        firsts = np.array([scheduled.first_position for scheduled in requests], np.int64)
        lasts = np.array([scheduled.last_index for scheduled in requests], np.int64)
        ends = np.cumsum(counts)
        host["cu_seqlens_q"][0] = 0
        fill_padded(host["cu_seqlens_q"][1:], ends, int(ends[-1]))
        fill_padded(host["context_lens"], firsts + counts, 0)
        if size.max_query_len == 1:
            indices, positions = np.arange(len(counts)), firsts
        else:
            indices, offsets = _spread(counts, ends)
            positions = firsts[indices] + offsets
            # What stands behind a request's last token are drafts, and known.
            lasts = np.where(offsets == 0, lasts[indices], -1)
        blocks = self._tables.host[indices, positions // self._block_size]
        fill_padded(host["positions"], positions, 0)
        fill_padded(
            host["slot_mapping"], blocks * self._block_size + positions % self._block_size, -1
        )
        fill_padded(host["token_ids"], np.array(_token_ids(batch, draft), np.int64), 0)
        fill_padded(host["last_indices"], lasts, -1)
        rows = _logits_rows(batch, draft, ends)
        if batch.num_prompt_rows:
            rows = np.append(rows, _prompt_rows(batch, ends - counts))
        fill_padded(host["logits_rows"], rows, 0)
        return len(rows)

    def _inputs(self, size: _Size) -> tuple[dict[str, Tensor], Tensor, AttentionMetadata]:
        """The arrays on the device, the tokens, and where they stand; tables are brought up."""
        arrays = self._staging.on_device(self._layout(size))
        self._tables.apply(arrays["table_places"], arrays["table_values"])
        lasts = arrays["last_indices"]
        known = self._last_token_ids[lasts.clamp(min=0)]
        token_ids = torch.where(lasts >= 0, known, arrays["token_ids"])
        metadata = AttentionMetadata(
            positions=arrays["positions"],
            slot_mapping=arrays["slot_mapping"],
            cu_seqlens_q=arrays["cu_seqlens_q"],
            context_lens=arrays["context_lens"],
            block_tables=self._tables.on_device[: size.num_requests],
            max_query_len=size.max_query_len or None,
        )
        return arrays, token_ids, metadata

    def _run_body(self, size: _Size) -> None:
        arrays, token_ids, metadata = self._inputs(size)
        hidden = cast(SplitNetwork, self._network).body(token_ids, metadata, self.kv_cache)
        if self._hidden is None:
            shape = (self.logits_sizes[-1], hidden.shape[1])
            self._hidden = torch.zeros(shape, dtype=hidden.dtype, device=self._device)
        rows = arrays["logits_rows"]
        torch.index_select(hidden, 0, rows, out=self._hidden[: len(rows)])

    def _run_whole(self, size: _Size, num_rows: int) -> Tensor:
        arrays, token_ids, metadata = self._inputs(size)
        rows = arrays["logits_rows"][:num_rows]
        return self._network.forward(ForwardInput(token_ids, rows, metadata), self.kv_cache).float()


def _place(scheduled: ScheduledRequest) -> _Place:
    position = scheduled.first_position + scheduled.num_tokens - 1
    return scheduled.request, position, scheduled.num_preemptions


def _places(batch: Batch, draft: Draft) -> dict[_Place, int]:
    """The row of each sampled request whose tokens the host knows: they stay what they are."""
    if any(draft.token_ids):
        return {}
    sampled = [scheduled for scheduled in batch.requests if scheduled.is_sampled]
    return {_place(one): row for row, one in enumerate(sampled) if one.last_index < 0}


def _token_ids(batch: Batch, draft: Draft) -> list[int]:
    """All tokens of a step; 0 in place of those that the host does not know."""
    parts: list[Sequence[int]] = []
    for scheduled, drafts in zip(batch.requests, draft.token_ids, strict=True):
        if scheduled.last_index >= 0:
            parts.append((0,))
        else:
            first = scheduled.first_position
            parts.append(scheduled.request.token_ids[first : first + scheduled.num_tokens])
        if drafts:
            parts.append(drafts)
    return list(chain.from_iterable(parts))


def _logits_rows(batch: Batch, draft: Draft, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows to sample from: the last known token's, and those of its guesses."""
    is_sampled = [scheduled.is_sampled for scheduled in batch.requests]
    if not any(draft.token_ids):
        return ends[is_sampled] - 1
    rows: list[int] = []
    for end, sampled, guesses in zip(ends.tolist(), is_sampled, draft.guesses, strict=True):
        if sampled:
            rows += range(end - len(guesses) - 1, end)
    return np.array(rows, np.int64)


def _prompt_rows(batch: Batch, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of prompts that logprobs are asked for."""
    rows: list[int] = []
    for start, scheduled in zip(starts.tolist(), batch.requests, strict=True):
        rows += range(start, start + scheduled.num_prompt_rows)
    return np.array(rows, np.int64)


def _spread(
    counts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of every row the request, and its place among that request's rows."""
    indices = np.repeat(np.arange(len(counts)), counts)
    return indices, np.arange(ends[-1]) - (ends - counts)[indices]
