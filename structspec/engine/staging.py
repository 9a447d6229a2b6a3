"""Arrays of one step packed into one copy from pinned memory to the device.

A copy of many small arrays costs a launch each; packed, it is one. The device side stays where it
is, as CUDA graphs want it. The host side alternates between two buffers: while a step's copy may
still be under way, the next step is packed into the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

_ALIGNMENT = 16  # bytes: what Triton's widest loads want


@dataclass(frozen=True, slots=True)
class Field:
    """One array of a layout."""

    name: str
    dtype: DTypeLike
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where arrays stand in a buffer, one behind the other."""

    fields: tuple[Field, ...]
    offsets: tuple[int, ...]  # in bytes
    num_bytes: int

    def offset(self, name: str) -> int:
        """Where an array begins, in bytes."""
        return next(o for f, o in zip(self.fields, self.offsets, strict=True) if f.name == name)


def make_layout(fields: Sequence[Field]) -> Layout:
    """Each array aligned for vector loads."""
    offsets, end = [], 0
    for field in fields:
        offsets.append(end)
        size = field.size * np.dtype(field.dtype).itemsize
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return Layout(tuple(fields), tuple(offsets), end)


class Staging:
    """One buffer on the device and two on the host; used by one thread."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        is_pinned = device.type == "cuda"
        self._host = [
            torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=is_pinned) for _ in range(2)
        ]
        self._device = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        self._turn = 0

    def host(self, layout: Layout) -> dict[str, NDArray[np.generic]]:
        """The arrays to fill for the next `send`."""
        self._turn = 1 - self._turn
        return _arrays(self._host[self._turn], layout)

    def send(self, layout: Layout) -> None:
        """Copy what was filled to the device, in the order of the current stream."""
        size = layout.num_bytes
        self._device[:size].copy_(self._host[self._turn][:size], non_blocking=True)

    def on_device(self, layout: Layout) -> dict[str, Tensor]:
        """The same arrays on the device; they stay where they are for ever."""
        return _tensors(self._device, layout)


def send_arrays(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """Arrays of any lengths on the device, copied in one go and without waiting for it."""
    layout = make_layout([Field(name, each.dtype, each.size) for name, each in arrays.items()])
    host = torch.empty(layout.num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for name, array in _arrays(host, layout).items():
        array[:] = arrays[name]
    return _tensors(host.to(device, non_blocking=True), layout)


def _arrays(buffer: Tensor, layout: Layout) -> dict[str, NDArray[np.generic]]:
    data = buffer.numpy()
    return {
        field.name: data[offset : offset + field.size * np.dtype(field.dtype).itemsize].view(
            field.dtype
        )
        for field, offset in zip(layout.fields, layout.offsets, strict=True)
    }


def _tensors(buffer: Tensor, layout: Layout) -> dict[str, Tensor]:
    views = {}
    for field, offset in zip(layout.fields, layout.offsets, strict=True):
        size = field.size * np.dtype(field.dtype).itemsize
        dtype = torch.from_numpy(np.empty(0, field.dtype)).dtype
        views[field.name] = buffer[offset : offset + size].view(dtype)
    return views


def fill_padded(array: NDArray[Any], values: Sequence[int] | NDArray[Any], padding: int) -> None:
    """Fill the whole array: the values, and behind them padding."""
    array[: len(values)] = values
    array[len(values) :] = padding
