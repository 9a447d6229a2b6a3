"""Which drafts stand, judged as one block, and the token behind them, distributed as the target.

Sun et al., "Block Verification Accelerates Speculative Decoding" (ICLR 2025). It never accepts
fewer drafts on average than rejection_sample, for a rejected draft may still stand where those
behind it make up for it. p: target_probs, q: what the drafts were drawn from, u: uniforms

    for each request i:                        # 1 + k rows of p, one for each draft and the bonus
        w, n, weights = 1, 0, max(p[0] - q[0], 0)
        for j in range(min(k, num_valid)):
            w = min(1, w * p[j][d_j] / q[j][d_j])
            rest = max(w * p[j + 1] - q[j + 1], 0)          # q[k] = 0
            if w == 1 or u[j] < sum(rest) / (sum(rest) + 1 - w):
                n, weights = j + 1, rest
        return d_0 … d_(n-1), draw(weights)

A draft that is forbidden has p = 0. Behind it w, `rest` and the chance to stand are 0, so no block
ends there, and the loop may end at num_valid. The row at num_valid counts like any other, its q
with the forbidden share in it.

The product of p(d) bounds how likely one-hot drafts can stand, and rejection_sample attains it:
they gain nothing here. `draw`, one-hot drafts and the layout are those of rejection_sample.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.rejection_sample import check_arguments, pad_outputs
from structspec.kernels.sample import find_token, sample_reference, sum_weights


def block_verification_reference(
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
    drafts, uniforms = draft_token_ids.tolist(), accept_uniform.tolist()
    q_rows = [-1] * len(drafts) if draft_probs_rows is None else draft_probs_rows.tolist()
    cu, vocab_size = cu_num_draft_tokens.tolist(), target_probs.shape[1]

    def q(j: int, end: int) -> Tensor:
        if j < end and draft_probs is not None and q_rows[j] >= 0:
            return draft_probs[q_rows[j]].double()
        row = target_probs.new_zeros(vocab_size, dtype=torch.float64)
        if j < end:
            row[drafts[j]] = 1
        return row

    outputs: list[list[int]] = []
    for i, valid in enumerate(num_valid.tolist()):
        first, end = cu[i], cu[i + 1]
        p = target_probs[first + i : end + i + 1]
        w, n, weights = 1.0, 0, (p[0] - q(first, end)).clamp(min=0)
        for j in range(min(end - first, valid)):
            d = drafts[first + j]
            w = _weigh(w * float(p[j, d]), float(q(first + j, end)[d]))
            rest = (w * p[j + 1].double() - q(first + j + 1, end)).clamp(min=0)
            total = float(rest.sum())
            if w == 1 or uniforms[first + j] * (total + 1 - w) < total:
                n, weights = j + 1, rest
        if not weights.any():  # p = q, or as good as that
            weights = p[n]
        last = sample_reference(weights[None], draw_uniform[i : i + 1]).tolist()
        outputs.append(drafts[first : first + n] + last)
    return pad_outputs(outputs, max_num_drafts, target_probs.device)


def _weigh(joint: float, q_d: float) -> float:
    """min(1, joint / q_d), where q_d may have been rounded to 0."""
    return joint / q_d if joint < q_d else float(joint > 0)


@triton.jit  # type: ignore[untyped-decorator]
def _weigh_drafts(
    target_probs_ptr: tl.tensor,
    draft_token_ids_ptr: tl.tensor,
    draft_probs_ptr: tl.tensor,
    draft_probs_rows_ptr: tl.tensor,
    first: tl.tensor,
    i: tl.tensor,
    count: tl.tensor,
    vocab_size: tl.tensor,
) -> tl.tensor:
    """w behind so many of request i's drafts."""
    w = tl.full((), 1.0, tl.float64)
    for j in range(count):
        d = tl.load(draft_token_ids_ptr + first + j)
        p_d = tl.load(target_probs_ptr + (first + i + j).to(tl.int64) * vocab_size + d)
        q_row = tl.load(draft_probs_rows_ptr + first + j)
        q_d = tl.load(draft_probs_ptr + q_row * vocab_size + d, mask=q_row >= 0, other=1.0)
        joint, q_d = w * p_d.to(tl.float64), q_d.to(tl.float64)
        ratio = joint / tl.where(q_d > 0, q_d, 1.0)
        w = tl.where(joint < q_d, ratio, (joint > 0).to(tl.float64))
    return w


@triton.jit  # type: ignore[untyped-decorator]
def _judge_kernel(
    target_probs_ptr: tl.tensor,
    draft_token_ids_ptr: tl.tensor,
    draft_probs_ptr: tl.tensor,
    draft_probs_rows_ptr: tl.tensor,
    cu_num_draft_tokens_ptr: tl.tensor,
    num_valid_ptr: tl.tensor,
    accept_uniform_ptr: tl.tensor,
    stands_ptr: tl.tensor,
    vocab_size: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    """Whether request i's block may end with its draft j."""
    i, j = tl.program_id(0), tl.program_id(1)
    first = tl.load(cu_num_draft_tokens_ptr + i)
    num_drafts = tl.load(cu_num_draft_tokens_ptr + i + 1) - first
    if j < tl.minimum(num_drafts, tl.load(num_valid_ptr + i)):
        w = _weigh_drafts(
            target_probs_ptr,
            draft_token_ids_ptr,
            draft_probs_ptr,
            draft_probs_rows_ptr,
            first,
            i,
            j + 1,
            vocab_size,
        )
        place = first + j + 1  # of the draft behind it
        has_next = j + 1 < num_drafts
        d = tl.load(draft_token_ids_ptr + place, mask=has_next, other=-1)
        q_row = tl.load(draft_probs_rows_ptr + place, mask=has_next, other=-1)
        total = sum_weights(
            target_probs_ptr + (place + i).to(tl.int64) * vocab_size,
            w,
            draft_probs_ptr + q_row * vocab_size,
            tl.where(q_row >= 0, vocab_size, 0),
            tl.where(q_row >= 0, -1, d),
            vocab_size,
            BLOCK_SIZE,
        )
        u = tl.load(accept_uniform_ptr + first + j)
        stands = (w == 1.0) | (u * (total + 1.0 - w) < total)
        tl.store(stands_ptr + first + j, stands.to(tl.int8))


@triton.jit  # type: ignore[untyped-decorator]
def _draw_kernel(
    target_probs_ptr: tl.tensor,
    draft_token_ids_ptr: tl.tensor,
    draft_probs_ptr: tl.tensor,
    draft_probs_rows_ptr: tl.tensor,
    cu_num_draft_tokens_ptr: tl.tensor,
    num_valid_ptr: tl.tensor,
    draw_uniform_ptr: tl.tensor,
    stands_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    vocab_size: tl.tensor,
    max_num_drafts: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    """The longest block that stands, and the token behind it."""
    i = tl.program_id(0)
    first = tl.load(cu_num_draft_tokens_ptr + i)
    num_drafts = tl.load(cu_num_draft_tokens_ptr + i + 1) - first
    output_ptr = token_ids_ptr + i * (max_num_drafts + 1)
    num_accepted = 0
    for j in range(tl.minimum(num_drafts, tl.load(num_valid_ptr + i))):
        stands = tl.load(stands_ptr + first + j) > 0
        num_accepted = tl.where(stands, j + 1, num_accepted)
    for j in range(num_accepted):
        tl.store(output_ptr + j, tl.load(draft_token_ids_ptr + first + j))
    tl.store(num_accepted_ptr + i, num_accepted)

    w = _weigh_drafts(
        target_probs_ptr,
        draft_token_ids_ptr,
        draft_probs_ptr,
        draft_probs_rows_ptr,
        first,
        i,
        num_accepted,
        vocab_size,
    )
    has_next = num_accepted < num_drafts
    place = first + num_accepted  # of the first draft that does not stand, or the bonus row's
    d = tl.load(draft_token_ids_ptr + place, mask=has_next, other=-1)
    q_row = tl.load(draft_probs_rows_ptr + place, mask=has_next, other=-1)
    p_ptr = target_probs_ptr + (place + i).to(tl.int64) * vocab_size
    q_ptr = draft_probs_ptr + q_row * vocab_size
    q_size = tl.where(q_row >= 0, vocab_size, 0)
    one_hot_id = tl.where(q_row >= 0, -1, d)
    total = sum_weights(p_ptr, w, q_ptr, q_size, one_hot_id, vocab_size, BLOCK_SIZE)
    if total == 0.0:
        w, q_size, one_hot_id = w * 0 + 1.0, q_size * 0, one_hot_id * 0 - 1
        total = sum_weights(p_ptr, w, q_ptr, q_size, one_hot_id, vocab_size, BLOCK_SIZE)
    threshold = tl.load(draw_uniform_ptr + i) * total
    drawn = find_token(p_ptr, w, q_ptr, q_size, one_hot_id, threshold, vocab_size, BLOCK_SIZE)
    tl.store(output_ptr + num_accepted, drawn)


def block_verification_triton(
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
    """The kernels, a program per draft and one per request; on a CPU in Triton's interpreter."""
    num_requests, device = num_valid.shape[0], target_probs.device
    token_ids = torch.full((num_requests, max_num_drafts + 1), -1, device=device)
    num_accepted = torch.zeros(num_requests, dtype=torch.int32, device=device)
    if num_requests == 0:
        return token_ids, num_accepted
    if draft_probs_rows is None:
        draft_probs_rows = torch.full_like(draft_token_ids, -1)
    models = (
        target_probs,
        draft_token_ids,
        target_probs if draft_probs is None else draft_probs,  # never read where all are one-hot
        draft_probs_rows,
        cu_num_draft_tokens,
        num_valid,
    )
    stands = torch.zeros(len(draft_token_ids), dtype=torch.int8, device=device)
    vocab_size = target_probs.shape[1]
    if max_num_drafts > 0:
        _judge_kernel[(num_requests, max_num_drafts)](
            *models, accept_uniform, stands, vocab_size, BLOCK_SIZE=4096
        )
    _draw_kernel[(num_requests,)](
        *models,
        draw_uniform,
        stands,
        token_ids,
        num_accepted,
        vocab_size,
        max_num_drafts,
        BLOCK_SIZE=4096,
    )
    return token_ids, num_accepted


def block_verification(
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

    Arguments and results are those of `rejection_sample`. Reads p and q of every draft, which
    `rejection_sample` does for one row of each request.
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
    launch = block_verification_triton if target_probs.is_cuda else block_verification_reference
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
