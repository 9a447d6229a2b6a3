"""The fused products of few rows: the sums of float64, whatever the rows, tiles and parts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.kernels.few_rows import (
    linear_add,
    linear_add_reference,
    make_arrivals,
    norm_gate_up_silu,
    norm_gate_up_silu_reference,
    norm_linear,
    norm_linear_reference,
    norm_qkv_rotate_store,
    norm_qkv_rotate_store_reference,
)
from structspec.kernels.few_rows_tiles import MAX_ROWS, Tiles, choose_tiles
from structspec.kernels.few_rows_triton import (
    _norm_linear_kernel,
    linear_add_triton,
    norm_gate_up_silu_triton,
    norm_linear_triton,
    norm_qkv_rotate_store_triton,
)

EPS = 1e-5
# Half precision with a wide range runs on a GPU alone: the interpreter computes with its bits.
DTYPES = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)],
    ids=["fp32", "fp16", "bf16"],
)
# Of numbers about 1: one rounding of the result, two of a factor.
TOLERANCE = {torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}
ROWS = pytest.mark.parametrize("num_rows", [0, 1, 2, 5, 17, 33], ids=lambda n: f"rows{n}")
# Columns and size, none a multiple of a tile but in the last.
SHAPES = pytest.mark.parametrize(("num_columns", "size"), [(2, 3), (38, 70), (64, 128)])


def random(*shape: int, seed: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=device).to(dtype)


def make_products(num_rows, num_columns, size, dtype, device):
    """Rows, a norm's weight and a product's weight whose results are numbers about 1."""
    x = random(num_rows, size, seed=1, dtype=dtype, device=device) * 3
    norm_weight = 1 + random(size, seed=2, dtype=dtype, device=device) / 4
    weight = random(num_columns, size, seed=3, dtype=dtype, device=device) * size**-0.5
    return x, norm_weight, weight


def assert_near(actual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> None:
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(actual.double(), exact.double(), atol=bound, rtol=bound)


@DTYPES
@ROWS
@SHAPES
def test_norm_linear_is_its_reference(num_rows, num_columns, size, dtype, device):
    x, norm_weight, weight = make_products(num_rows, num_columns, size, dtype, device)
    logits = norm_linear_triton(x, norm_weight, EPS, weight)
    exact = norm_linear_reference(x.double(), norm_weight.double(), EPS, weight.double())
    assert logits.dtype == torch.float32
    assert_near(logits, exact, dtype)


@DTYPES
@ROWS
@SHAPES
def test_norm_gate_up_silu_is_its_reference(num_rows, num_columns, size, dtype, device):
    x, norm_weight, weight = make_products(num_rows, num_columns, size, dtype, device)
    exact = norm_gate_up_silu_reference(x.double(), norm_weight.double(), EPS, weight.double())
    assert_near(norm_gate_up_silu_triton(x, norm_weight, EPS, weight), exact, dtype)


@DTYPES
@ROWS
@SHAPES
def test_linear_add_is_its_reference(num_rows, num_columns, size, dtype, device):
    x, _, weight = make_products(num_rows, num_columns, size, dtype, device)
    residual = random(num_rows, num_columns, seed=4, dtype=dtype, device=device)
    exact = residual.double()
    linear_add_reference(x.double(), weight.double(), exact)
    linear_add_triton(x, weight, residual, make_arrivals(num_columns, device))
    assert_near(residual, exact, dtype)


@pytest.mark.parametrize("num_splits", [2, 7])
@pytest.mark.parametrize(("num_rows", "block_m"), [(1, 1), (5, 16), (35, 16)])
def test_parts_of_a_sum_make_the_sum_again_and_again(num_splits, num_rows, block_m, device):
    x, _, weight = make_products(num_rows, 38, 270, torch.float32, device)
    tiles = Tiles(block_m, 16, 16, num_splits)
    arrivals = make_arrivals(38, device)
    results = []
    for _ in range(3):
        residual = torch.zeros(len(x), 38, device=device)
        linear_add_triton(x, weight, residual, arrivals, tiles)
        results.append(residual)
        assert not arrivals.any()
    assert_near(results[0], x.double() @ weight.double().T, torch.float32)
    assert all(torch.equal(result, results[0]) for result in results)


def make_heads(num_rows, num_heads, num_kv_heads, head_dim, dtype, device, num_blocks=10):
    """Arguments of norm_qkv_rotate_store; the last of several is padding."""
    num_columns = (num_heads + 2 * num_kv_heads) * head_dim
    x, norm_weight, weight = make_products(num_rows, num_columns, 70, dtype, device)
    bias = random(num_columns, seed=5, dtype=dtype, device=device)
    angles = random(4 * num_blocks, head_dim // 2, seed=6, dtype=torch.float32, device=device)
    order = torch.randperm(4 * num_blocks, generator=torch.Generator().manual_seed(7))[:num_rows]
    slots = order.clone()
    if num_rows > 1:
        slots[-1] = -1
    keys = torch.zeros(num_blocks, num_kv_heads, 4, head_dim, dtype=dtype, device=device)
    return [
        x,
        norm_weight,
        EPS,
        weight,
        bias,
        angles.cos(),
        angles.sin(),
        order.to(device),
        slots.to(device),
        keys,
        torch.zeros_like(keys),
    ]


def in_float64(arguments):
    return [
        argument.double()
        if isinstance(argument, torch.Tensor) and argument.is_floating_point()
        else argument
        for argument in arguments
    ]


@DTYPES
@pytest.mark.parametrize("num_rows", [1, 2, 5, 17, 33], ids=lambda n: f"rows{n}")
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "has_bias"),
    [(6, 2, 6, True), (3, 1, 64, False), (3, 1, 64, True), (2, 2, 20, False)],
)
def test_norm_qkv_rotate_store_is_its_reference(
    num_rows, num_heads, num_kv_heads, head_dim, has_bias, dtype, device
):
    mine = make_heads(num_rows, num_heads, num_kv_heads, head_dim, dtype, device)
    if not has_bias:
        mine[4] = None
    exact = in_float64(mine)
    exact_queries = rotated_queries(norm_qkv_rotate_store_reference(*exact), exact)
    queries = rotated_queries(norm_qkv_rotate_store_triton(*mine), mine)
    assert_near(queries, exact_queries, dtype)
    for actual, expected in zip(mine[-2:], exact[-2:], strict=True):
        assert_near(actual, expected, dtype)
        assert torch.equal(actual == 0, expected == 0)  # nothing is stored anywhere else


def test_no_rows_have_no_queries(device):
    arguments = make_heads(0, 3, 1, 64, torch.float32, device)
    assert norm_qkv_rotate_store_triton(*arguments).shape == (0, 5 * 64)
    assert not arguments[-1].any()


def rotated_queries(qkv, arguments):
    """The columns of queries, of rows that are no padding."""
    slots, keys = arguments[-3], arguments[-2]
    return qkv[slots >= 0, : -2 * keys.shape[1] * keys.shape[3]]


@settings(max_examples=20, deadline=None)
@given(
    num_rows=st.integers(1, 40),  # up to three programs
    num_columns=st.integers(1, 40).map(lambda n: 2 * n),
    size=st.integers(1, 80),
    block_n=st.sampled_from([16, 32]),
    block_k=st.sampled_from([16, 64]),
    num_splits=st.integers(1, 3),
)
def test_tiles_of_any_shape_give_the_same_sums(
    num_rows, num_columns, size, block_n, block_k, num_splits
):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, norm_weight, weight = make_products(num_rows, num_columns, size, torch.float32, device)
    tiles = Tiles(16, block_n, block_k, num_splits)
    wide = x.double(), norm_weight.double(), EPS, weight.double()
    logits = norm_linear_triton(x, norm_weight, EPS, weight, tiles)
    assert_near(logits, norm_linear_reference(*wide), torch.float32)
    activated = norm_gate_up_silu_triton(x, norm_weight, EPS, weight, tiles)
    assert_near(activated, norm_gate_up_silu_reference(*wide), torch.float32)
    residual = torch.zeros(num_rows, num_columns, device=device)
    linear_add_triton(x, weight, residual, make_arrivals(num_columns, device), tiles)
    assert_near(residual, wide[0] @ wide[3].T, torch.float32)


def test_a_row_has_the_same_bits_whatever_the_others_hold(device):
    x, norm_weight, weight = make_products(9, 38, 70, torch.float32, device)
    expected = norm_linear_triton(x, norm_weight, EPS, weight)
    x[3:] = x[3:].flip(0)
    assert torch.equal(norm_linear_triton(x, norm_weight, EPS, weight)[:3], expected[:3])


def test_wrappers_off_the_gpu_are_their_references():
    x, norm_weight, weight = make_products(3, 8, 12, torch.float32, torch.device("cpu"))
    rows = x, norm_weight, EPS, weight
    assert torch.equal(norm_linear(*rows), norm_linear_reference(*rows))
    assert torch.equal(norm_gate_up_silu(*rows), norm_gate_up_silu_reference(*rows))
    residual = torch.zeros(3, 8)
    linear_add(x, weight, residual, make_arrivals(8, x.device))
    assert torch.equal(residual, x @ weight.T)
    heads, heads_too = (make_heads(3, 2, 1, 4, torch.float32, x.device) for _ in range(2))
    assert torch.equal(norm_qkv_rotate_store(*heads), norm_qkv_rotate_store_reference(*heads_too))
    assert torch.equal(heads[-1], heads_too[-1]) and heads[-1].any()


@given(
    num_rows=st.integers(1, MAX_ROWS),
    num_columns=st.integers(1, 200_000),
    size=st.integers(1, 30_000),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    can_split=st.booleans(),
)
def test_chosen_tiles_waste_no_program_and_split_no_sum_into_nothing(
    num_rows, num_columns, size, dtype, can_split
):
    tiles = choose_tiles(num_rows, num_columns, size, dtype, can_split=can_split)
    assert tiles.block_m <= max(16, 2 * num_rows - 1)
    assert tiles.num_splits == 1 or can_split
    assert (tiles.num_splits - 1) * tiles.block_k < size
    assert tiles.overlap == ""  # unless the device can


# Hidden size, heads, kv heads, head_dim, inner size.
SMOLLM2, LLAMA_8B = (576, 9, 3, 64, 1536), (4096, 32, 8, 128, 14336)
REAL_TOLERANCE = {torch.float32: 3e-5, torch.bfloat16: 2e-2}


@pytest.mark.gpu
@pytest.mark.parametrize("num_rows", [1, 3, 16, MAX_ROWS])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(SMOLLM2, torch.bfloat16), (SMOLLM2, torch.float32), (LLAMA_8B, torch.bfloat16)],
    ids=["smollm2-bf16", "smollm2-fp32", "llama-8b-bf16"],
)
def test_real_shapes_give_the_sums_of_float64(shape, num_rows, dtype, device):
    hidden, num_heads, num_kv_heads, head_dim, inner = shape
    bound = REAL_TOLERANCE[dtype]

    def check(actual, exact):
        torch.testing.assert_close(actual.double(), exact.double(), atol=bound, rtol=bound)

    x, norm_weight, gate_up = make_products(num_rows, 2 * inner, hidden, dtype, device)
    wide = x.double(), norm_weight.double(), EPS, gate_up.double()
    activated = norm_gate_up_silu(x, norm_weight, EPS, gate_up)
    check(activated, norm_gate_up_silu_reference(*wide))
    check(norm_linear(x, norm_weight, EPS, gate_up), norm_linear_reference(*wide))
    down = random(hidden, inner, seed=8, dtype=dtype, device=device) * inner**-0.5
    exact = wide[0].clone()
    linear_add_reference(activated.double(), down.double(), exact)
    linear_add(activated, down, x, make_arrivals(hidden, device))
    check(x, exact)

    columns = (num_heads + 2 * num_kv_heads) * head_dim
    x, norm_weight, weight = make_products(num_rows, columns, hidden, dtype, device)
    arguments = make_heads(num_rows, num_heads, num_kv_heads, head_dim, dtype, device, 32)
    arguments[0], arguments[1], arguments[3] = x, norm_weight, weight
    exact = in_float64(arguments)
    queries = rotated_queries(norm_qkv_rotate_store(*arguments), arguments)
    check(queries, rotated_queries(norm_qkv_rotate_store_reference(*exact), exact))
    check(arguments[-2], exact[-2])
    check(arguments[-1], exact[-1])


@pytest.mark.gpu
@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize(("num_splits", "overlap"), [(1, "early"), (2, "late")])
def test_kernels_that_overlap_in_a_graph_give_the_bits_of_those_that_wait(
    num_rows, num_splits, overlap, device
):
    x, norm_weight, gate_up = make_products(num_rows, 2 * 1536, 576, torch.bfloat16, device)
    down = random(576, 1536, seed=8, dtype=torch.bfloat16, device=device) / 100
    arrivals = make_arrivals(576, device)

    def run(overlap):
        residual = x.clone()
        block = (1, 8, 512) if num_rows == 1 else (16, 16, 64)
        for _ in range(30):
            tiles = Tiles(*block, num_splits=num_splits, overlap=overlap)
            activated = norm_gate_up_silu_triton(residual, norm_weight, EPS, gate_up, tiles)
            linear_add_triton(activated, down, residual, arrivals, tiles)
        return residual

    expected = run("")
    assert torch.equal(run(overlap), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(overlap)
    for _ in range(5):
        captured.zero_()
        graph.replay()
        assert torch.equal(captured, expected)


@pytest.mark.gpu
def test_numbers_of_rows_share_a_compiled_kernel(device):
    for num_rows in (2, 5, 16):
        norm_linear(*make_rows(num_rows, device))
    num_compiled = sum(len(cache[0]) for cache in _norm_linear_kernel.device_caches.values())
    for num_rows in range(2, 17):
        norm_linear(*make_rows(num_rows, device))
    assert num_compiled == sum(
        len(cache[0]) for cache in _norm_linear_kernel.device_caches.values()
    )


def make_rows(num_rows, device):
    x, norm_weight, weight = make_products(num_rows, 96, 64, torch.bfloat16, device)
    return x, norm_weight, EPS, weight
