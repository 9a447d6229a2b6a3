"""A layer and the head without attention, fused for few rows and not: how far fused ones pay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch

from structspec.kernels.add_rms_norm import add_rms_norm
from structspec.kernels.few_rows_tiles import Overlap, Tiles, choose_tiles
from structspec.kernels.rotate_and_store import rotate_and_store
from structspec.kernels.silu_mul import silu_mul
from tests.bench.few_rows_shapes import (
    EPS,
    PRODUCTS,
    Launch,
    Shape,
    bf16,
    cache_places,
    graph_us,
    make_launch,
)

ROWS = (1, 4, 8, 16, 32, 64, 128)
OVERLAPS: tuple[Overlap, ...] = ("", "late", "early")
LAYER_BYTES = 200 * 2**20  # four times the L2 cache


def chosen(shape: Shape, product: str, num_rows: int) -> Tiles:
    can_split = product in ("out", "down")
    columns, size = shape.weight(product)
    return choose_tiles(
        num_rows, columns, size, torch.bfloat16, can_split=can_split, can_overlap=True
    )


def kernels(shape: Shape, rows: Iterable[int]) -> Iterable[tuple[Shape, str, int, Tiles]]:
    """All that `measure_layers` launches, for compilation ahead."""
    for num_rows in rows:
        for product in PRODUCTS:
            tiles = chosen(shape, product, num_rows)
            for overlap in OVERLAPS:
                yield shape, product, num_rows, replace(tiles, overlap=overlap)


def measure_layers(shape: Shape, rows: Iterable[int]) -> None:
    num_bytes = 2 * sum(torch.Size(shape.weight(p)).numel() for p in PRODUCTS[:4])
    num_layers = min(shape.num_layers, max(2, LAYER_BYTES // num_bytes))
    layers = [[bf16(*shape.weight(p)) for p in PRODUCTS[:4]] for _ in range(num_layers)]
    head = bf16(*shape.weight("head"))
    for num_rows in rows:
        plain, plain_head = unfused(shape, num_rows)
        figures = [graph_us([partial(plain, layer) for layer in layers]) / num_layers]
        heads = [graph_us([partial(plain_head, head)] * 4) / 4]
        launches = [make_launch(shape, product, num_rows) for product in PRODUCTS]
        tiles = [chosen(shape, product, num_rows) for product in PRODUCTS]
        for overlap in (None, *OVERLAPS):
            mine = tiles if overlap is None else [replace(t, overlap=overlap) for t in tiles]
            works = [work for layer in layers for work in calls(launches[:4], layer, mine[:4])]
            figures.append(graph_us(works) / num_layers)
            heads.append(graph_us([partial(launches[4], head, mine[4])] * 4) / 4)
        names = ("not fused", "fused", "waiting", "late", "early")
        for what, us in (("layer", figures), ("head", heads)):
            text = ", ".join(f"{name} {each:.1f}" for name, each in zip(names, us, strict=True))
            print(f"{shape.name} {what:5} M={num_rows:<3} us: {text}", flush=True)


def calls(
    launches: list[Launch], weights: list[torch.Tensor], tiles: list[Tiles]
) -> list[Callable[[], object]]:
    return [partial(*call) for call in zip(launches, weights, tiles, strict=True)]


def unfused(
    shape: Shape, num_rows: int
) -> tuple[Callable[[list[torch.Tensor]], None], Callable[[torch.Tensor], torch.Tensor]]:
    """A layer and the head as they run for many rows."""
    linear = torch.nn.functional.linear
    x, residual, norm = (
        bf16(num_rows, shape.hidden),
        bf16(num_rows, shape.hidden),
        bf16(shape.hidden),
    )
    attended = bf16(num_rows, shape.num_heads * shape.head_dim)
    none, places = bf16(0), cache_places(shape, num_rows)

    def layer(weights: list[torch.Tensor]) -> None:
        qkv, out, gate_up, down = weights
        rotated = linear(add_rms_norm(x, residual, norm, EPS), qkv)
        rotate_and_store(rotated, none, none, EPS, *places)
        normed = add_rms_norm(linear(attended, out), residual, norm, EPS)
        torch.mm(silu_mul(linear(normed, gate_up)), down.t(), out=x)

    def head(weight: torch.Tensor) -> torch.Tensor:
        normed = add_rms_norm(x, torch.zeros_like(x), norm, EPS)
        return torch.mm(normed, weight.t(), out_dtype=torch.float32)

    return layer, head
