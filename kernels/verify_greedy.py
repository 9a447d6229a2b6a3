"""The drafts that equal the target's own tokens, and its token behind them; no randomness.

    for each request i:                        # 1 + k rows, one for each draft and the bonus
        for j in range(k):
            if j == num_valid or d_j != target[j]:
                return d_0 … d_(j-1), target[j]
        return d_0 … d_(k-1), target[k]

With `accepts_valid` every draft before num_valid stands, whatever the target: num_valid says then
how many are to be accepted.

`target` is the argmax of each row, or a token drawn from it: a one-hot draft d is then accepted
with probability p(d), and what replaces it is drawn from p without d. The row's runners-up
(sample_rows.py) go with the token that ends a request's.

Request i's drafts start at cu_num_draft_tokens[i], its rows at the same plus i. Lengths that were
padded for a CUDA graph: requests behind the real ones repeat the last of cu_num_draft_tokens, and
rows and drafts behind the real ones are never looked at for a real request. A padded request gets
the token of some row, or -1 where there is none; nothing out of bounds is read or written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def verify_greedy_reference(
    target_token_ids: Tensor,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    num_valid: Tensor,
    max_num_drafts: int,
    last: Tensor | None = None,
    runners_up: Tensor | None = None,
    last_runners_up: Tensor | None = None,
    *,
    accepts_valid: bool = False,
) -> tuple[Tensor, Tensor]:
    """The specification: the loop of the module docstring."""
    targets, drafts = target_token_ids.tolist(), draft_token_ids.tolist()
    cu = cu_num_draft_tokens.tolist()
    padded, num_accepted = [], []
    for i, valid in enumerate(num_valid.tolist()):
        first, end = cu[i], cu[i + 1]
        n = 0
        while (
            first + n < end
            and n != valid
            and (accepts_valid or drafts[first + n] == targets[first + i + n])
        ):
            n += 1
        output = drafts[first : first + n] + targets[first + i + n : first + i + n + 1]
        padded.append(output + [-1] * (max_num_drafts + 1 - len(output)))
        num_accepted.append(n)
        if last is not None:
            last[i] = padded[i][n]
        if runners_up is not None and last_runners_up is not None:
            row = first + i + n
            last_runners_up[i] = runners_up[row] if row < len(targets) else -1
    token_ids = torch.tensor(padded, dtype=torch.int64, device=target_token_ids.device)
    return (
        token_ids.view(-1, max_num_drafts + 1),
        torch.tensor(num_accepted, dtype=torch.int32, device=target_token_ids.device),
    )


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["max_num_drafts", "num_rows", "last_stride"]
)
def _verify_greedy_kernel(
    target_token_ids_ptr: tl.tensor,
    draft_token_ids_ptr: tl.tensor,
    cu_num_draft_tokens_ptr: tl.tensor,
    num_valid_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    last_ptr: tl.tensor,
    runners_up_ptr: tl.tensor,
    last_runners_up_ptr: tl.tensor,
    last_stride: tl.tensor,
    max_num_drafts: tl.tensor,
    num_rows: tl.tensor,
    ACCEPTS_VALID: tl.constexpr,
    HAS_LAST: tl.constexpr,
    NUM_RUNNERS_UP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    i = tl.program_id(0)
    first = tl.load(cu_num_draft_tokens_ptr + i)
    num_drafts = tl.load(cu_num_draft_tokens_ptr + i + 1) - first
    num_valid = tl.load(num_valid_ptr + i)

    j = tl.arange(0, BLOCK_SIZE)
    row = first + i + j
    targets = tl.load(
        target_token_ids_ptr + row, mask=(j <= num_drafts) & (row < num_rows), other=-1
    )
    drafts = tl.load(draft_token_ids_ptr + first + j, mask=j < num_drafts, other=-1)
    stands = (j < num_drafts) & (j != num_valid)
    if not ACCEPTS_VALID:
        stands = stands & (drafts == targets)
    num_accepted = tl.min(tl.where(stands, BLOCK_SIZE, j), 0)  # j == num_drafts never stands
    output = tl.where(j < num_accepted, drafts, tl.where(j == num_accepted, targets, -1))
    tl.store(token_ids_ptr + i * (max_num_drafts + 1) + j, output, mask=j < max_num_drafts + 1)
    tl.store(num_accepted_ptr + i, num_accepted)
    if HAS_LAST:
        tl.store(last_ptr + i, tl.sum(tl.where(j == num_accepted, targets, 0), 0))
    last_row = first + i + num_accepted
    for k in tl.static_range(NUM_RUNNERS_UP):
        place = last_row * NUM_RUNNERS_UP + k
        runner_up = tl.load(runners_up_ptr + place, mask=last_row < num_rows, other=-1)
        tl.store(last_runners_up_ptr + i * last_stride + k, runner_up)


def verify_greedy_triton(
    target_token_ids: Tensor,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    num_valid: Tensor,
    max_num_drafts: int,
    last: Tensor | None = None,
    runners_up: Tensor | None = None,
    last_runners_up: Tensor | None = None,
    *,
    accepts_valid: bool = False,
) -> tuple[Tensor, Tensor]:
    """The kernel, one program per request; on a CPU it needs Triton's interpreter."""
    num_requests = num_valid.shape[0]
    token_ids = target_token_ids.new_empty(num_requests, max_num_drafts + 1)
    num_accepted = torch.empty_like(num_valid)
    if num_requests > 0:
        _verify_greedy_kernel[(num_requests,)](
            target_token_ids,
            draft_token_ids,
            cu_num_draft_tokens,
            num_valid,
            token_ids,
            num_accepted,
            token_ids if last is None else last,
            runners_up,
            last_runners_up,
            0 if last_runners_up is None else last_runners_up.stride(0),
            max_num_drafts,
            target_token_ids.shape[0],
            ACCEPTS_VALID=accepts_valid,
            HAS_LAST=last is not None,
            NUM_RUNNERS_UP=0 if runners_up is None else runners_up.shape[1],
            BLOCK_SIZE=max(16, triton.next_power_of_2(max_num_drafts + 1)),  # few variants
            num_warps=1,
        )
    return token_ids, num_accepted


def verify_greedy(
    target_token_ids: Tensor,  # [num_drafts + num_requests] int64: the argmax or a draw of each row
    draft_token_ids: Tensor,  # [num_drafts] int64
    cu_num_draft_tokens: Tensor,  # [num_requests + 1] int32
    num_valid: Tensor,  # [num_requests] int32: the draft there, if any, is rejected
    max_num_drafts: int,
    last: Tensor | None = None,  # [num_requests] int64, written: the token behind the accepted
    runners_up: Tensor | None = None,  # [num_drafts + num_requests, n] int64: of each row
    last_runners_up: Tensor | None = None,  # [num_requests, n] int64, written: behind the accepted
    *,
    accepts_valid: bool = False,
) -> tuple[Tensor, Tensor]:
    """Accepted drafts and one more token per request, and how many drafts were accepted.

    Returns token_ids [num_requests, max_num_drafts + 1] int64, padded with -1, and num_accepted
    [num_requests] int32. One launch, which a CUDA graph may capture; see above for padding.
    """
    assert target_token_ids.dtype == draft_token_ids.dtype == torch.int64
    assert target_token_ids.is_contiguous() and draft_token_ids.is_contiguous()
    assert cu_num_draft_tokens.dtype == num_valid.dtype == torch.int32
    assert cu_num_draft_tokens.is_contiguous() and num_valid.is_contiguous()
    assert cu_num_draft_tokens.shape[0] == num_valid.shape[0] + 1
    if last is not None:
        assert last.dtype == torch.int64 and last.shape == num_valid.shape and last.is_contiguous()
    assert (runners_up is None) == (last_runners_up is None)
    if runners_up is not None and last_runners_up is not None:
        assert runners_up.dtype == last_runners_up.dtype == torch.int64
        assert runners_up.is_contiguous() and len(runners_up) == len(target_token_ids)
        assert last_runners_up.shape == (len(num_valid), runners_up.shape[1])
        assert last_runners_up.stride(1) == 1
    launch = verify_greedy_triton if target_token_ids.is_cuda else verify_greedy_reference
    return launch(
        target_token_ids,
        draft_token_ids,
        cu_num_draft_tokens,
        num_valid,
        max_num_drafts,
        last,
        runners_up,
        last_runners_up,
        accepts_valid=accepts_valid,
    )
