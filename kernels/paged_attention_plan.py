"""How a step's attention is dealt out to programs: chosen from shapes alone, before any launch.

A program takes BLOCK_Q rows of one request, with all heads of one kv head, and a split of the
context. Where every request has at most max_query_len rows, each gets the same number of blocks;
else block numbers are dealt out by an upper bound: request r's first is cu[r] // BLOCK_Q + r.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_NUM_PROGRAMS = 264  # enough to fill a large GPU: two for each of 132 multiprocessors
_MAX_SPLITS = 32  # more take longer to add up than they save


@dataclass(frozen=True, slots=True)
class Launch:
    """How one program works; `part_tiles` tiles of keys in a row go to the same split."""

    tile: int  # keys at once
    part_tiles: int
    num_warps: int
    num_stages: int  # tiles on their way at once, plus one


def choose_launch(block_m: int, dtype: torch.dtype) -> Launch:
    """For programs of `block_m` pairs of row and head."""
    if dtype == torch.float32:  # without matrix units, products live in registers
        return Launch(32, part_tiles=4, num_warps=4 if block_m <= 16 else 8, num_stages=2)
    return Launch(64, part_tiles=2, num_warps=4 if block_m <= 64 else 8, num_stages=3)


def choose_block_q(
    num_rows: int,
    num_requests: int,
    group: int,
    max_query_len: int | None,
    head_dim: int,
    dtype: torch.dtype,
) -> int:
    """Query rows of one program: a request's own where they are few, many for prompts."""
    query_len = max_query_len or -(-num_rows // num_requests)
    # Small heads leave registers for programs of 4 warps that overlap better than one of 8.
    most = 32 if dtype == torch.float32 else 64 if head_dim <= 64 else 128
    block_m = min(most, max(16, int(triton.next_power_of_2(query_len * group))))
    return max(1, block_m // group)


def count_blocks(
    num_rows: int, num_requests: int, block_q: int, max_query_len: int | None
) -> tuple[int, int]:
    """Blocks of the whole step, and of each request; the latter 0 where they have to be found."""
    bound = num_rows // block_q + num_requests
    if max_query_len is not None:
        per_request = -(-max_query_len // block_q)
        if num_requests * per_request <= bound:
            return num_requests * per_request, per_request
    return bound, 0


def choose_num_splits(num_programs: int, max_context: int, launch: Launch) -> int:
    """Splits of each context: enough programs for the machine, each with keys of its own."""
    num_parts = -(-max_context // (launch.tile * launch.part_tiles))
    return max(1, min(_MAX_SPLITS, num_parts, _NUM_PROGRAMS // num_programs))


def plan_blocks(
    cu_seqlens_q: Tensor, num_rows: int, max_query_len: int | None, block_q: int
) -> Tensor | None:
    """Each block's request for all layers of a step; None where it needs no finding."""
    num_requests = len(cu_seqlens_q) - 1
    num_blocks, per_request = count_blocks(num_rows, num_requests, block_q, max_query_len)
    if per_request or num_rows == 0 or num_requests <= 1:
        return None
    return find_block_requests(cu_seqlens_q, num_blocks, block_q)


def find_block_requests_reference(cu_seqlens_q: Tensor, num_blocks: int, block_q: int) -> Tensor:
    """The last request whose first block is not behind the block."""
    num_requests = len(cu_seqlens_q) - 1
    requests = torch.arange(num_requests, device=cu_seqlens_q.device)
    firsts = cu_seqlens_q[:-1] // block_q + requests
    blocks = torch.arange(num_blocks, device=cu_seqlens_q.device)
    return (torch.searchsorted(firsts, blocks, right=True) - 1).int()


@triton.jit(do_not_specialize=["num_blocks"])  # type: ignore[untyped-decorator]
def _find_block_requests_kernel(
    cu_seqlens_q_ptr: tl.tensor,
    block_requests_ptr: tl.tensor,
    num_blocks: tl.tensor,
    BLOCK_Q: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    request = tl.program_id(0)
    first = tl.load(cu_seqlens_q_ptr + request) // BLOCK_Q + request
    end = tl.load(cu_seqlens_q_ptr + request + 1) // BLOCK_Q + request + 1
    if request == tl.num_programs(0) - 1:
        end = end * 0 + num_blocks
    for start in range(first, end, BLOCK_SIZE):
        block = start + tl.arange(0, BLOCK_SIZE)
        tl.store(block_requests_ptr + block, block * 0 + request, mask=block < end)


def find_block_requests_triton(cu_seqlens_q: Tensor, num_blocks: int, block_q: int) -> Tensor:
    """The kernel, one program per request; on a CPU it needs Triton's interpreter."""
    num_requests = len(cu_seqlens_q) - 1
    block_requests = torch.empty(num_blocks, dtype=torch.int32, device=cu_seqlens_q.device)
    if num_requests > 0:
        _find_block_requests_kernel[(num_requests,)](
            cu_seqlens_q, block_requests, num_blocks, BLOCK_Q=block_q, BLOCK_SIZE=64, num_warps=1
        )
    return block_requests


def find_block_requests(
    cu_seqlens_q: Tensor,  # [num_requests + 1] int64
    num_blocks: int,  # num_rows // block_q + num_requests
    block_q: int,
) -> Tensor:
    """Each block's request, [num_blocks] int32: found once for all layers of a step.

    Can be captured in a CUDA graph; requests without rows are harmless.
    """
    assert cu_seqlens_q.dtype == torch.int64 and cu_seqlens_q.is_contiguous()
    find = find_block_requests_triton if cu_seqlens_q.is_cuda else find_block_requests_reference
    return find(cu_seqlens_q, num_blocks, block_q)
