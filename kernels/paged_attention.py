"""Causal attention over a paged cache, for any mix of prefill, decode and verification rows.

for request r, its query rows i (the last ones of its context), every head h of kv head g:
    context = position of i + 1
    score[t] = query[i, h] . key[t, g] * scale            for t < context
    out[i, h] = sum_t exp(score[t] - max(score)) value[t, g] / sum_t exp(score[t] - max(score))

With a tree, rows of a request see of its step's own rows those whose bit they have set instead.
The cache is read through the block table, nothing is gathered. One (row, kv head) is one task, and
its sums run over the context in one fixed order: how many other rows a step has, and whether the
row belongs to a prompt, a decode or a span of drafts, does not change a bit of its result.
"""

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from structspec.kernels.compiled import compiled, runs_compiled
from structspec.kernels.exp import exp
from structspec.kernels.paged_attention_triton import Arrivals, paged_attention_triton
from structspec.kernels.threads import can_spread, compile_entry, num_threads, spread, thread_num


def paged_attention_reference(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    cu_seqlens_q: Tensor,
    context_lens: Tensor,
    block_tables: Tensor,
    scale: float,
    tree: Tensor | None = None,
) -> Tensor:
    """The semantics in plain torch: gather each request's blocks, mask, softmax."""
    _, num_kv_heads, block_size, head_dim = keys.shape
    query = qkv[:, : -2 * num_kv_heads * head_dim]
    out = torch.zeros_like(query)
    starts = cu_seqlens_q.tolist()
    for r, context in enumerate(context_lens.tolist()):
        rows = slice(starts[r], starts[r + 1])
        num_queries = starts[r + 1] - starts[r]
        if num_queries == 0:
            continue
        blocks = block_tables[r, : -(-context // block_size)]
        key = keys[blocks].transpose(0, 1).reshape(num_kv_heads, -1, head_dim)[:, :context]
        value = values[blocks].transpose(0, 1).reshape(num_kv_heads, -1, head_dim)[:, :context]
        heads = query[rows].view(num_queries, num_kv_heads, -1, head_dim)
        scores = torch.einsum("qghd,gtd->ghqt", heads.float(), key.float()) * scale
        is_visible = torch.ones_like(scores[0, 0], dtype=torch.bool).tril(context - num_queries)
        if tree is not None:
            bits = tree[rows, None] >> torch.arange(num_queries, device=tree.device)
            is_visible[:, context - num_queries :] = bits & 1 == 1
        probs = scores.masked_fill(~is_visible, float("-inf")).softmax(-1)
        out[rows] = torch.einsum("ghqt,gtd->qghd", probs, value.float()).flatten(1).to(out.dtype)
    return out


@compiled
def _attend(
    query: Any, keys: Any, values: Any, group: Any, table: Any, scale: Any, scores: Any, out: Any
) -> None:
    """One head of one row; `scores` is room for as many numbers as the context is long."""
    context = len(scores)
    block_size, head_dim = keys.shape[2], keys.shape[3]
    peak = np.float32(-np.inf)
    for first in range(0, context, block_size):
        key = keys[table[first // block_size], group]
        for j in range(min(block_size, context - first)):
            score = np.float32(0.0)
            for i in range(head_dim):
                score += query[i] * key[j, i]
            score *= scale
            scores[first + j] = score
            peak = max(peak, score)
    for t in range(context):
        scores[t] = exp(scores[t] - peak)
    total = np.float32(0.0)
    for t in range(context):
        total += scores[t]
    out[:] = np.float32(0.0)
    for first in range(0, context, block_size):
        value = values[table[first // block_size], group]
        length = min(block_size, context - first)
        whole = length - length % 4
        for j in range(0, whole, 4):  # four keys at once: a quarter of the traffic on `out`
            t = first + j
            p0, p1, p2, p3 = scores[t], scores[t + 1], scores[t + 2], scores[t + 3]
            for i in range(head_dim):
                low = p0 * value[j, i] + p1 * value[j + 1, i]
                out[i] += low + (p2 * value[j + 2, i] + p3 * value[j + 3, i])
        for j in range(whole, length):
            p0 = scores[first + j]
            for i in range(head_dim):
                out[i] += p0 * value[j, i]
    for i in range(head_dim):
        out[i] /= total


@compiled
def _attend_rows(
    first_task: Any,
    num_threads: Any,
    qkv: Any,
    keys: Any,
    values: Any,
    cu_seqlens_q: Any,
    context_lens: Any,
    block_tables: Any,
    scale: Any,
    out: Any,
) -> None:
    """One thread's share of the tasks: every `num_threads`-th, so long contexts are dealt out."""
    _, num_kv_heads, _, head_dim = keys.shape
    width = out.shape[1] // num_kv_heads  # of the query heads that share a kv head
    for task in range(first_task, cu_seqlens_q[-1] * num_kv_heads, num_threads):
        row, group = task // num_kv_heads, task % num_kv_heads
        r = np.searchsorted(cu_seqlens_q, row, side="right") - 1
        context = context_lens[r] - (cu_seqlens_q[r + 1] - 1 - row)
        scores = np.empty(context, np.float32)
        for start in range(group * width, (group + 1) * width, head_dim):
            head = slice(start, start + head_dim)
            _attend(
                qkv[row, head],
                keys,
                values,
                group,
                block_tables[r],
                scale,
                scores,
                out[row, head],
            )


def _attend_rows_entry(table: Any) -> None:
    """`_attend_rows` as one of several threads; see `paged_attention` for the table."""
    sizes = numba.carray(table[0], 9, np.int64)
    num_rows, num_requests = sizes[0], sizes[6]
    cache = (sizes[2], sizes[3], sizes[4], sizes[5])
    _attend_rows(
        thread_num(),
        num_threads(),
        numba.carray(table[2], (num_rows, sizes[1]), np.float32),
        numba.carray(table[3], cache, np.float32),
        numba.carray(table[4], cache, np.float32),
        numba.carray(table[5], num_requests + 1, np.int64),
        numba.carray(table[6], num_requests, np.int64),
        numba.carray(table[7], (num_requests, sizes[7]), np.int64),
        numba.carray(table[1], 1, np.float32)[0],
        numba.carray(table[8], (num_rows, sizes[8]), np.float32),
    )


@functools.cache
def _entry() -> int:
    return compile_entry(_attend_rows_entry)


def paged_attention(
    qkv: Tensor,  # [num_rows, (num_heads + 2 * num_kv_heads) * head_dim]: the queries are read
    keys: Tensor,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values: Tensor,  # [num_blocks, num_kv_heads, block_size, head_dim]
    cu_seqlens_q: Tensor,  # [num_requests + 1] int64
    context_lens: Tensor,  # [num_requests] int64, the step's own tokens included
    block_tables: Tensor,  # [num_requests, max_num_blocks] int64
    scale: float,
    tree: Tensor | None = None,  # [num_rows] int64: bit j says that the request's row j is seen
    *,
    max_query_len: int | None = None,
    block_requests: Tensor | None = None,
    block_q: int | None = None,
    num_splits: int | None = None,
    arrivals: Arrivals | None = None,
) -> Tensor:
    """Attention of every row, [num_rows, num_heads * head_dim]; compiled on the CPU.

    A request of a step with a tree has at most 63 rows, and each of them its own bit set.

    The rest is for a GPU. `max_query_len`, if the caller knows it, is the most rows that a request
    has, or more; `block_requests` is what find_block_requests found for this `block_q`: either
    saves a search. `block_q` and `num_splits` fix how the work is cut where it is not to depend on
    the step. `arrivals` saves making counters; a CUDA graph needs it. Padding rows of the result
    are anything.
    """
    tensors = (qkv, keys, values, cu_seqlens_q, context_lens, block_tables)
    if qkv.is_cuda:
        return paged_attention_triton(
            *tensors,
            scale,
            tree,
            max_query_len=max_query_len,
            block_requests=block_requests,
            block_q=block_q,
            num_splits=num_splits,
            arrivals=arrivals,
        )
    if tree is not None or not runs_compiled(qkv):
        return paged_attention_reference(*tensors, scale, tree)
    width = qkv.shape[1] - 2 * keys.shape[1] * keys.shape[3]
    out = torch.zeros(len(qkv), width)  # rows behind the last request's are padding and stay 0
    if not can_spread():
        arrays = [tensor.numpy() for tensor in tensors]
        _attend_rows(0, 1, *arrays, np.float32(scale), out.numpy())
        return out
    assert all(tensor.is_contiguous() for tensor in tensors)
    sizes = torch.tensor([*qkv.shape, *keys.shape, *block_tables.shape, width])
    spread(_entry(), sizes, torch.tensor([scale]), *tensors, out)
    return out
