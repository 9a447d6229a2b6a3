"""Forbid in place the tokens whose bit is 0: logit -inf unless bit v of row j is 1.

    for j in range(num_masked_rows):
        for v in range(vocab_size):
            if not bitmask[j, v // 32] >> (v % 32) & 1:
                logits[rows[j], v] = -inf

Rows that are not named are neither read nor written: unconstrained requests cost nothing.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor


@functools.cache
def _upper_bounds(device: torch.device, dtype: torch.dtype) -> Tensor:
    """For every byte and each of its bits: +inf where the bit is 1, -inf where it is 0."""
    byte = torch.arange(256, device=device)[:, None]
    bits = (byte >> torch.arange(8, device=device)) & 1
    return torch.where(bits == 1, float("inf"), float("-inf")).to(dtype)  # [256, 8]


def apply_bitmask_reference(logits: Tensor, bitmask: Tensor, rows: Tensor) -> None:
    """The specification, with a table for eight tokens at a time: this is also the CPU path.

    A minimum, since `masked_fill_` takes five times as long on a CPU.
    """
    table = _upper_bounds(logits.device, logits.dtype)
    for row, words in zip(rows.tolist(), bitmask, strict=True):
        bounds = table.index_select(0, words.view(torch.uint8).int()).view(-1)
        masked = logits[row]
        torch.minimum(masked, bounds[: masked.shape[0]], out=masked)


@triton.jit  # type: ignore[untyped-decorator]
def _apply_bitmask_kernel(
    logits_ptr: tl.tensor,
    bitmask_ptr: tl.tensor,
    rows_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_stride: tl.tensor,
    vocab_size: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    j = tl.program_id(0).to(tl.int64)
    token_ids = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    in_range = token_ids < vocab_size
    words = tl.load(bitmask_ptr + j * bitmask_stride + token_ids // 32, mask=in_range, other=-1)
    is_forbidden = (words >> (token_ids % 32)) & 1 == 0
    row = tl.load(rows_ptr + j)
    # Only forbidden places are written, and none is read.
    tl.store(
        logits_ptr + row * logits_stride + token_ids, float("-inf"), mask=in_range & is_forbidden
    )


def apply_bitmask_triton(logits: Tensor, bitmask: Tensor, rows: Tensor) -> None:
    """The kernel, whatever the device: on a CPU it needs Triton's interpreter."""
    num_masked_rows, vocab_size = rows.shape[0], logits.shape[1]
    if num_masked_rows == 0:
        return
    block_size = 4096
    _apply_bitmask_kernel[(num_masked_rows, triton.cdiv(vocab_size, block_size))](
        logits,
        bitmask,
        rows,
        logits.stride(0),
        bitmask.stride(0),
        vocab_size,
        BLOCK_SIZE=block_size,
    )


def apply_bitmask(
    logits: Tensor,  # [num_rows, vocab_size] float32, bfloat16 or float16
    bitmask: Tensor,  # [num_masked_rows, num_words] int32
    rows: Tensor,  # [num_masked_rows] int64
) -> None:
    """Set every forbidden token's logit to -inf, in place; unnamed rows are left as they are."""
    assert bitmask.shape == (rows.shape[0], (logits.shape[1] + 31) // 32)
    if rows.shape[0] == 0:
        return  # an empty tensor's strides say nothing
    assert logits.is_floating_point() and logits.stride(1) == 1
    assert bitmask.dtype == torch.int32 and bitmask.stride(1) == 1
    assert rows.dtype == torch.int64 and rows.is_contiguous()
    launch = apply_bitmask_triton if logits.is_cuda else apply_bitmask_reference
    launch(logits, bitmask, rows)
