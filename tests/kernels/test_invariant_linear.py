"""invariant_linear: the reference's numbers, and a row's bits whatever stands around it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.kernels.invariant_linear import (
    Multiprocessors,
    Tile,
    choose_num_stages,
    choose_tile,
    invariant_linear,
    invariant_linear_reference,
    invariant_linear_triton,
)

NO_BFLOAT16 = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="Triton's interpreter computes with bfloat16's bits"
)
DTYPES = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=NO_BFLOAT16)],
    ids=["fp32", "fp16", "bf16"],
)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def random(*shape: int, seed: int = 0, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(device, dtype)


def make_case(num_rows, out_size, in_size, dtype, device):
    """Inputs, weight and bias such that outputs are about 1."""
    x = random(num_rows, in_size, dtype=dtype, device=device)
    weight = random(out_size, in_size, seed=1, dtype=dtype, device=device) / in_size**0.5
    return x, weight, random(out_size, seed=2, dtype=dtype, device=device)


def assert_near(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert actual.dtype == expected.dtype
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(actual, expected, atol=bound, rtol=bound)


@DTYPES
@pytest.mark.parametrize(
    ("num_rows", "out_size", "in_size"),
    [(0, 8, 8), (1, 1, 1), (5, 37, 123), (130, 70, 64), (3, 96, 576)],
    ids=["empty", "one-number", "odd", "two-tiles", "whole-tiles-of-k"],
)
def test_it_is_its_reference(num_rows, out_size, in_size, dtype, device):
    x, weight, bias = make_case(num_rows, out_size, in_size, dtype, device)
    for each in (None, bias):
        expected = invariant_linear_reference(x, weight, each)
        assert_near(invariant_linear_triton(x, weight, each), expected, dtype)


@DTYPES
def test_logits_may_be_float32_whatever_the_weights(dtype, device):
    x, weight, bias = make_case(3, 20, 40, dtype, device)
    actual = invariant_linear_triton(x, weight, bias, out_dtype=torch.float32)
    expected = x.double() @ weight.double().T + bias.double()
    torch.testing.assert_close(actual, expected.float(), atol=1e-5, rtol=1e-5)


def test_off_a_gpu_it_is_the_reference():
    x, weight, bias = make_case(3, 20, 40, torch.float32, torch.device("cpu"))
    expected = invariant_linear_reference(x, weight, bias)
    assert torch.equal(invariant_linear(x, weight, bias), expected)


def make_case_for_bits(num_rows, out_size, in_size, dtype, device):
    """Off a GPU small whole numbers, whose sums are exact in any order.

    There Triton's interpreter has numpy multiply, and the order in which its library adds up may
    hang on a row's place in a tile: some processors' kernels do.
    """
    if device.type == "cuda":
        return make_case(num_rows, out_size, in_size, dtype, device)
    generator = torch.Generator().manual_seed(0)
    shapes = (num_rows, in_size), (out_size, in_size), (out_size,)
    return tuple(torch.randint(-4, 5, shape, generator=generator).to(dtype) for shape in shapes)


@DTYPES
def test_a_row_has_the_same_bits_alone_and_before_any_number_of_others(dtype, device):
    x, weight, bias = make_case_for_bits(70, 40, 50, dtype, device)
    alone = torch.cat([invariant_linear_triton(row[None], weight, bias) for row in x])
    for num_rows in range(1, 71):
        assert torch.equal(invariant_linear_triton(x[:num_rows], weight, bias), alone[:num_rows])


@settings(max_examples=25, deadline=None)
@given(places=st.lists(st.integers(0, 9), min_size=1, max_size=140))
def test_a_row_has_the_same_bits_in_any_place_among_any_others(places):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, weight, bias = make_case_for_bits(10, 24, 70, torch.float16, device)
    alone = torch.cat([invariant_linear_triton(row[None], weight, bias) for row in x])
    assert torch.equal(invariant_linear_triton(x[places], weight, bias), alone[places])


@pytest.mark.parametrize("num_rows", [1, 63, 64, 257])
def test_every_tile_of_the_output_is_computed_once(num_rows, device):
    # Small tiles and many of them: the order of programs in groups leaves none out.
    x, weight, _ = make_case(num_rows, 50, 16, torch.float32, device)
    tile = Tile(16, 16, 16, num_warps=4)
    actual = invariant_linear_triton(x, weight, tile=tile)
    assert_near(actual, invariant_linear_reference(x, weight), torch.float32)


LLAMA_8B = pytest.mark.parametrize(
    ("out_size", "in_size"),
    [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)],
    ids=["qkv", "attention-out", "gate-up", "mlp-out", "head"],
)


@pytest.mark.gpu
@LLAMA_8B
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_rows_of_an_8b_model_have_the_same_bits_in_steps_of_all_sizes(
    out_size, in_size, dtype, device
):
    x, weight, _ = make_case(2048, out_size, in_size, dtype, device)
    whole = invariant_linear(x, weight)
    assert_near(whole, invariant_linear_reference(x, weight), dtype)
    for num_rows in (1, 2, 5, 16, 17, 63, 64, 65, 127, 128, 129, 640, 1000):
        for first in (0, 700):
            rows = slice(first, first + num_rows)
            assert torch.equal(invariant_linear(x[rows], weight), whole[rows])


@pytest.mark.gpu
@pytest.mark.parametrize(("out_size", "in_size"), [(960, 576), (576, 1536), (49152, 576)])
def test_float32_rows_have_the_same_bits_in_steps_of_all_sizes(out_size, in_size, device):
    x, weight, bias = make_case(512, out_size, in_size, torch.float32, device)
    whole = invariant_linear(x, weight, bias)
    assert_near(whole, invariant_linear_reference(x, weight, bias), torch.float32)
    for num_rows in (1, 2, 5, 16, 31, 32, 33, 100):
        rows = slice(77, 77 + num_rows)
        assert torch.equal(invariant_linear(x[rows], weight, bias), whole[rows])


@pytest.mark.gpu
def test_it_can_be_captured_in_a_graph(device):
    x, weight, bias = make_case(5, 960, 576, torch.bfloat16, device)
    expected = invariant_linear(x, weight, bias)  # compiles, which no capture may
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = invariant_linear(x, weight, bias)
    graph.replay()
    assert torch.equal(captured, expected)


def test_tiles_are_chosen_by_the_weight_and_fit_matrix_instructions():
    for out_size in (8, 4096, 128256):
        for dtype in TOLERANCE:
            tile = choose_tile(out_size, dtype)
            assert min(tile.block_m, tile.block_n, tile.block_k) >= 16
            if dtype != torch.float32:
                assert tile.block_m >= 64 and tile.num_warps % 4 == 0


def test_programs_read_as_far_ahead_as_shared_memory_allows():
    tile, h200 = Tile(128, 64, 64, num_warps=4), Multiprocessors(132, 228 * 1024)
    # A step of k is 24 KiB in bfloat16; half a multiprocessor has 114 KiB, less one reserved.
    assert choose_num_stages(tile, 64, 2, h200) == 8
    assert choose_num_stages(tile, 133, 2, h200) == 4
    small = Multiprocessors(20, 100 * 1024)
    assert choose_num_stages(tile, 20, 2, small) == 4
    assert choose_num_stages(tile, 21, 2, small) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("out_size", [4096, 28672])
def test_reading_ahead_changes_no_bits(out_size, device):
    x, weight, _ = make_case(300, out_size, 4096, torch.bfloat16, device)
    expected = invariant_linear(x, weight)
    for num_stages in (2, 3, 4, 6):
        assert torch.equal(invariant_linear_triton(x, weight, num_stages=num_stages), expected)
