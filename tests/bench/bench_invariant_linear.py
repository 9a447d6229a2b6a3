"""Batch-invariant products beside torch's, for the weights of an 8B model, and what tiles cost.

python -m tests.bench.bench_invariant_linear

GB/s counts the weight alone, nearly all the traffic of few rows; of many, TFLOP/s tells more. Every
product runs in a CUDA graph, over copies of the weight that the L2 cache cannot hold together. The
second table also says whether a tile gives the first tile's bits: where all do, a tile could be
chosen by the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from structspec.kernels.invariant_linear import (
    Tile,
    choose_tile,
    invariant_linear,
    invariant_linear_triton,
)
from tests.bench.timing import DEVICE, measure_us, print_table

Product = Callable[[Tensor, Tensor], Tensor]

WEIGHTS = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)]
NUM_ROWS = (1, 16, 128, 640, 2048)
TILED_ROWS = (1, 128, 2048)
TILES = [  # and how many steps of k they hold; None: as is chosen by the number of programs
    (Tile(128, 64, 64, num_warps=4), None),
    (Tile(128, 64, 64, num_warps=4), 4),
    (Tile(128, 64, 128, num_warps=4), None),
    (Tile(128, 128, 64, num_warps=8), None),
    (Tile(128, 128, 64, num_warps=4), None),
    (Tile(128, 128, 64, num_warps=8), 4),
    (Tile(128, 256, 64, num_warps=8), 4),
    (Tile(64, 128, 64, num_warps=4), None),
    (Tile(64, 64, 128, num_warps=4), None),
    (Tile(64, 32, 128, num_warps=4), None),
]


def make_case(num_rows: int, out_size: int, in_size: int) -> tuple[Tensor, Tensor]:
    """Rows and a weight such that outputs are about 1; always the same."""
    torch.manual_seed(0)
    x = torch.randn(num_rows, in_size, device=DEVICE, dtype=torch.bfloat16)
    weight = torch.randn(out_size, in_size, device=DEVICE, dtype=torch.bfloat16)
    return x, weight / in_size**0.5


def copies_of(weight: Tensor) -> list[Tensor]:
    """At least 200 MB of copies: four times an H200's L2 cache."""
    num_bytes = weight.numel() * weight.itemsize
    return [weight.clone() for _ in range(-(-200_000_000 // num_bytes))]


def product_us(product: Product, x: Tensor, weights: list[Tensor]) -> float:
    """The time of one product, without its launch."""
    product(x, weights[0])  # compiles, which no capture may
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for weight in weights * 2:
            product(x, weight)
    return measure_us(graph.replay, num_runs=5) / (2 * len(weights))


def measure(out_size: int, in_size: int, num_rows: int) -> tuple[object, ...]:
    """One line of the first table."""
    x, weight = make_case(num_rows, out_size, in_size)
    weights = copies_of(weight)
    torch_us = product_us(torch.nn.functional.linear, x, weights)
    ours_us = product_us(invariant_linear, x, weights)
    gigabytes = weight.numel() * weight.itemsize / ours_us / 1e3
    teraflops = 2 * weight.numel() * num_rows / ours_us / 1e6
    times = (f"{torch_us:.1f}", f"{ours_us:.1f}", f"{torch_us / ours_us:.2f}")
    return (f"{out_size} x {in_size}", num_rows, *times, f"{gigabytes:.0f}", f"{teraflops:.0f}")


def measure_tiles(out_size: int, in_size: int) -> list[tuple[object, ...]]:
    """The lines of the second table for one weight."""
    lines: list[list[object]] = [[f"{out_size} x {in_size}", name_of(*tile)] for tile in TILES]
    for num_rows in TILED_ROWS:
        x, weight = make_case(num_rows, out_size, in_size)
        weights = copies_of(weight)
        for line, tile in zip(lines, TILES, strict=True):
            line.append(f"{product_us(with_tile(*tile), x, weights):.1f}")
    x, weight = make_case(300, out_size, in_size)
    first = with_tile(*TILES[0])(x, weight)
    for line, tile in zip(lines, TILES, strict=True):
        line.append(torch.equal(with_tile(*tile)(x, weight), first))
    return [tuple(line) for line in lines]


def with_tile(tile: Tile, num_stages: int | None) -> Product:
    """The product in a tile of one's choice."""
    return partial(invariant_linear_triton, tile=tile, num_stages=num_stages)


def name_of(tile: Tile, num_stages: int | None = None) -> str:
    """Such as 128x64x64 w4, with s4 behind it where the stages are given."""
    sizes = f"{tile.block_m}x{tile.block_n}x{tile.block_k}"
    return f"{sizes} w{tile.num_warps}" + (f" s{num_stages}" if num_stages else "")


if __name__ == "__main__":
    if DEVICE.type != "cuda":
        raise SystemExit("this benchmark needs a GPU")
    for size, _ in WEIGHTS:
        print(size, "outputs:", name_of(choose_tile(size, torch.bfloat16)))
    print_table(
        ("weight", "rows", "torch us", "ours us", "torch / ours", "GB/s", "TFLOP/s"),
        [measure(*weight, num_rows) for weight in WEIGHTS for num_rows in NUM_ROWS],
    )
    columns = [f"us, {num_rows} rows" for num_rows in TILED_ROWS]
    print_table(
        ("weight", "tile", *columns, "same bits"),
        [line for weight in WEIGHTS for line in measure_tiles(*weight)],
    )
