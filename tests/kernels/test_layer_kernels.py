"""The small kernels of a layer: compiled form against reference, and rows that stay apart."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from structspec.kernels.add_rms_norm import add_rms_norm, add_rms_norm_reference
from structspec.kernels.exp import exp
from structspec.kernels.rotate_and_store import rotate_and_store, rotate_and_store_reference
from structspec.kernels.silu_mul import silu_mul, silu_mul_reference

SHAPES = pytest.mark.parametrize("num_rows", [0, 1, 5], ids=lambda rows: f"rows{rows}")
SIZES = pytest.mark.parametrize("size", [1, 37, 576], ids=lambda size: f"size{size}")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_exp_is_within_two_units_in_the_last_place() -> None:
    @numba.njit
    def exp_all(x: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(x)):
            out[i] = exp(x[i])

    x = np.linspace(-87.0, 87.0, 1_000_001, dtype=np.float32)
    out = np.empty_like(x)
    exp_all(x, out)
    exact = np.exp(x.astype(np.float64))
    assert np.all(np.abs(out - exact) <= 2 * np.spacing(exact.astype(np.float32)))


def test_exp_is_clamped_far_out() -> None:
    edges = [float(exp(np.float32(x))) for x in (-np.inf, -1000.0, 1000.0, np.inf)]
    assert edges[0] == edges[1] == pytest.approx(np.exp(-87.0), rel=1e-6)
    assert edges[2] == edges[3] == pytest.approx(np.exp(87.0), rel=1e-6)


@SHAPES
@SIZES
def test_add_rms_norm_is_its_reference(num_rows: int, size: int) -> None:
    x, weight = random(num_rows, size), random(size, seed=2)
    residual, residual_too = random(num_rows, size, seed=1), random(num_rows, size, seed=1)
    out = add_rms_norm(x, residual, weight, 1e-5)
    expected = add_rms_norm_reference(x, residual_too, weight, 1e-5)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(residual, residual_too)


@SHAPES
@SIZES
def test_silu_mul_is_its_reference(num_rows: int, size: int) -> None:
    gate_up = random(num_rows, 2 * size) * 20
    torch.testing.assert_close(silu_mul(gate_up), silu_mul_reference(gate_up), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("has_norms", [False, True], ids=["plain", "qk-norm"])
def test_rotate_and_store_is_its_reference(has_norms: bool) -> None:
    num_heads, num_kv_heads, head_dim, block_size = 4, 2, 6, 4
    qkv = random(5, (num_heads + 2 * num_kv_heads) * head_dim)
    norms = [random(head_dim if has_norms else 0, seed=seed) for seed in (1, 2)]
    angles = random(50, head_dim // 2, seed=3)
    places = torch.tensor([3, 0, 49, 7, 0]), torch.tensor([9, 0, 11, 4, -1])
    results = []
    for function in (rotate_and_store, rotate_and_store_reference):
        mine = qkv.clone()
        keys = torch.zeros(3, num_kv_heads, block_size, head_dim)
        values = torch.zeros_like(keys)
        function(mine, *norms, 1e-6, angles.cos(), angles.sin(), *places, keys, values)
        results.append((mine[:4, : num_heads * head_dim], keys, values))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)
    _, keys, values = results[0]
    is_written = keys.transpose(1, 2).flatten(0, 1).flatten(1).any(-1)  # [num_slots]
    assert is_written.nonzero().flatten().tolist() == [0, 4, 9, 11]
    assert torch.equal(values[2, 1, 1], qkv[0, -head_dim:])  # slot 9, the last value head


def test_rows_do_not_depend_on_their_number() -> None:
    x, residual, weight = random(64, 48), random(64, 48, seed=1), random(48, seed=2)
    many = add_rms_norm(x, residual.clone(), weight, 1e-5)
    one = add_rms_norm(x[40:41], residual[40:41].clone(), weight, 1e-5)
    assert torch.equal(one, many[40:41])
    assert torch.equal(silu_mul(x[40:41].contiguous()), silu_mul(x)[40:41])
