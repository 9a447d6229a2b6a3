"""Run the target model on a GPU: steps whose arrays never move, captured as CUDA graphs by size.

    body (num_rows)           tables, tokens -> hidden states, of them the rows to sample from
    head (num_logits_rows)    those -> logits

A step's arrays travel in one copy and land where the graphs read them. A token that the step before
has not told the host yet is read where its sampler wrote it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft
from structspec.engine.block_tables import MAX_UPDATES, BlockTables
from structspec.engine.graphs import Graphs, bucket_sizes
from structspec.engine.kv_cache import KVCache
from structspec.engine.memory import build_kv_cache
from structspec.engine.staging import Field, Layout, Staging, make_layout
from structspec.models.inputs import AttentionMetadata, ForwardInput
from structspec.models.network import Network

MAX_GRAPH_ROWS = 512  # beyond, kernels take longer than their launches
_ROW_STEP = 64  # there, sizes are multiples of this: memory that one step freed fits the next


class _Size(NamedTuple):
    """Of a step's arrays, padding included."""

    num_rows: int
    num_requests: int


class SplitNetwork(Network, Protocol):
    """A network that can be run in two parts, each without looking at its inputs' values."""

    def body(self, token_ids: Tensor, metadata: AttentionMetadata, kv_cache: KVCache) -> Tensor:
        """The hidden states of all rows."""

    def head(self, hidden: Tensor) -> Tensor:
        """The logits of some of them."""


class DeviceRunner:
    """The target model and its KV cache on one device; used by one thread.

    Logits are launched, not awaited, and are overwritten by the next step. `last_token_ids` must be
    the tensor given to the constructor: graphs read it where it is.
    """

    def __init__(self, network: Network, config: EngineConfig, last_token_ids: Tensor) -> None:
        self._network = network
        self._device = network.device
        self._config = config
        self._block_size = config.block_size
        self.kv_cache = build_kv_cache(network, config)
        self.max_num_logits_rows = max_num_logits_rows(config)
        self._max_num_rows = max_num_rows = config.max_num_batched_tokens
        max_len = min(network.config.max_model_len, self.kv_cache.num_blocks * config.block_size)
        self._tables = BlockTables(
            config.max_num_requests, -(-max_len // config.block_size), self._device
        )
        self._last_token_ids = last_token_ids
        self._can_split = hasattr(network, "body")
        sizes = bucket_sizes(min(MAX_GRAPH_ROWS, max_num_rows))
        self._body = Graphs(self._run_body, [self._graph_size(size) for size in sizes])
        self._head = Graphs(self._run_head, bucket_sizes(self.max_num_logits_rows))
        self._layout = functools.lru_cache(maxsize=256)(self._make_layout)
        largest = self._layout(_Size(max_num_rows, config.max_num_requests))
        self._staging = Staging(largest.num_bytes, self._device)
        self._hidden: Tensor | None = None  # [max_num_logits_rows, hidden_size]

    def fit_logits(self, num_rows: int) -> int:
        """How many logits rows are computed where so many are wanted."""
        return self._head.fit(max(1, num_rows))

    def capture(self, pool: Any) -> None:
        """Record the graphs; afterwards nothing is compiled in a request's time."""
        self._body.capture(pool)
        self._head.capture(pool)

    @property
    def can_capture(self) -> bool:
        """Whether the network's work can be recorded; else each step's kernels are launched."""
        return self._can_split

    def warm_up(self) -> None:
        """Compile the kernels of steps that are not captured; block 0 is scribbled."""
        for num_rows in {self._max_num_rows, self._body.sizes[-1].num_rows + 1}:
            size = self._fit(min(num_rows, self._max_num_rows), 1)
            if self._can_split:
                self._run_body(size)
            else:
                self._run_whole(size, 1)

    def captured_logits(self, num_rows: int) -> Tensor:
        """Where the head's graph of this size leaves its logits."""
        logits: Tensor = self._head.output(num_rows)
        return logits

    def forward(self, batch: Batch, draft: Draft, last_token_ids: Tensor | None = None) -> Tensor:
        """Logits [fit_logits(num_rows), vocab_size]: those of 1 + guesses rows per sampled request.

        They stand in the batch's order; rows behind them are noise. Keys and values of all computed
        tokens and drafts are written at their positions: block tables must have room for them.
        """
        assert last_token_ids is None or last_token_ids is self._last_token_ids
        counts = np.array(
            [
                scheduled.num_tokens + len(drafts)
                for scheduled, drafts in zip(batch.requests, draft.token_ids, strict=True)
            ],
            np.int64,
        )
        size = self._fit(int(counts.sum()), len(counts))
        layout = self._layout(size)
        num_logits_rows = self._pack(self._staging.host(layout), batch, draft, counts)
        self._staging.send(layout)
        num_fitted = self.fit_logits(num_logits_rows)
        if not self._can_split:
            return self._run_whole(size, num_fitted)
        self._body(size)
        logits: Tensor = self._head(num_fitted)
        return logits

    def _fit(self, num_rows: int, num_requests: int) -> _Size:
        """The captured size that takes so many, or about that many where kernels are launched."""
        if num_rows <= self._body.sizes[-1].num_rows:
            return self._body.fit(self._graph_size(num_rows))
        return _Size(min(-(-num_rows // _ROW_STEP) * _ROW_STEP, self._max_num_rows), num_requests)

    def _graph_size(self, num_rows: int) -> _Size:
        return _Size(num_rows, min(num_rows, self._config.max_num_requests))

    def _make_layout(self, size: _Size) -> Layout:
        num_rows, num_requests = size
        return make_layout(
            (
                Field("token_ids", np.int64, num_rows),
                Field("last_indices", np.int64, num_rows),
                Field("positions", np.int64, num_rows),
                Field("slot_mapping", np.int64, num_rows),
                Field("cu_seqlens_q", np.int64, num_requests + 1),
                Field("context_lens", np.int64, num_requests),
                Field("logits_rows", np.int64, min(num_rows, self.max_num_logits_rows)),
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
    ) -> int:
        """Fill a step's arrays, padding included; how many logits rows it has."""
        requests, num_requests, num_rows = batch.requests, len(counts), int(counts.sum())
        self._tables.update(
            [scheduled.request for scheduled in requests],
            host["table_places"],
            host["table_values"],
        )
        ends = np.cumsum(counts)
        firsts = np.array([scheduled.first_position for scheduled in requests], np.int64)
        indices = np.repeat(np.arange(num_requests), counts)
        positions = np.arange(num_rows) + np.repeat(firsts - ends + counts, counts)
        blocks = self._tables.host[indices, positions // self._block_size]
        _fill(host["positions"], positions, 0)
        _fill(host["slot_mapping"], blocks * self._block_size + positions % self._block_size, -1)
        _fill(host["context_lens"], firsts + counts, 0)
        host["cu_seqlens_q"][0] = 0
        _fill(host["cu_seqlens_q"][1:], ends, num_rows)
        lasts = np.array([scheduled.last_index for scheduled in requests], np.int64)
        _fill(host["token_ids"], np.array(_token_ids(batch, draft), np.int64), 0)
        _fill(host["last_indices"], np.repeat(lasts, counts), -1)
        if (lasts >= 0).any():  # what stands behind a request's last token are drafts, and known
            is_behind = np.arange(num_rows) != np.repeat(ends - counts, counts)
            host["last_indices"][:num_rows][is_behind] = -1
        rows = _logits_rows(batch, draft, ends)
        _fill(host["logits_rows"], rows, 0)
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
            block_tables=self._tables.on_device[: len(arrays["context_lens"])],
        )
        return arrays, token_ids, metadata

    def _run_body(self, size: _Size) -> None:
        arrays, token_ids, metadata = self._inputs(size)
        hidden = cast(SplitNetwork, self._network).body(token_ids, metadata, self.kv_cache)
        if self._hidden is None:
            shape = (self.max_num_logits_rows, hidden.shape[1])
            self._hidden = torch.zeros(shape, dtype=hidden.dtype, device=self._device)
        rows = arrays["logits_rows"]
        torch.index_select(hidden, 0, rows, out=self._hidden[: len(rows)])

    def _run_head(self, num_rows: int) -> Tensor:
        assert self._hidden is not None, "the head has nothing to work on before the body ran"
        return cast(SplitNetwork, self._network).head(self._hidden[:num_rows])

    def _run_whole(self, size: _Size, num_rows: int) -> Tensor:
        arrays, token_ids, metadata = self._inputs(size)
        rows = arrays["logits_rows"][:num_rows]
        return self._network.forward(ForwardInput(token_ids, rows, metadata), self.kv_cache).float()


def max_num_logits_rows(config: EngineConfig) -> int:
    """The most rows that one step can sample from."""
    most = config.max_num_requests + config.max_num_draft_tokens
    return min(most, config.max_num_batched_tokens)


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


def _fill(array: NDArray[Any], values: NDArray[Any], padding: int) -> None:
    array[: len(values)] = values
    array[len(values) :] = padding
