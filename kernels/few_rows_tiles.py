"""How the products of few rows are cut into programs: from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import triton

MAX_ROWS = 128
_NUM_PROGRAMS = 132  # at least so many, one for each multiprocessor of an H100 or H200
_SHARED_MEMORY = 220 * 1024  # bytes that a multiprocessor has for them
_SHORT = 20 * 2**20  # numbers in a weight that is read in less than 10 us, or so

Overlap = Literal["", "early", "late"]


@dataclass(frozen=True, slots=True)
class Tiles:
    """One program's share: `block_n` rows of the weight, read `block_k` numbers at a time."""

    block_m: int  # rows of x; 1 multiplies and sums, 16 or more is a tensor core's product
    block_n: int
    block_k: int
    num_splits: int = 1  # parts of a weight's row, each another program's
    num_warps: int = 4
    num_stages: int = 3
    overlap: Overlap = ""  # with the kernels ahead and behind: see few_rows_product

    def __post_init__(self) -> None:
        assert self.block_m == 1 or min(self.block_m, self.block_n, self.block_k) >= 16


def choose_tiles(
    num_rows: int,
    num_columns: int,
    size: int,  # of a weight's row
    dtype: torch.dtype,
    *,
    can_split: bool = False,
    can_overlap: bool = False,
) -> Tiles:
    """Tiles for [num_rows, size] times [num_columns, size] transposed.

    The weight is most of what is read, so every multiprocessor must have enough of it on its way:
    some 40 KB at 4 TB/s. One row reads it straight to registers, in many small programs. With more
    rows a program reads those too, so its columns are many where the weight is large; splitting the
    weight's rows makes up for few columns. float32 has no tensor core: small tiles, which fit the
    registers.
    """
    assert 1 <= num_rows <= MAX_ROWS
    is_short = num_columns * size <= _SHORT
    overlap: Overlap = ("early" if is_short or num_rows == 1 else "late") if can_overlap else ""
    # where rows don't fill steps of 512, long weights are read faster by a tensor core's product
    if num_rows == 1 and (is_short or size % 512 == 0 or dtype == torch.float32):
        return replace(_one_row(num_columns, size), overlap=overlap)
    # a short weight stays in the L2 cache: read again, it gives more programs
    largest = 32 if is_short or dtype == torch.float32 else 64
    block_m = min(largest, max(16, int(triton.next_power_of_2(num_rows))))
    if dtype == torch.float32:
        return Tiles(block_m, 16, 32, num_stages=2, overlap=overlap)
    tiles = (_split if can_split else _whole)(block_m, num_columns, size)
    num_stages = _num_stages(tiles, has_norm=not can_split)
    return replace(tiles, num_stages=num_stages, overlap=overlap)


def _one_row(num_columns: int, size: int) -> Tiles:
    block_k = min(1024, max(16, int(triton.next_power_of_2(size))))
    if num_columns < 4 * 1024:
        return Tiles(1, 4, block_k, num_stages=1)
    if num_columns < 5 * 1024 or block_k < 1024:
        return Tiles(1, 8, block_k, num_stages=1)
    if num_columns < 64 * 1024:
        return Tiles(1, 16, 512, num_stages=1)
    return Tiles(1, 8, 512, num_stages=4)


def _split(block_m: int, num_columns: int, size: int) -> Tiles:
    """For sums that several programs may share."""
    if num_columns < 16 * 64:
        block_n, block_k = 16, 128 if size % 128 == 0 else 64
    else:
        block_n, block_k = 64, 128 if block_m <= 32 else 64
    # as many parts as a multiprocessor has room for two, each long enough to be read ahead
    wanted = 2 * _NUM_PROGRAMS // -(-num_columns // block_n)
    most = 4 if block_m == 16 or block_n == 16 else 2
    num_splits = max(1, min(wanted, most, size // (3 * block_k)))
    return Tiles(block_m, block_n, block_k, num_splits)


def _whole(block_m: int, num_columns: int, size: int) -> Tiles:
    """For sums of one program each."""
    if num_columns >= 128 * _NUM_PROGRAMS:
        return Tiles(block_m, 128, 64)
    if num_columns * size > _SHORT // 4 and block_m <= 32:
        return Tiles(block_m, 32, 128)
    return Tiles(block_m, 64 if num_columns >= 2048 else 16, 64)


def _num_stages(tiles: Tiles, has_norm: bool) -> int:
    """Steps that are read ahead, so that there is room for two programs on a multiprocessor."""
    num_rows = tiles.block_n + tiles.block_m * (2 if has_norm else 1)  # the norm's, one for each
    return max(2, min(5, _SHARED_MEMORY // 2 // (2 * tiles.block_k * num_rows)))
