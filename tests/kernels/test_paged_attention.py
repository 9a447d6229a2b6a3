"""Paged attention: the compiled kernel gives what the reference gives, row by row."""

from __future__ import annotations

import pytest
import torch

from structspec.kernels.paged_attention import paged_attention, paged_attention_reference

HEAD_DIM = 12


def make_case(
    spans: list[tuple[int, int]], *, block_size: int, num_heads: int, num_kv_heads: int
) -> tuple[torch.Tensor, ...]:
    """Random input; spans are (query rows, context) of each request, blocks in random order."""
    generator = torch.Generator().manual_seed(0)
    num_rows = sum(rows for rows, _ in spans)
    counts = [-(-context // block_size) for _, context in spans]
    cache = (sum(counts) + 1, num_kv_heads, block_size, HEAD_DIM)
    order = torch.randperm(cache[0], generator=generator).tolist()
    tables = torch.zeros(len(spans), max(counts, default=0), dtype=torch.int64)
    for r, count in enumerate(counts):
        tables[r, :count] = torch.tensor([order.pop() for _ in range(count)])
    return (
        torch.randn(num_rows, (num_heads + 2 * num_kv_heads) * HEAD_DIM, generator=generator),
        torch.randn(cache, generator=generator),
        torch.randn(cache, generator=generator),
        torch.tensor([0] + [rows for rows, _ in spans]).cumsum(0),
        torch.tensor([context for _, context in spans], dtype=torch.int64),
        tables,
    )


@pytest.mark.parametrize(
    "spans",
    [
        [(1, 1)],
        [(7, 7)],
        [(1, 33), (5, 40), (16, 16)],
        [(3, 200), (1, 90)],
        [],
    ],
    ids=["first-token", "prefill", "mixed", "long", "empty-batch"],
)
@pytest.mark.parametrize(
    ("block_size", "num_heads", "num_kv_heads"),
    [(16, 9, 3), (4, 4, 4), (1, 2, 1), (5, 6, 2)],
    ids=["block16-group3", "block4-group1", "block1-group2", "block5-group3"],
)
def test_kernel_gives_what_the_reference_gives(
    spans: list[tuple[int, int]], block_size: int, num_heads: int, num_kv_heads: int
) -> None:
    case = make_case(spans, block_size=block_size, num_heads=num_heads, num_kv_heads=num_kv_heads)
    expected = paged_attention_reference(*case, 0.3)
    actual = paged_attention(*case, 0.3)
    assert actual.shape == (len(case[0]), num_heads * HEAD_DIM)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_reference_is_softmax_attention() -> None:
    qkv, keys, values, cu, context, table = make_case(
        [(5, 5)], block_size=8, num_heads=2, num_kv_heads=1
    )
    query = qkv[:, : 2 * HEAD_DIM].view(5, 2, HEAD_DIM).transpose(0, 1)
    block = table[0, 0]
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, keys[block, :, :5], values[block, :, :5], is_causal=True, scale=0.5
    )
    actual = paged_attention_reference(qkv, keys, values, cu, context, table, 0.5)
    torch.testing.assert_close(actual, expected.transpose(0, 1).flatten(1))


def test_padding_rows_are_zero() -> None:
    qkv, *rest = make_case([(2, 9)], block_size=4, num_heads=4, num_kv_heads=2)
    padded = torch.cat([qkv, torch.full((3, qkv.shape[1]), float("nan"))])
    out = paged_attention(padded, *rest, 1.0)
    assert torch.equal(out[2:], torch.zeros(3, 4 * HEAD_DIM))
    assert torch.equal(out[:2], paged_attention(qkv, *rest, 1.0))


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case([(1, 33), (20, 40)], block_size=16, num_heads=9, num_kv_heads=3)
    spread = paged_attention(*case, 0.3)
    monkeypatch.setattr("structspec.kernels.paged_attention.can_spread", lambda: False)
    assert torch.equal(paged_attention(*case, 0.3), spread)


def test_huge_scores_do_not_overflow() -> None:
    case = make_case([(4, 30)], block_size=16, num_heads=2, num_kv_heads=1)
    expected = paged_attention_reference(*case, 500.0)
    torch.testing.assert_close(paged_attention(*case, 500.0), expected, atol=1e-4, rtol=1e-4)
