"""Prompt lookup on the device: what followed the longest earlier match of the last tokens.

    for each request:                                # its tokens: row `rows[i]` of the table
        t, n = table[rows[i]], lengths[i]
        for place in 1 .. n - 1:                     # where a match would go on
            match = how many of t[place-1], t[place-2], ... are t[n-1], t[n-2], ...
                                                     # at most max_match
        place = that of the longest match of at least min_match, of equals the last
        draft t[place], t[place+1], ...              # nothing where there is no match

One program looks at one block of places; the longest match of all blocks is found by an atomic
maximum of match * 2 ** 32 + place, whose order does not matter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK_SIZE = 1024  # places


def ngram_search_reference(
    table: Tensor, rows: Tensor, lengths: Tensor, min_match: int, max_match: int, num_drafts: int
) -> tuple[Tensor, Tensor]:
    """The specification: the loop of the module docstring."""
    drafts = torch.full((len(rows), num_drafts), -1, dtype=torch.int32, device=table.device)
    counts = torch.zeros(len(rows), dtype=torch.int32, device=table.device)
    for i, (row, n) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        if n < 2:
            continue
        tokens = table[row, :n]
        places = torch.arange(1, n, device=table.device)
        matches, agrees = torch.zeros_like(places), torch.ones_like(places, dtype=torch.bool)
        for j in range(min(max_match, n - 1)):
            agrees &= (places > j) & (tokens[places - 1 - j] == tokens[n - 1 - j])
            matches += agrees
        if int(matches.max()) < min_match:
            continue
        place = int(places[matches == matches.max()][-1])
        found = tokens[place : place + num_drafts]
        drafts[i, : len(found)], counts[i] = found, len(found)
    return drafts, counts


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["min_match", "max_match"]
)
def _find_matches_kernel(
    table_ptr: tl.tensor,
    rows_ptr: tl.tensor,
    lengths_ptr: tl.tensor,
    best_ptr: tl.tensor,
    width: tl.tensor,
    min_match: tl.tensor,
    max_match: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    i = tl.program_id(0)
    n = tl.load(lengths_ptr + i)
    tokens_ptr = table_ptr + tl.load(rows_ptr + i) * width
    place = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    agrees = (place >= 1) & (place < n)
    match = tl.zeros((BLOCK_SIZE,), tl.int64)
    for j in range(0, max_match):
        last = tl.load(tokens_ptr + n - 1 - j, mask=j < n, other=-1)
        agrees = agrees & (place > j)
        token = tl.load(tokens_ptr + place - 1 - j, mask=agrees, other=-1)
        agrees = agrees & (token == last)
        match += agrees.to(tl.int64)
    key = tl.where(match >= min_match, match * 4294967296 + place, 0)
    best = tl.max(key, 0)
    if best > 0:
        tl.atomic_max(best_ptr + i, best)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_drafts"]
)
def _copy_matches_kernel(
    table_ptr: tl.tensor,
    rows_ptr: tl.tensor,
    lengths_ptr: tl.tensor,
    best_ptr: tl.tensor,
    drafts_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    width: tl.tensor,
    num_drafts: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    i = tl.program_id(0)
    n = tl.load(lengths_ptr + i)
    tokens_ptr = table_ptr + tl.load(rows_ptr + i) * width
    best = tl.load(best_ptr + i)
    place = best % 4294967296
    count = tl.where(best > 0, tl.minimum(n - place, num_drafts), 0)
    j = tl.arange(0, BLOCK_SIZE)
    token = tl.load(tokens_ptr + place + j, mask=j < count, other=-1)
    tl.store(drafts_ptr + i * num_drafts + j, token, mask=j < num_drafts)
    tl.store(counts_ptr + i, count.to(tl.int32))


def ngram_search_triton(
    table: Tensor,
    rows: Tensor,
    lengths: Tensor,
    min_match: int,
    max_match: int,
    num_drafts: int,
    *,
    max_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The kernels; on a CPU they need Triton's interpreter."""
    num_requests = rows.shape[0]
    drafts = table.new_empty(num_requests, num_drafts)
    counts = torch.empty(num_requests, dtype=torch.int32, device=table.device)
    if num_requests == 0:
        return drafts, counts
    best = torch.zeros(num_requests, dtype=torch.int64, device=table.device)
    num_places = table.shape[1] if max_length is None else max_length
    grid = num_requests, max(1, triton.cdiv(num_places, _BLOCK_SIZE))
    width = table.stride(0)
    _find_matches_kernel[grid](
        table, rows, lengths, best, width, min_match, max_match, BLOCK_SIZE=_BLOCK_SIZE
    )
    _copy_matches_kernel[(num_requests,)](
        table,
        rows,
        lengths,
        best,
        drafts,
        counts,
        width,
        num_drafts,
        BLOCK_SIZE=max(16, triton.next_power_of_2(num_drafts)),
        num_warps=1,
    )
    return drafts, counts


def ngram_search(
    table: Tensor,  # [num_rows, width] int32: tokens, one text per row
    rows: Tensor,  # [num_requests] int64: each request's row
    lengths: Tensor,  # [num_requests] int64: how long its text is, at most `width`
    min_match: int,
    max_match: int,
    num_drafts: int,
    *,
    max_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The drafts, [num_requests, num_drafts] int32 padded with -1, and how many, int32.

    `min_match` is at least 1. `max_length`, if the caller knows it, is the longest text's length,
    or more: it saves looking where none is. Two launches; the host waits for nothing.
    """
    assert table.dtype == torch.int32 and table.stride(1) == 1
    assert rows.dtype == lengths.dtype == torch.int64
    assert rows.is_contiguous() and lengths.is_contiguous() and rows.shape == lengths.shape
    assert 1 <= min_match <= max_match
    if not table.is_cuda:
        return ngram_search_reference(table, rows, lengths, min_match, max_match, num_drafts)
    return ngram_search_triton(
        table, rows, lengths, min_match, max_match, num_drafts, max_length=max_length
    )
