"""What the fused products of few rows cost by tiles: `choose_tiles` is read off here.

python -m tests.bench.bench_few_rows   (on a GPU)

Each figure is microseconds for one launch in a CUDA graph of dependent launches. "cold" launches go
round copies of the weight that exceed the L2 cache, "warm" ones share a copy. GB/s are of weights.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from triton.runtime.errors import OutOfResources

from structspec.kernels.few_rows import make_arrivals
from structspec.kernels.few_rows_tiles import Tiles, choose_tiles
from structspec.kernels.few_rows_triton import (
    linear_add_triton,
    norm_gate_up_silu_triton,
    norm_linear_triton,
    norm_qkv_rotate_store_triton,
)

NUM_ROWS = (1, 4, 8, 16, 32)
COLD_BYTES = 120 * 2**20  # more than twice the L2 cache
NUM_PROCESSES = 12
ONE_ROW = (
    Tiles(1, 2, 1024, num_stages=1),
    Tiles(1, 4, 1024, num_stages=1),
    Tiles(1, 8, 1024, num_stages=1),
    Tiles(1, 4, 512, num_stages=4),
    Tiles(1, 8, 512, num_stages=4),
    Tiles(1, 16, 512, num_stages=1),
)
MORE_ROWS = (
    Tiles(16, 16, 64, num_stages=5),
    Tiles(16, 16, 128, num_stages=4),
    Tiles(16, 32, 128, num_stages=4),
    Tiles(16, 64, 64, num_stages=5),
    Tiles(16, 64, 128, num_stages=4),
    Tiles(16, 128, 64, num_stages=4),
    Tiles(16, 128, 64, num_warps=8, num_stages=4),
)
SPLIT = (
    Tiles(16, 16, 64, 3, num_stages=4),
    Tiles(16, 64, 128, 2, num_stages=4),
    Tiles(16, 64, 128, 4, num_stages=4),
    Tiles(16, 128, 64, 4, num_stages=4),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's sizes."""

    name: str
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    inner: int
    vocab_size: int
    num_layers: int

    def weight(self, product: str) -> tuple[int, int]:
        width = self.num_heads * self.head_dim
        return {
            "qkv": (width + 2 * self.num_kv_heads * self.head_dim, self.hidden),
            "out": (self.hidden, width),
            "gate_up": (2 * self.inner, self.hidden),
            "down": (self.hidden, self.inner),
            "head": (self.vocab_size, self.hidden),
        }[product]


SHAPES = (
    Shape("SmolLM2-135M", 576, 9, 3, 64, 1536, 49152, 30),
    Shape("Llama-3.1-8B", 4096, 32, 8, 128, 14336, 128256, 32),
)
PRODUCTS = ("qkv", "out", "gate_up", "down", "head")
Launch = Callable[[torch.Tensor, Tiles | None], object]


def bf16(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(std=0.02)


def make_launch(shape: Shape, product: str, num_rows: int) -> Launch:
    """The product with a given weight and tiles; the chosen ones for None."""
    size = shape.weight(product)[1]
    x, norm, residual = bf16(num_rows, size), bf16(size), bf16(num_rows, shape.hidden)
    if product == "head":
        return lambda weight, tiles: norm_linear_triton(x, norm, 1e-5, weight, tiles)
    if product == "gate_up":
        return lambda weight, tiles: norm_gate_up_silu_triton(x, norm, 1e-5, weight, tiles)
    if product in ("out", "down"):
        arrivals = make_arrivals(shape.hidden, x.device)
        return lambda weight, tiles: linear_add_triton(x, weight, residual, arrivals, tiles)
    positions = torch.arange(num_rows, device="cuda")
    angles = torch.rand(64, shape.head_dim // 2, device="cuda")
    keys, values = (bf16(8, shape.num_kv_heads, 16, shape.head_dim) for _ in range(2))
    places = (angles, angles, positions, positions, keys, values)
    return lambda weight, tiles: norm_qkv_rotate_store_triton(
        x, norm, 1e-5, weight, None, *places, tiles
    )


def candidates(product: str, num_rows: int) -> list[Tiles]:
    block_m = 32 if num_rows > 16 else 16
    tiles = [replace(each, block_m=block_m) for each in MORE_ROWS]
    if product in ("out", "down"):
        tiles += [replace(each, block_m=block_m) for each in SPLIT]
    tiles += ONE_ROW if num_rows == 1 else ()
    return [replace(each, overlaps=overlaps) for each in tiles for overlaps in (False, True)]


def chosen(shape: Shape, product: str, num_rows: int) -> Tiles:
    can_split = product in ("out", "down")
    return choose_tiles(num_rows, *shape.weight(product), torch.bfloat16, can_split=can_split)


def compile_some(index: int) -> None:
    """One process's share of all kernels, into Triton's cache on disk."""
    tasks = [
        (shape, product, num_rows, tiles)
        for shape in SHAPES
        for product in PRODUCTS
        for num_rows in (1, 16, 32)
        for tiles in candidates(product, num_rows)
        if num_rows != 1 or tiles.block_m == 1
    ]
    for shape, product, num_rows, tiles in tasks[index::NUM_PROCESSES]:
        weight = torch.empty(shape.weight(product), dtype=torch.bfloat16, device="cuda")
        try_tiles(make_launch(shape, product, num_rows), weight, tiles)


def try_tiles(launch: Launch, weight: torch.Tensor, tiles: Tiles) -> bool:
    """Whether a multiprocessor has room for them."""
    try:
        launch(weight, tiles)
    except OutOfResources:
        return False
    return True


@cache
def side_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def graph_us(works: Sequence[Callable[[], object]]) -> float:
    """Microseconds a launch, of launches that follow one another in a graph; median of 5."""
    for work in works:  # compiled and loaded before the capture
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side_stream()):
        graph.capture_begin()  # torch.cuda.graph() would empty the allocator's cache each time
        for work in works:
            work()
        graph.capture_end()
    times = []
    for _ in range(6):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[1:]) * 1e3 / len(works)


def launch_us(launch: Launch, weights: torch.Tensor, tiles: Tiles | None) -> float:
    num_launches = max(20, len(weights))
    turns = [weights[i % len(weights)] for i in range(num_launches)]
    return graph_us([partial(launch, weight, tiles) for weight in turns])


def show(tiles: Tiles) -> str:
    sizes = f"{tiles.block_m}x{tiles.block_n}x{tiles.block_k}"
    split = f"/{tiles.num_splits}" if tiles.num_splits > 1 else ""
    overlap = "+" if tiles.overlaps else ""
    return f"{sizes}{split} w{tiles.num_warps} s{tiles.num_stages}{overlap}"


def measure_product(shape: Shape, product: str, is_cold: bool) -> None:
    num_columns, size = shape.weight(product)
    num_bytes = 2 * num_columns * size
    weights = bf16(max(1, COLD_BYTES // num_bytes) if is_cold else 1, num_columns, size)
    state = "cold" if is_cold else "warm"
    for num_rows in NUM_ROWS:
        launch = make_launch(shape, product, num_rows)
        rows = bf16(num_rows, size)
        library = launch_us(lambda w, _, x=rows: torch.nn.functional.linear(x, w), weights, None)
        results = {
            tiles: launch_us(launch, weights, tiles)
            for tiles in candidates(product, num_rows)
            if try_tiles(launch, weights[0], tiles)
        }
        now = launch_us(launch, weights, None)
        ranked = sorted(results, key=results.__getitem__)
        best = [each for each in ranked if each.overlaps][:2]
        best += [each for each in ranked if not each.overlaps][:1]
        figures = "  ".join(f"{show(tiles)} {results[tiles]:.1f}" for tiles in best)
        rate = num_bytes / results[ranked[0]] / 1e3
        print(
            f"{product:7} {state} M={num_rows:<2} torch {library:.1f} now {now:.1f}"
            f" best {rate:.0f} GB/s: {figures}",
            flush=True,
        )


def measure_step(shape: Shape) -> None:
    """All products of a step in one graph, without attention, with the chosen tiles."""
    layers = [[bf16(*shape.weight(p)) for p in PRODUCTS[:4]] for _ in range(shape.num_layers)]
    head = bf16(*shape.weight("head"))
    for num_rows in NUM_ROWS:
        launches = [make_launch(shape, product, num_rows) for product in PRODUCTS]
        figures = []
        for overlaps in (False, True):
            tiles = [
                replace(chosen(shape, product, num_rows), overlaps=overlaps) for product in PRODUCTS
            ]
            works = [
                partial(*call)
                for layer in layers
                for call in zip(launches, layer, tiles, strict=False)
            ]
            works.append(partial(launches[-1], head, tiles[-1]))
            figures.append(f"{graph_us(works) * len(works) / 1e3:.3f}")
        print(
            f"all products M={num_rows:<2} ms: {figures[0]}, overlapping {figures[1]}", flush=True
        )


def main() -> None:
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(NUM_PROCESSES) as pool:
        pool.map(compile_some, range(NUM_PROCESSES), chunksize=1)
    print(f"compiled in {time.perf_counter() - start:.0f} s; tiles MxNxK/splits, + overlaps")
    for shape in SHAPES:
        print(shape.name)
        measure_step(shape)
        for product in PRODUCTS:
            measure_product(shape, product, is_cold=True)
            if shape.hidden < 1024 and product != "head":
                measure_product(shape, product, is_cold=False)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
