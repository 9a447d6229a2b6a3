"""Which drafts stand, and the one token that follows them, distributed as the target alone.

p: target_probs, q: the distribution the draft was drawn from, u: uniforms in [0, 1)

    for each request i:                        # 1 + k rows of p, one for each draft and the bonus
        for j in range(k):
            if j == num_valid or not u_accept[j] * q[d_j] < p[d_j]:
                return d_0 … d_(j-1), draw(max(p - q, 0))   # recovered
        return d_0 … d_(k-1), draw(p)                       # bonus

A one-hot draft has q[d] = 1 and 0 elsewhere: max(p - q, 0) is then p without its draft token.
`draw` is that of sample.py. Where rounding alone caused the rejection, max(p - q, 0) is empty and
p itself is drawn from.

Randomness is an input, so this is a function: summing over a grid of uniforms gives its exact
distribution. Request i's drafts start at cu_num_draft_tokens[i], its rows at the same plus i.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.sample import find_token, sample_reference, sum_weights


def _residual(p: Tensor, draft_token_id: int, q: Tensor | None) -> Tensor:
    """max(p - q, 0), or p where that is empty."""
    weights = (p.double() - q).clamp(min=0) if q is not None else p.clone()
    if q is None:
        weights[draft_token_id] = 0
    return weights if weights.any() else p


def rejection_sample_reference(
    target_probs: Tensor,
    draft_token_ids: Tensor,
    draft_probs: Tensor | None,
    draft_probs_rows: Tensor | None,
    cu_num_draft_tokens: Tensor,
    num_valid: Tensor,
    accept_uniform: Tensor,
    draw_uniform: Tensor,
    max_num_drafts: int,
) -> tuple[Tensor, Tensor]:
    """The specification: the loop of the module docstring."""
    drafts = draft_token_ids.tolist()
    q_rows = [-1] * len(drafts) if draft_probs_rows is None else draft_probs_rows.tolist()
    cu, uniforms = cu_num_draft_tokens.tolist(), accept_uniform.tolist()
    outputs: list[list[int]] = []
    for i, valid in enumerate(num_valid.tolist()):
        first, end = cu[i], cu[i + 1]
        weights = target_probs[end + i]
        output: list[int] = []
        for j in range(first, end):
            d, p = drafts[j], target_probs[j + i]
            q = draft_probs[q_rows[j]] if draft_probs is not None and q_rows[j] >= 0 else None
            q_d = 1.0 if q is None else float(q[d])
            if j - first == valid or not uniforms[j] * q_d < float(p[d]):
                weights = _residual(p, d, q)
                break
            output.append(d)
        output += sample_reference(weights[None], draw_uniform[i : i + 1]).tolist()
        outputs.append(output)
    return pad_outputs(outputs, max_num_drafts, target_probs.device)


def pad_outputs(
    outputs: list[list[int]], max_num_drafts: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Each request's accepted drafts and its last token, as tensors."""
    width = max_num_drafts + 1
    padded = [row + [-1] * (width - len(row)) for row in outputs]
    token_ids = torch.tensor(padded, dtype=torch.int64, device=device).view(-1, width)
    num_accepted = [len(row) - 1 for row in outputs]
    return token_ids, torch.tensor(num_accepted, dtype=torch.int32, device=device)


@triton.jit  # type: ignore[untyped-decorator]
def _rejection_sample_kernel(
    target_probs_ptr: tl.tensor,
    draft_token_ids_ptr: tl.tensor,
    draft_probs_ptr: tl.tensor,
    draft_probs_rows_ptr: tl.tensor,
    cu_num_draft_tokens_ptr: tl.tensor,
    num_valid_ptr: tl.tensor,
    accept_uniform_ptr: tl.tensor,
    draw_uniform_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    vocab_size: tl.tensor,
    max_num_drafts: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    i = tl.program_id(0)
    first = tl.load(cu_num_draft_tokens_ptr + i)
    num_drafts = tl.load(cu_num_draft_tokens_ptr + i + 1) - first
    num_valid = tl.load(num_valid_ptr + i)
    output_ptr = token_ids_ptr + i * (max_num_drafts + 1)

    num_accepted = 0
    for j in range(num_drafts):
        if num_accepted == j and j != num_valid:
            d = tl.load(draft_token_ids_ptr + first + j)
            p_d = tl.load(target_probs_ptr + (first + i + j).to(tl.int64) * vocab_size + d)
            q_row = tl.load(draft_probs_rows_ptr + first + j)
            q_d = tl.load(draft_probs_ptr + q_row * vocab_size + d, mask=q_row >= 0, other=1.0)
            u = tl.load(accept_uniform_ptr + first + j)
            if u * q_d.to(tl.float64) < p_d.to(tl.float64):
                tl.store(output_ptr + j, d)
                num_accepted += 1
    tl.store(num_accepted_ptr + i, num_accepted)

    is_rejected = num_accepted < num_drafts
    last = first + num_accepted  # the rejected draft, or the bonus row's place
    d = tl.load(draft_token_ids_ptr + last, mask=is_rejected, other=-1)
    q_row = tl.load(draft_probs_rows_ptr + last, mask=is_rejected, other=-1)
    p_ptr = target_probs_ptr + (last + i).to(tl.int64) * vocab_size
    q_ptr = draft_probs_ptr + q_row * vocab_size
    q_size = tl.where(q_row >= 0, vocab_size, 0)
    one_hot_id = tl.where(q_row >= 0, -1, d)

    total = sum_weights(p_ptr, 1.0, q_ptr, q_size, one_hot_id, vocab_size, BLOCK_SIZE)
    if total == 0.0:
        q_size, one_hot_id = q_size * 0, one_hot_id * 0 - 1
        total = sum_weights(p_ptr, 1.0, q_ptr, q_size, one_hot_id, vocab_size, BLOCK_SIZE)
    threshold = tl.load(draw_uniform_ptr + i) * total
    drawn = find_token(p_ptr, 1.0, q_ptr, q_size, one_hot_id, threshold, vocab_size, BLOCK_SIZE)
    tl.store(output_ptr + num_accepted, drawn)


def rejection_sample_triton(
    target_probs: Tensor,
    draft_token_ids: Tensor,
    draft_probs: Tensor | None,
    draft_probs_rows: Tensor | None,
    cu_num_draft_tokens: Tensor,
    num_valid: Tensor,
    accept_uniform: Tensor,
    draw_uniform: Tensor,
    max_num_drafts: int,
) -> tuple[Tensor, Tensor]:
    """The kernel, one program per request; on a CPU it needs Triton's interpreter."""
    num_requests, device = num_valid.shape[0], target_probs.device
    token_ids = torch.full((num_requests, max_num_drafts + 1), -1, device=device)
    num_accepted = torch.zeros(num_requests, dtype=torch.int32, device=device)
    if num_requests == 0:
        return token_ids, num_accepted
    if draft_probs_rows is None:
        draft_probs_rows = torch.full_like(draft_token_ids, -1)
    _rejection_sample_kernel[(num_requests,)](
        target_probs,
        draft_token_ids,
        target_probs if draft_probs is None else draft_probs,  # never read where all are one-hot
        draft_probs_rows,
        cu_num_draft_tokens,
        num_valid,
        accept_uniform,
        draw_uniform,
        token_ids,
        num_accepted,
        target_probs.shape[1],
        max_num_drafts,
        BLOCK_SIZE=4096,
    )
    return token_ids, num_accepted


def rejection_sample(
    target_probs: Tensor,  # [num_drafts + num_requests, vocab_size] float32; rows sum to 1
    draft_token_ids: Tensor,  # [num_drafts] int64
    draft_probs: Tensor | None,  # [num_draft_probs, vocab_size] float32; None: all are one-hot
    draft_probs_rows: Tensor | None,  # [num_drafts] int64: q's row in draft_probs, -1: one-hot
    cu_num_draft_tokens: Tensor,  # [num_requests + 1] int32
    num_valid: Tensor,  # [num_requests] int32: the draft there, if any, is rejected
    accept_uniform: Tensor,  # [num_drafts] float64
    draw_uniform: Tensor,  # [num_requests] float64
    max_num_drafts: int,
) -> tuple[Tensor, Tensor]:
    """Accepted drafts and one more token per request, and how many drafts were accepted.

    Returns token_ids [num_requests, max_num_drafts + 1] int64, padded with -1, and num_accepted
    [num_requests] int32. Never returns a token of probability 0.
    """
    check_arguments(
        target_probs,
        draft_token_ids,
        draft_probs,
        draft_probs_rows,
        cu_num_draft_tokens,
        num_valid,
        accept_uniform,
        draw_uniform,
    )
    launch = rejection_sample_triton if target_probs.is_cuda else rejection_sample_reference
    return launch(
        target_probs,
        draft_token_ids,
        draft_probs,
        draft_probs_rows,
        cu_num_draft_tokens,
        num_valid,
        accept_uniform,
        draw_uniform,
        max_num_drafts,
    )


def check_arguments(
    target_probs: Tensor,
    draft_token_ids: Tensor,
    draft_probs: Tensor | None,
    draft_probs_rows: Tensor | None,
    cu_num_draft_tokens: Tensor,
    num_valid: Tensor,
    accept_uniform: Tensor,
    draw_uniform: Tensor,
) -> None:
    """Shapes and dtypes as `rejection_sample` wants them."""
    num_drafts, num_requests = draft_token_ids.shape[0], num_valid.shape[0]
    vocab_size = target_probs.shape[1]
    _check(target_probs, torch.float32, num_drafts + num_requests, vocab_size)
    _check(draft_token_ids, torch.int64, num_drafts)
    _check(cu_num_draft_tokens, torch.int32, num_requests + 1)
    _check(num_valid, torch.int32, num_requests)
    _check(accept_uniform, torch.float64, num_drafts)
    _check(draw_uniform, torch.float64, num_requests)
    assert (draft_probs is None) == (draft_probs_rows is None)
    if draft_probs is not None and draft_probs_rows is not None:
        _check(draft_probs, torch.float32, draft_probs.shape[0], vocab_size)
        _check(draft_probs_rows, torch.int64, num_drafts)


def _check(tensor: Tensor, dtype: torch.dtype, *shape: int) -> None:
    assert tensor.dtype == dtype and tensor.shape == shape and tensor.is_contiguous()
