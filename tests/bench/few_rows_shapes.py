"""What the benchmarks of few rows share: models' shapes, launches, and time in CUDA graphs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from structspec.kernels.few_rows import make_arrivals
from structspec.kernels.few_rows_tiles import Tiles
from structspec.kernels.few_rows_triton import (
    linear_add_triton,
    norm_gate_up_silu_triton,
    norm_linear_triton,
    norm_qkv_rotate_store_triton,
)

EPS = 1e-5
PRODUCTS = ("qkv", "out", "gate_up", "down", "head")
Launch = Callable[[torch.Tensor, Tiles | None], object]


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


SHAPES = {
    "smollm2": Shape("SmolLM2-135M", 576, 9, 3, 64, 1536, 49152, 30),
    "1b": Shape("Llama-3.2-1B", 2048, 32, 8, 64, 8192, 128256, 16),
    "8b": Shape("Llama-3.1-8B", 4096, 32, 8, 128, 14336, 128256, 32),
}


def bf16(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(std=0.02)


def cache_places(shape: Shape, num_rows: int) -> tuple[torch.Tensor, ...]:
    """Where the rows' keys and values go: cos, sin, positions, slots, keys, values."""
    positions = torch.arange(num_rows, device="cuda")
    angles = torch.rand(num_rows, shape.head_dim // 2, device="cuda")
    blocks = -(-num_rows // 16), shape.num_kv_heads, 16, shape.head_dim
    return angles, angles, positions, positions, bf16(*blocks), bf16(*blocks)


def make_launch(shape: Shape, product: str, num_rows: int) -> Launch:
    """The product with a given weight and tiles; the chosen ones for None."""
    size = shape.weight(product)[1]
    x, norm, residual = bf16(num_rows, size), bf16(size), bf16(num_rows, shape.hidden)
    if product == "head":
        return lambda weight, tiles: norm_linear_triton(x, norm, EPS, weight, tiles)
    if product == "gate_up":
        return lambda weight, tiles: norm_gate_up_silu_triton(x, norm, EPS, weight, tiles)
    if product in ("out", "down"):
        arrivals = make_arrivals(shape.hidden, x.device)
        return lambda weight, tiles: linear_add_triton(x, weight, residual, arrivals, tiles)
    places = cache_places(shape, num_rows)
    return lambda weight, tiles: norm_qkv_rotate_store_triton(
        x, norm, EPS, weight, None, *places, tiles
    )


@cache
def side_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def graph_us(works: Sequence[Callable[[], object]]) -> float:
    """Microseconds that a graph of these takes, one behind the other; median of 5 replays."""
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
    return statistics.median(times[1:]) * 1e3
