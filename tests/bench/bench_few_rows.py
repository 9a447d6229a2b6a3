"""What the fused products of few rows cost by tiles: `choose_tiles` is read off here.

python -m tests.bench.bench_few_rows   (on a GPU)
    --shapes smollm2 8b --rows 4 32 --products qkv gate_up --only layers

First whole layers, as they are chosen, against those that are not fused; then each product alone.
Figures are microseconds for one launch in a CUDA graph of dependent launches, going round copies of
the weight that exceed the L2 cache. GB/s are of weights.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product as pairs

import torch
from triton.runtime.errors import OutOfResources

from structspec.kernels.few_rows_tiles import MAX_ROWS, Tiles
from tests.bench import few_rows_layers
from tests.bench.few_rows_shapes import (
    PRODUCTS,
    SHAPES,
    Launch,
    Shape,
    bf16,
    graph_us,
    make_launch,
)

COLD_BYTES = 120 * 2**20  # more than twice the L2 cache
NUM_PROCESSES = 14
ONE_ROW = (
    Tiles(1, 4, 1024, num_stages=1),
    Tiles(1, 8, 1024, num_stages=1),
    Tiles(1, 16, 1024, num_stages=1),
    Tiles(1, 8, 512, num_stages=4),
    Tiles(1, 16, 512, num_stages=1),
    Tiles(1, 16, 512, num_stages=4),
)
FEW_COLUMNS = (  # for short weights, and those whose columns make few programs
    Tiles(16, 16, 64, num_stages=5),
    Tiles(16, 16, 128, num_warps=2, num_stages=4),
    Tiles(16, 16, 128, num_warps=1, num_stages=4),
    Tiles(16, 16, 256, num_stages=3),
    Tiles(16, 32, 128, num_stages=4),
    Tiles(16, 32, 128, num_stages=5),
    Tiles(16, 32, 256, num_stages=3),
    Tiles(16, 64, 64, num_stages=5),
    Tiles(16, 64, 128, num_stages=3),
)
MANY_COLUMNS = (
    Tiles(16, 64, 64, num_stages=5),
    Tiles(16, 64, 128, num_stages=4),
    Tiles(16, 128, 64, num_stages=3),
    Tiles(16, 128, 64, num_stages=4),
    Tiles(16, 128, 64, num_stages=5),
    Tiles(16, 128, 128, num_stages=3),
)
SPLIT = (
    Tiles(16, 16, 64, 3, num_stages=4),
    Tiles(16, 16, 128, 4, num_stages=4),
    Tiles(16, 16, 128, num_warps=2, num_stages=4),
    Tiles(16, 32, 128, 3, num_stages=4),
    Tiles(16, 64, 128, 2, num_stages=4),
    Tiles(16, 64, 128, 4, num_stages=4),
    Tiles(16, 64, 128, 4, num_stages=5),
)


def candidates(shape: Shape, product: str, num_rows: int) -> list[Tiles]:
    columns, size = shape.weight(product)
    is_small = columns * size <= 20 * 2**20
    if num_rows == 1:
        return [replace(tiles, overlap=o) for tiles in ONE_ROW for o in ("early", "late")]
    if product in ("out", "down"):
        tiles = SPLIT
    else:
        tiles = FEW_COLUMNS if is_small or product == "qkv" else MANY_COLUMNS
    blocks = (16,) if num_rows <= 16 else (32,) if num_rows <= 32 else (32, 64)
    overlaps = ("early", "late") if is_small else ("late", "")
    return [
        replace(each, block_m=block_m, overlap=overlap)
        for each, block_m, overlap in pairs(tiles, blocks, overlaps)
    ]


Kernel = tuple[Shape, str, int, Tiles]


def compile_all(kernels: Iterable[Kernel]) -> None:
    """Into Triton's cache on disk, by several processes."""
    distinct = {(k[0].name, k[1], min(k[2], 2), k[3]): k for k in kernels}
    start, tasks = time.perf_counter(), list(distinct.values())
    with multiprocessing.get_context("spawn").Pool(NUM_PROCESSES) as pool:
        pool.map(compile_some, [tasks[i::NUM_PROCESSES] for i in range(NUM_PROCESSES)], 1)
    print(f"{len(tasks)} kernels compiled in {time.perf_counter() - start:.0f} s", flush=True)


def compile_some(kernels: Sequence[Kernel]) -> None:
    for shape, product, num_rows, tiles in kernels:
        weight = torch.empty(shape.weight(product), dtype=torch.bfloat16, device="cuda")
        try_tiles(make_launch(shape, product, num_rows), weight, tiles)


def try_tiles(launch: Launch, weight: torch.Tensor, tiles: Tiles) -> bool:
    """Whether a multiprocessor has room for them."""
    try:
        launch(weight, tiles)
    except OutOfResources:
        return False
    return True


def show(tiles: Tiles) -> str:
    sizes = f"{tiles.block_m}x{tiles.block_n}x{tiles.block_k}"
    split = f"/{tiles.num_splits}" if tiles.num_splits > 1 else ""
    return f"{sizes}{split} w{tiles.num_warps} s{tiles.num_stages} {tiles.overlap or 'waits'}"


def launch_us(launch: Launch, weights: torch.Tensor, tiles: Tiles | None) -> float:
    num_launches = max(20, len(weights))
    turns = [weights[i % len(weights)] for i in range(num_launches)]
    return graph_us([partial(launch, weight, tiles) for weight in turns]) / num_launches


def measure_product(shape: Shape, product: str, rows: Iterable[int]) -> None:
    num_columns, size = shape.weight(product)
    num_bytes = 2 * num_columns * size
    weights = bf16(max(1, COLD_BYTES // num_bytes), num_columns, size)
    for num_rows in rows:
        launch = make_launch(shape, product, num_rows)
        x = bf16(num_rows, size)
        library = launch_us(lambda w, _, x=x: torch.nn.functional.linear(x, w), weights, None)
        results = {
            tiles: launch_us(launch, weights, tiles)
            for tiles in candidates(shape, product, num_rows)
            if try_tiles(launch, weights[0], tiles)
        }
        now = few_rows_layers.chosen(shape, product, num_rows)
        now_us = launch_us(launch, weights, now)
        ranked = sorted(results, key=results.__getitem__)
        figures = "  ".join(f"{show(tiles)} {results[tiles]:.1f}" for tiles in ranked[:4])
        rate = num_bytes / results[ranked[0]] / 1e3
        print(
            f"{shape.name} {product:7} M={num_rows:<3} torch {library:.1f}, {show(now)}"
            f" {now_us:.1f}; best {rate:.0f} GB/s: {figures}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["smollm2", "8b"])
    parser.add_argument("--products", nargs="+", choices=PRODUCTS, default=PRODUCTS)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 32, 128])
    parser.add_argument("--only", choices=["layers", "products"])
    options = parser.parse_args()
    start = time.perf_counter()
    shapes = [SHAPES[name] for name in options.shapes]
    assert max(options.rows) <= MAX_ROWS
    layer_rows = few_rows_layers.ROWS if options.only != "products" else ()
    # beyond 32 rows only short weights are worth a search
    searched = [
        (shape, product, [n for n in options.rows if n <= 32 or shape.hidden < 1024])
        for shape in shapes
        for product in (options.products if options.only != "layers" else ())
    ]
    kernels = [each for shape in shapes for each in few_rows_layers.kernels(shape, layer_rows)]
    kernels += [
        (shape, product, num_rows, tiles)
        for shape, product, rows in searched
        for num_rows in rows
        for tiles in candidates(shape, product, num_rows)
    ]
    compile_all(kernels)
    for shape in shapes:
        few_rows_layers.measure_layers(shape, layer_rows)
    for shape, product, rows in searched:
        measure_product(shape, product, rows)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
