"""The forward pass's Triton kernels: their references' results, and rows that stay apart."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.kernels.add_rms_norm import add_rms_norm_reference, add_rms_norm_triton
from structspec.kernels.paged_attention import paged_attention_reference
from structspec.kernels.paged_attention_plan import (
    Launch,
    count_blocks,
    find_block_requests,
    find_block_requests_reference,
    find_block_requests_triton,
)
from structspec.kernels.paged_attention_triton import Arrivals, paged_attention_triton
from structspec.kernels.rotate_and_store import rotate_and_store_reference, rotate_and_store_triton
from structspec.kernels.silu_mul import silu_mul_reference, silu_mul_triton

NO_BFLOAT16 = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="Triton's interpreter computes with bfloat16's bits"
)
DTYPES = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=NO_BFLOAT16)],
    ids=["fp32", "fp16", "bf16"],
)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def random(*shape: int, seed: int = 0, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(device, dtype)


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    bound = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, atol=bound, rtol=2 * bound)


@DTYPES
@pytest.mark.parametrize(("num_rows", "size"), [(0, 8), (1, 1), (5, 37), (3, 576), (2, 4096)])
def test_add_rms_norm_is_its_reference(num_rows, size, dtype, device):
    x, weight, residual = (
        random(*shape, seed=seed, dtype=dtype, device=device)
        for seed, shape in enumerate([(num_rows, size), (size,), (num_rows, size)])
    )
    residual_too = residual.clone()
    expected = add_rms_norm_reference(x, residual_too, weight, 1e-5)
    assert_near(add_rms_norm_triton(x, residual, weight, 1e-5), expected)
    assert torch.equal(residual, residual_too)


@DTYPES
@pytest.mark.parametrize(("num_rows", "size"), [(0, 8), (1, 1), (5, 37), (2, 1536)])
def test_silu_mul_is_its_reference(num_rows, size, dtype, device):
    gate_up = random(num_rows, 2 * size, dtype=dtype, device=device) * 5
    assert_near(silu_mul_triton(gate_up), silu_mul_reference(gate_up))


@DTYPES
@pytest.mark.parametrize("has_norms", [False, True], ids=["plain", "qk-norm"])
@pytest.mark.parametrize("head_dim", [6, 64])
def test_rotate_and_store_is_its_reference(head_dim, has_norms, dtype, device):
    num_heads, num_kv_heads, block_size = 6, 2, 4
    qkv = random(5, (num_heads + 2 * num_kv_heads) * head_dim, dtype=dtype, device=device)
    norms = [
        random(head_dim if has_norms else 0, seed=seed, dtype=dtype, device=device)
        for seed in (1, 2)
    ]
    angles = random(50, head_dim // 2, seed=3, dtype=torch.float32, device=device)
    positions = torch.tensor([3, 0, 49, 7, 0], device=device)
    slots = torch.tensor([9, 0, 11, 4, -1], device=device)
    results = []
    for function in (rotate_and_store_triton, rotate_and_store_reference):
        mine = qkv.clone()
        keys = torch.zeros(3, num_kv_heads, block_size, head_dim, dtype=dtype, device=device)
        values = torch.zeros_like(keys)
        function(mine, *norms, 1e-6, angles.cos(), angles.sin(), positions, slots, keys, values)
        results.append((mine[:4, : num_heads * head_dim], keys, values))
    for actual, expected in zip(*results, strict=True):
        assert_near(actual, expected)


def make_case(spans, dtype, device, *, block_size=4, num_heads=4, num_kv_heads=2, head_dim=12):
    """Spans are (query rows, context) of each request; blocks lie in random order."""
    counts = [-(-context // block_size) for _, context in spans]
    order = torch.randperm(sum(counts) + 1, generator=torch.Generator().manual_seed(1)).tolist()
    tables = torch.zeros(len(spans), max(counts, default=0), dtype=torch.int64)
    for r, count in enumerate(counts):
        tables[r, :count] = torch.tensor([order.pop() for _ in range(count)])
    num_rows = sum(rows for rows, _ in spans)
    cache = (sum(counts) + 1, num_kv_heads, block_size, head_dim)
    width = (num_heads + 2 * num_kv_heads) * head_dim
    return (
        random(num_rows, width, dtype=dtype, device=device),
        random(*cache, seed=1, dtype=dtype, device=device),
        random(*cache, seed=2, dtype=dtype, device=device),
        torch.tensor([0] + [rows for rows, _ in spans]).cumsum(0).to(device),
        torch.tensor([context for _, context in spans], dtype=torch.int64, device=device),
        tables.to(device),
    )


SPANS = pytest.mark.parametrize(
    "spans",
    [[(1, 1)], [(7, 7)], [(1, 33), (5, 40), (16, 16)], [(3, 200), (0, 0), (1, 90)], [(40, 70)], []],
    ids=["first-token", "prefill", "mixed", "empty-request", "long-prefill", "empty-batch"],
)


@DTYPES
@SPANS
@pytest.mark.parametrize("num_splits", [None, 1, 3], ids=lambda n: f"splits-{n}")
def test_paged_attention_is_its_reference(spans, num_splits, dtype, device):
    case = make_case(spans, dtype, device)
    expected = paged_attention_reference(*case, 0.3)
    assert_near(paged_attention_triton(*case, 0.3, num_splits=num_splits), expected)


@settings(max_examples=15, deadline=None)
@given(
    spans=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 90)), min_size=1, max_size=3),
    block_q=st.sampled_from([1, 3, 8, 32]),
    num_splits=st.integers(1, 5),
    knows=st.sampled_from(["nothing", "max_query_len", "block_requests"]),
    launch=st.sampled_from([None, Launch(16, 1, 4, 3), Launch(32, 3, 4, 2)]),
)
def test_however_attention_is_dealt_out_its_result_is_the_references(
    device, spans, block_q, num_splits, knows, launch
):
    spans = [(rows, rows + before if rows else 0) for rows, before in spans]
    case = make_case(spans, torch.float32, device, head_dim=16)
    options = {}
    if knows == "max_query_len":
        options["max_query_len"] = max(1, *(rows for rows, _ in spans), 0)
    if knows == "block_requests":
        num_blocks, _ = count_blocks(len(case[0]), len(spans), block_q, None)
        options["block_requests"] = find_block_requests(case[3], num_blocks, block_q)
    actual = paged_attention_triton(
        *case, 0.3, block_q=block_q, num_splits=num_splits, launch=launch, **options
    )
    assert_near(actual, paged_attention_reference(*case, 0.3))


@given(
    lengths=st.lists(st.integers(0, 20), max_size=9),
    num_padding=st.integers(0, 5),
    block_q=st.integers(1, 8),
)
@settings(deadline=None)
def test_every_row_is_in_a_block_of_its_request(device, lengths, num_padding, block_q):
    cu = torch.tensor([0, *lengths]).cumsum(0).to(device)
    num_blocks, _ = count_blocks(sum(lengths) + num_padding, len(lengths), block_q, None)
    expected = find_block_requests_reference(cu, num_blocks, block_q)
    if lengths:
        assert torch.equal(find_block_requests_triton(cu, num_blocks, block_q), expected)
    starts, requests = cu.tolist(), expected.tolist()
    for request, length in enumerate(lengths):
        first = starts[request] // block_q + request
        blocks = range(first, first + -(-length // block_q))
        assert all(requests[block] == request for block in blocks)


@pytest.mark.parametrize("block_q", [1, 4, 32])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(9, 3), (4, 4), (8, 1)])
def test_heads_may_share_keys_in_any_number(num_heads, num_kv_heads, block_q, device):
    case = make_case(
        [(5, 21), (1, 3)], torch.float32, device, num_heads=num_heads, num_kv_heads=num_kv_heads
    )
    actual = paged_attention_triton(*case, 0.3, block_q=block_q)
    assert_near(actual, paged_attention_reference(*case, 0.3))


@pytest.mark.parametrize("num_splits", [1, 3])
def test_a_row_of_a_tree_sees_its_ancestors_and_all_that_came_before_the_step(num_splits, device):
    case = make_case([(6, 30), (2, 2)], torch.float32, device)
    parents = [None, 0, 0, 1, 1, 2, None, 0]
    bits: list[int] = []
    for row, parent in enumerate(parents):
        first = 6 if row >= 6 else 0
        bits.append(1 << row - first | (0 if parent is None else bits[first + parent]))
    tree = torch.tensor(bits, device=device)
    actual = paged_attention_triton(*case, 0.3, tree, num_splits=num_splits)
    assert_near(actual, paged_attention_reference(*case, 0.3, tree))
    chain = torch.tensor([2**i - 1 for i in range(1, 7)] + [1, 3], device=device)
    expected = paged_attention_reference(*case, 0.3)
    assert_near(paged_attention_triton(*case, 0.3, chain, num_splits=num_splits), expected)


@DTYPES
@pytest.mark.parametrize("num_splits", [1, 3])
def test_a_row_has_the_same_bits_whatever_else_the_step_holds(num_splits, dtype, device):
    alone = make_case([(5, 40)], dtype, device)
    qkv, keys, values, _, _, tables = alone
    options = {"block_q": 4, "num_splits": num_splits}
    expected = paged_attention_triton(*alone, 0.3, **options)
    other = random(3, qkv.shape[1], seed=5, dtype=dtype, device=device)
    actual = paged_attention_triton(
        torch.cat([other, qkv, other]),
        keys,
        values,
        torch.tensor([0, 3, 8, 8, 11], device=device),
        torch.tensor([9, 40, 0, 3], device=device),
        torch.cat([tables, tables, tables, tables]),
        0.3,
        **options,
    )
    assert torch.equal(actual[3:8], expected)


@DTYPES
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("block_q", [4, 16])
def test_a_row_has_the_same_bits_whatever_drafts_stand_behind_it(
    block_q, num_splits, dtype, device
):
    """Row 2 of five, next to the same row as the last of three: the context ends elsewhere."""
    whole = make_case([(5, 130)], dtype, device)
    part = [whole[0][:3], *whole[1:3], whole[3].clone(), whole[4] - 2, whole[5]]
    part[3][1] = 3
    options = {"block_q": block_q, "num_splits": num_splits, "launch": Launch(16, 2, 4, 3)}
    expected = paged_attention_triton(*whole, 0.3, **options)
    assert torch.equal(paged_attention_triton(*part, 0.3, **options), expected[:3])


@pytest.mark.parametrize("knows", [{}, {"max_query_len": 1}, {"max_query_len": 5}])
def test_padded_requests_and_rows_change_nothing(knows, device):
    case = list(make_case([(1, 90), (1, 33)], torch.float32, device))
    expected = paged_attention_triton(*case, 0.3, block_q=5, num_splits=3)
    case[0] = torch.cat([case[0], case[0], case[0]])
    case[3] = torch.cat([case[3], case[3][-1:].expand(3)])
    case[4] = torch.cat([case[4], torch.tensor([0, 7, 1000], device=device)])
    case[5] = torch.cat([case[5], case[5][:1].expand(3, -1)])
    padded = paged_attention_triton(*case, 0.3, block_q=5, num_splits=3, **knows)
    assert torch.equal(padded[:2], expected)


def big_case(num_requests, query_len, context, dtype, device, **shape):
    spans = [(query_len, context - r % 7) for r in range(num_requests)]
    return make_case(spans, dtype, device, block_size=16, **shape)


SMOLLM2 = {"num_heads": 9, "num_kv_heads": 3, "head_dim": 64}
LLAMA_8B = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [SMOLLM2, LLAMA_8B], ids=["9x64", "32x128"])
@pytest.mark.parametrize(
    ("num_requests", "query_len", "context"),
    [(1, 1, 5000), (3, 1, 300), (32, 5, 700), (40, 1, 900), (2, 600, 1500), (1, 40, 4000)],
)
@DTYPES
def test_models_shapes_give_what_the_reference_gives(
    num_requests, query_len, context, shape, dtype, device
):
    case = big_case(num_requests, query_len, context, dtype, device, **shape)
    expected = paged_attention_reference(*case, 0.1)
    for max_query_len in (None, query_len):
        assert_near(paged_attention_triton(*case, 0.1, max_query_len=max_query_len), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_order_in_which_programs_finish_does_not_show(dtype, device):
    case = big_case(16, 1, 5000, dtype, device, **LLAMA_8B)
    expected = paged_attention_triton(*case, 0.1, num_splits=16, max_query_len=1)
    for _ in range(300):
        again = paged_attention_triton(*case, 0.1, num_splits=16, max_query_len=1)
        assert torch.equal(again, expected)


def test_a_launch_counts_in_its_own_counters_and_leaves_them_at_0(device):
    case = make_case([(1, 300), (2, 500)], torch.float32, device)
    options = {"block_q": 4, "num_splits": 3}
    expected = paged_attention_triton(*case, 0.3, **options)
    mine, others = Arrivals(device), Arrivals(device)
    others.counters(1).fill_(1)  # of a launch beside it
    for _ in range(2):
        actual = paged_attention_triton(*case, 0.3, **options, arrivals=mine)
        assert torch.equal(actual, expected) and not mine.counters(1).any()


@pytest.mark.gpu
def test_engines_side_by_side_on_one_gpu_disturb_no_sums(device):
    cases = [big_case(16, 1, n, torch.float32, device, **LLAMA_8B) for n in (5000, 3000)]
    arrivals = [Arrivals(device) for _ in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    options = {"num_splits": 16, "max_query_len": 1}
    expected = [paged_attention_triton(*case, 0.1, **options) for case in cases]
    for own in arrivals:
        own.counters(1)
    torch.cuda.synchronize()
    for _ in range(100):
        actual = []
        for case, own, stream in zip(cases, arrivals, streams, strict=True):
            with torch.cuda.stream(stream):
                actual.append(paged_attention_triton(*case, 0.1, **options, arrivals=own))
        torch.cuda.synchronize()
        assert all(map(torch.equal, actual, expected))


@pytest.mark.gpu
@pytest.mark.parametrize("num_splits", [None, 1, 8])
def test_a_cuda_graph_attends_to_what_its_inputs_say_when_it_is_replayed(num_splits, device):
    case = big_case(8, 1, 1000, torch.bfloat16, device, **SMOLLM2)
    options = {"num_splits": num_splits, "max_query_len": 1, "arrivals": Arrivals(device)}
    paged_attention_triton(*case, 0.1, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = paged_attention_triton(*case, 0.1, **options)
    for shorter in (0, 100, 700):
        case[4].sub_(shorter)
        graph.replay()
        assert_near(out, paged_attention_reference(*case, 0.1))


def test_rows_behind_the_last_request_are_padding(device):
    case = list(make_case([(2, 9)], torch.float32, device))
    expected = paged_attention_triton(*case, 0.3, block_q=4, num_splits=3)
    case[0] = torch.cat([case[0], case[0]])
    padded = paged_attention_triton(*case, 0.3, block_q=4, num_splits=3)
    assert torch.equal(padded[:2], expected)
