"""Prompt lookup on the device: its table of tokens is kept there, and the host only adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.drafters.base import count_slots, looked_up
from structspec.drafters.request_rows import RequestRows
from structspec.engine.batch import Batch, Draft
from structspec.kernels.ngram_search import ngram_search
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig

_MIN_WIDTH = 256


class _Ask(NamedTuple):
    """A request of the step, by its place, and how many tokens it may draft."""

    place: int
    request: Request
    limit: int


class NgramGpuDrafter:
    """Drafts what NgramDrafter does; all requests of a step are searched by the device at once.

    On a stream of its own, beside the step that runs: one copy there, the kernels, one copy back,
    and the host waits for that alone. A request has a row of the table until it is finished; the
    table grows with the requests and the longest of them, 4 bytes a token.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        self._shortest, self._longest = config.prompt_lookup_min, config.prompt_lookup_max
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._stream = _beside(device) if self._is_cuda else None
        self._rows = RequestRows()
        with self._lane():
            self._table = torch.zeros((1, _MIN_WIDTH), dtype=torch.int32, device=device)
        # compiles, so that no request waits for it
        self._search(np.zeros(2, np.int64), num_requests=1, max_length=0, num_drafts=1)

    def propose(self, batch: Batch) -> Draft:
        """The n-gram continuation of each request, unaware of grammars."""
        self._rows.forget_finished()
        asks = [
            _Ask(place, scheduled.request, limit)
            for place, scheduled in enumerate(batch.requests)
            if (limit := count_slots(scheduled)) > 0 and scheduled.may_guess
        ]
        drafts: list[Sequence[int]] = [()] * len(batch.requests)
        if asks:
            for ask, draft in zip(asks, self._draft(asks), strict=True):
                drafts[ask.place] = draft[: ask.limit]
        return looked_up(drafts, batch)

    @torch.inference_mode()
    def _draft(self, asks: Sequence[_Ask]) -> list[list[int]]:
        rows, starts, lengths = [], [], []
        new: list[int] = []
        for ask in asks:
            row = self._rows.of(ask.request)
            known = ask.request.token_ids
            rows.append(row.index)
            starts.append(row.num_known)
            lengths.append(len(known))
            new += known[row.num_known :]
            row.num_known = len(known)
        max_length = max(lengths)
        with self._lane():
            self._make_room(max_length)
        row_ids, firsts, ends, token_ids = (
            np.array(values, np.int64) for values in (rows, starts, lengths, new)
        )
        places = _runs(row_ids * self._table.shape[1] + firsts, ends - firsts)
        numbers = np.concatenate((row_ids, ends, places, token_ids))
        num_drafts = max(ask.limit for ask in asks)
        return self._search(numbers, len(asks), max_length, num_drafts)

    @torch.inference_mode()
    def _search(
        self, numbers: NDArray[np.int64], num_requests: int, max_length: int, num_drafts: int
    ) -> list[list[int]]:
        """Write tokens into the table, then look: `numbers` are rows, lengths, places, tokens."""
        with self._lane():
            sent = self._send(numbers)
            rows, lengths = sent[:num_requests], sent[num_requests : 2 * num_requests]
            places, token_ids = sent[2 * num_requests :].chunk(2)
            self._table.view(-1).index_copy_(0, places, token_ids.int())
            drafts, counts = ngram_search(
                self._table,
                rows,
                lengths,
                self._shortest,
                self._longest,
                num_drafts,
                max_length=max_length,
            )
            found = self._read(torch.cat((counts[:, None], drafts), 1))
        return [draft[:count] for count, *draft in found]

    def _lane(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _send(self, numbers: NDArray[np.int64]) -> Tensor:
        sent = torch.from_numpy(numbers)
        return sent.pin_memory().to(self._device, non_blocking=True) if self._is_cuda else sent

    def _read(self, found: Tensor) -> list[list[int]]:
        """Wait for these numbers, and for nothing that other streams do."""
        if self._stream is not None:
            host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
            host.copy_(found, non_blocking=True)
            self._stream.synchronize()
            found = host
        rows: list[list[int]] = found.tolist()
        return rows

    def _make_room(self, width: int) -> None:
        """Rows for all requests, each for so many tokens; what they hold is kept."""
        num_rows, old_width = self._table.shape
        if self._rows.num_used <= num_rows and width <= old_width:
            return
        wider = max(old_width, 2 * width if width > old_width else 0)
        more = max(num_rows, 2 * self._rows.num_used if self._rows.num_used > num_rows else 0)
        table = torch.zeros((more, wider), dtype=torch.int32, device=self._device)
        table[:num_rows, :old_width] = self._table
        self._table = table


def _beside(device: torch.device) -> torch.cuda.Stream:
    """A stream that works beside the one that computes steps."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


def _runs(firsts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """So many numbers from each first on, one run behind the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(firsts - before, lengths) + np.arange(lengths.sum())
