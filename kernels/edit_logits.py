"""Change some logits in place, as bias and penalties ask: one edit names one token of one row.

    for e in range(num_edits):
        x = logits[rows[e], token_ids[e]] + bias[e]
        x = (x / repetition[e] if x > 0 else x * repetition[e]) - penalty[e]
        logits[rows[e], token_ids[e]] = x

No two edits may name the same place. Rows and tokens that are not named are neither read nor
written. (Repetition penalty: Keskar et al., CTRL, 2019.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def edit_logits_reference(
    logits: Tensor,
    rows: Tensor,
    token_ids: Tensor,
    bias: Tensor,
    repetition: Tensor,
    penalty: Tensor,
) -> None:
    """The specification: the formula of the module docstring, in float32."""
    x = logits[rows, token_ids].float() + bias
    x = torch.where(x > 0, x / repetition, x * repetition) - penalty
    logits[rows, token_ids] = x.to(logits.dtype)


@triton.jit(do_not_specialize=["num_edits"])  # type: ignore[untyped-decorator]
def _edit_logits_kernel(
    logits_ptr: tl.tensor,
    logits_stride: tl.tensor,
    rows_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    repetition_ptr: tl.tensor,
    penalty_ptr: tl.tensor,
    num_edits: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    e = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    is_edit = e < num_edits
    row = tl.load(rows_ptr + e, mask=is_edit, other=0).to(tl.int64)
    places = logits_ptr + row * logits_stride + tl.load(token_ids_ptr + e, mask=is_edit, other=0)
    x = tl.load(places, mask=is_edit, other=0.0).to(tl.float32)
    x += tl.load(bias_ptr + e, mask=is_edit, other=0.0)
    repetition = tl.load(repetition_ptr + e, mask=is_edit, other=1.0)
    x = tl.where(x > 0, tl.div_rn(x, repetition), x * repetition)
    x -= tl.load(penalty_ptr + e, mask=is_edit, other=0.0)
    tl.store(places, x, mask=is_edit)


def edit_logits_triton(
    logits: Tensor,
    rows: Tensor,
    token_ids: Tensor,
    bias: Tensor,
    repetition: Tensor,
    penalty: Tensor,
) -> None:
    """The kernel, whatever the device: on a CPU it needs Triton's interpreter."""
    num_edits, block_size = len(rows), 512
    if num_edits == 0:
        return
    _edit_logits_kernel[(triton.cdiv(num_edits, block_size),)](
        logits,
        logits.stride(0),
        rows,
        token_ids,
        bias,
        repetition,
        penalty,
        num_edits,
        BLOCK_SIZE=block_size,
    )


def edit_logits(
    logits: Tensor,  # [num_rows, vocab_size] float32, bfloat16 or float16
    rows: Tensor,  # [num_edits] int32
    token_ids: Tensor,  # [num_edits] int32
    bias: Tensor,  # [num_edits] float32, 0: none
    repetition: Tensor,  # [num_edits] float32 above 0, 1: none
    penalty: Tensor,  # [num_edits] float32, 0: none
) -> None:
    """Apply every edit in place. An infinite logit stays infinite."""
    assert logits.is_floating_point() and logits.stride(1) == 1
    assert rows.dtype == token_ids.dtype == torch.int32
    assert bias.dtype == repetition.dtype == penalty.dtype == torch.float32
    columns = (rows, token_ids, bias, repetition, penalty)
    assert all(each.shape == rows.shape and each.is_contiguous() for each in columns)
    launch = edit_logits_triton if logits.is_cuda else edit_logits_reference
    launch(logits, *columns)
