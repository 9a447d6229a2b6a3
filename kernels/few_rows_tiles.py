"""How the products of few rows are cut into programs: from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

MAX_ROWS = 64  # a program holds all rows of its columns
_NUM_PROGRAMS = 132  # at least so many, one for each multiprocessor of an H100 or H200


@dataclass(frozen=True, slots=True)
class Tiles:
    """One program's share: `block_n` rows of the weight, read `block_k` numbers at a time."""

    block_m: int  # 1 multiplies and sums, 16 or more is a tensor core's product
    block_n: int
    block_k: int
    num_splits: int = 1  # parts of a weight's row, each another program's
    num_warps: int = 4
    num_stages: int = 3
    overlaps: bool = False  # starts before the kernel ahead of it has ended, and fetches weights

    def __post_init__(self) -> None:
        assert self.block_m == 1 or min(self.block_m, self.block_n, self.block_k) >= 16


def choose_tiles(
    num_rows: int,
    num_columns: int,
    size: int,  # of a weight's row
    dtype: torch.dtype,
    *,
    can_split: bool = False,
    overlaps: bool = False,
) -> Tiles:
    """Tiles for [num_rows, size] times [num_columns, size] transposed.

    The weight is read once and is most of what is read, so every multiprocessor must have enough of
    it on its way: some 40 KB at 4 TB/s. One row reads it straight to registers, in many small
    programs. More rows are read again by each program, so there the columns are many, 64 or 128, as
    long as that leaves a program for each multiprocessor; splitting the weight's rows makes up for
    few columns. float32 has no tensor core: small tiles, which fit the registers.
    """
    assert 1 <= num_rows <= MAX_ROWS
    if num_rows == 1:
        block_n = 4 if num_columns < 4 * 1024 else 8
        block_k = min(1024, max(16, int(triton.next_power_of_2(size))))
        return Tiles(1, block_n, block_k, num_stages=1, overlaps=overlaps)
    block_m = max(16, int(triton.next_power_of_2(num_rows)))
    if dtype == torch.float32:
        return Tiles(block_m, 16, 32, num_stages=2, overlaps=overlaps)
    block_n = next((n for n in (128, 64, 32) if num_columns >= n * _NUM_PROGRAMS // 2), 16)
    if can_split and num_columns >= 2048:
        block_n = 64
    block_k = 128 if size % 128 == 0 and block_n < 128 else 64
    num_programs = -(-num_columns // block_n)
    num_splits = 1
    if can_split:
        wanted = -(-_NUM_PROGRAMS // num_programs)
        num_splits = max(1, min(wanted, size // (4 * block_k)))
    return Tiles(block_m, block_n, block_k, num_splits, num_stages=4, overlaps=overlaps)
