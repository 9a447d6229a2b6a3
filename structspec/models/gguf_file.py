"""Read a GGUF file: its metadata as Python values, its tensors dequantised one at a time.

The gguf package's own reader builds two numpy arrays for every string, 2 s for a vocabulary of
49,152; this one walks the header once (0.1 s) and takes only the formats and dequantisation from
the package. Layout: magic, version, counts, then key/value pairs, then tensor infos, then, aligned,
the tensors.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGMLQuantizationType,
    GGUFValueType,
)
from gguf.quants import dequantize

from structspec.errors import ModelError

_MAGIC = b"GGUF"
_SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    shape: tuple[int, ...]  # rows first, as torch has it
    format: GGMLQuantizationType
    offset: int  # behind the start of the tensor data

    @property
    def num_bytes(self) -> int:
        block_size, block_bytes = GGML_QUANT_SIZES[self.format]
        num_bytes: int = math.prod(self.shape) // block_size * block_bytes
        return num_bytes


class GgufFile(Mapping[str, torch.Tensor]):
    """An open file: a mapping from tensor name to float32 tensor, and `metadata`.

    Every access reads and dequantises anew, so only what is held costs memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise ModelError(f"{path} is not a GGUF file")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            header = _HeaderReader(self._data)
            self.metadata = header.metadata
            self._tensors = header.tensors
        except (struct.error, ValueError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} is damaged or not a GGUF this reads: {error}") from None
        alignment = self.metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        self._start = -(-header.offset // alignment) * alignment
        end = max((info.offset + info.num_bytes for info in self._tensors.values()), default=0)
        if self._start + end > len(self._data):
            raise ModelError(f"{path} is cut short: download it again")

    def __getitem__(self, name: str) -> torch.Tensor:
        info = self._tensors[name]
        first = self._start + info.offset
        raw = np.frombuffer(self._data, np.uint8, info.num_bytes, first)
        try:
            numbers = dequantize(raw.reshape(*info.shape[:-1], -1), info.format)
        except NotImplementedError as error:
            raise ModelError(f"{self.path}, tensor {name}: {error}") from None
        # A copy where nothing was converted: the file's memory is read-only.
        numbers = np.require(numbers, np.float32, ["C_CONTIGUOUS", "OWNDATA", "WRITEABLE"])
        return torch.from_numpy(numbers.reshape(info.shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class _HeaderReader:
    """Walks the header front to back; `offset` is where the next value starts."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.offset = len(_MAGIC)
        version = self._scalar("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}")
        num_tensors, num_pairs = self._scalar("Q"), self._scalar("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(num_pairs):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        self.tensors = dict(self._tensor_info() for _ in range(num_tensors))

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self._data, self.offset)
        self.offset += struct.calcsize(f"<{code}")
        return value

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        data, offset, strings = self._data, self.offset, []
        for _ in range(count):
            end = offset + 8 + int.from_bytes(data[offset : offset + 8], "little")
            strings.append(data[offset + 8 : end].decode())
            offset = end
        self.offset = offset
        return strings

    def _value(self, value_type: int) -> Any:
        kind = GGUFValueType(value_type)
        if kind is GGUFValueType.STRING:
            return self._string()
        if kind is GGUFValueType.ARRAY:
            return self._array(GGUFValueType(self._scalar("I")), self._scalar("Q"))
        return self._scalar(_SCALARS[kind])

    def _array(self, kind: GGUFValueType, count: int) -> list[Any]:
        if kind is GGUFValueType.STRING:
            return self._strings(count)
        if kind is GGUFValueType.ARRAY:
            return [self._value(kind) for _ in range(count)]
        layout = struct.Struct(f"<{count}{_SCALARS[kind]}")
        values = layout.unpack_from(self._data, self.offset)
        self.offset += layout.size
        return list(values)

    def _tensor_info(self) -> tuple[str, _TensorInfo]:
        name = self._string()
        shape = tuple(self._scalar("Q") for _ in range(self._scalar("I")))
        tensor_format = GGMLQuantizationType(self._scalar("I"))
        return name, _TensorInfo(shape[::-1], tensor_format, self._scalar("Q"))
