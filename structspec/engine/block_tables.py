"""The batch's block tables on the device, kept up by what changes from step to step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from structspec.request import Request

MAX_UPDATES = 64  # entries that travel with a step; more are sent beforehand


class BlockTables:
    """Row i is the table of the step's request i; used by one thread.

    `host` mirrors what the device will have. A step that changes little, such as a decode step with
    a new block for one request in sixteen, sends just that.
    """

    def __init__(self, max_num_requests: int, width: int, device: torch.device) -> None:
        self.host: NDArray[np.int64] = np.zeros((max_num_requests, width), np.int64)
        # one more than there are entries: where padding is written to
        self._flat = torch.zeros(max_num_requests * width + 1, dtype=torch.int64, device=device)
        self.on_device = self._flat[:-1].view(max_num_requests, width)
        self._owners = [-1] * max_num_requests

    def update(
        self,
        requests: Sequence[Request],
        places: NDArray[np.int64],  # [MAX_UPDATES], filled
        values: NDArray[np.int64],  # [MAX_UPDATES], filled
    ) -> None:
        """Take in a step's tables; what does not fit into `places` is sent at once."""
        changes: list[tuple[int, int]] = []  # place in the flat table, block
        width = self.host.shape[1]
        for row, request in enumerate(requests):
            table = request.block_table
            start = request.num_sent_blocks
            if self._owners[row] != request.request_id or request.table_row != row:
                self._owners[row], request.table_row = request.request_id, row
                start = 0
            if start < len(table):
                self.host[row, start : len(table)] = table[start:]
                changes += enumerate(table[start:], row * width + start)
            request.num_sent_blocks = len(table)
        num_kept = min(len(changes), MAX_UPDATES)
        places[num_kept:] = self.host.size
        values[num_kept:] = 0
        if changes:
            flat = np.array(changes, np.int64)
            if len(changes) > MAX_UPDATES:
                self._send(flat[MAX_UPDATES:])
            places[:num_kept], values[:num_kept] = flat[:num_kept, 0], flat[:num_kept, 1]

    def apply(self, places: torch.Tensor, values: torch.Tensor) -> None:
        """Write updates that are on the device; can be captured in a CUDA graph."""
        self._flat.index_copy_(0, places, values)

    def _send(self, changes: NDArray[np.int64]) -> None:
        host = torch.from_numpy(changes)
        if self._flat.is_cuda:  # from pageable memory a copy would wait for the step that runs
            host = host.pin_memory()
        sent = host.to(self._flat.device, non_blocking=True)
        self._flat.index_copy_(0, sent[:, 0], sent[:, 1])
