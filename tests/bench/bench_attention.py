"""Paged attention on a GPU by the ways to launch it, beside torch's own on keys in one piece.

python -m tests.bench.bench_attention

Calls of as many layers as fit are captured in one CUDA graph; each has keys of its own, as in a
model. A way to launch is tile x part_tiles, w num_warps, s num_stages, then num_splits and block_q
where they are not the default. torch reads one layer's keys over and over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from structspec.kernels.paged_attention_plan import Launch
from structspec.kernels.paged_attention_triton import Arrivals, paged_attention_triton
from tests.bench.bench_few_rows import graph_us

BLOCK_SIZE = 16
DTYPE = torch.bfloat16
CACHE_BYTES = 8 * 1024**3
MAX_LAYERS = 32


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Case:
    num_requests: int
    query_len: int
    context: int


@dataclass(frozen=True, slots=True)
class Way:
    """One way to launch; None: as the kernel chooses."""

    launch: Launch | None = None
    num_splits: int | None = None
    block_q: int | None = None

    @property
    def name(self) -> str:
        parts = []
        if self.launch is not None:
            one = self.launch
            parts.append(f"{one.tile}x{one.part_tiles} w{one.num_warps} s{one.num_stages}")
        if self.num_splits is not None:
            parts.append(f"/{self.num_splits}")
        if self.block_q is not None:
            parts.append(f"q{self.block_q}")
        return " ".join(parts) or "default"


SHAPES = (Shape("SmolLM2 9/3 x 64", 9, 3, 64), Shape("8B 32/8 x 128", 32, 8, 128))
CONTEXTS = (300, 2048, 8192)
USUAL = Launch(64, 2, 4, 3)
MANY_ROWS = [
    Way(),
    Way(Launch(64, 2, 4, 2)),
    Way(Launch(64, 2, 4, 4)),
    Way(Launch(32, 4, 4, 4)),
    Way(Launch(128, 1, 4, 2)),
    Way(Launch(64, 2, 8, 3)),
    Way(USUAL, num_splits=2),
]
FEW_ROWS = [
    Way(),
    Way(USUAL, num_splits=1),
    Way(USUAL, num_splits=4),
    Way(USUAL, num_splits=16),
    Way(USUAL, num_splits=64),
    Way(Launch(64, 1, 4, 3)),
    Way(Launch(64, 4, 4, 3)),
    Way(Launch(32, 4, 4, 4)),
]
VERIFY = [Way(), Way(Launch(64, 2, 4, 2)), Way(Launch(64, 2, 8, 3)), Way(USUAL, block_q=4)]


def prompt_ways(group: int) -> list[Way]:
    small, large = 64 // group, 128 // group
    return [
        Way(),
        Way(Launch(64, 2, 8, 2), block_q=large),
        Way(Launch(128, 1, 8, 2), block_q=large),
        Way(Launch(64, 2, 4, 2), block_q=small),
        Way(Launch(64, 2, 4, 3), block_q=small),
    ]


def groups(shape: Shape) -> list[tuple[str, list[Way], list[Case]]]:
    prompts = prompt_ways(shape.num_heads // shape.num_kv_heads)
    return [
        ("decode", FEW_ROWS, [Case(n, 1, context) for n in (1, 8) for context in CONTEXTS]),
        ("decode", MANY_ROWS, [Case(n, 1, context) for n in (32, 128) for context in CONTEXTS]),
        ("verify", FEW_ROWS[:5], [Case(1, 8, 300), Case(1, 8, 2048)]),
        ("verify", VERIFY, [Case(128, 5, 300), Case(128, 5, 2048)]),
        ("prefill", prompts, [Case(1, 4096, 4096), Case(8, 2048, 2048)]),
    ]


class Inputs:
    """Random queries, keys of several layers, and block tables in random order."""

    def __init__(self, shape: Shape, case: Case) -> None:
        self.shape, self.case = shape, case
        num_blocks = -(-case.context // BLOCK_SIZE)
        total = case.num_requests * num_blocks
        one = (total, shape.num_kv_heads, BLOCK_SIZE, shape.head_dim)
        layer_bytes = 2 * 2 * total * shape.num_kv_heads * BLOCK_SIZE * shape.head_dim
        self.num_layers = max(1, min(MAX_LAYERS, CACHE_BYTES // layer_bytes))
        self.keys = torch.randn(self.num_layers, *one, dtype=DTYPE, device="cuda")
        self.values = torch.randn_like(self.keys)
        self.arrivals = Arrivals(self.keys.device)
        num_rows = case.num_requests * case.query_len
        width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
        self.qkv = torch.randn(num_rows, width, dtype=DTYPE, device="cuda")
        self.cu = torch.arange(case.num_requests + 1, device="cuda") * case.query_len
        self.contexts = torch.full((case.num_requests,), case.context, device="cuda")
        self.tables = torch.randperm(total, device="cuda").view(case.num_requests, num_blocks)

    def ours(self, layer: int, way: Way) -> torch.Tensor:
        return paged_attention_triton(
            self.qkv,
            self.keys[layer],
            self.values[layer],
            self.cu,
            self.contexts,
            self.tables,
            self.shape.head_dim**-0.5,
            max_query_len=self.case.query_len,
            block_q=way.block_q,
            num_splits=way.num_splits,
            launch=way.launch,
            arrivals=self.arrivals,
        )

    def torchs(self) -> torch.Tensor:
        case, shape = self.case, self.shape
        heads = self.qkv[:, : shape.num_heads * shape.head_dim]
        query = heads.reshape(case.num_requests, case.query_len, shape.num_heads, shape.head_dim)
        whole = (case.num_requests, shape.num_kv_heads, -1, shape.head_dim)
        return scaled_dot_product_attention(
            query.transpose(1, 2),
            self.keys[0].view(whole),
            self.values[0].view(whole),
            is_causal=case.query_len == case.context,
            enable_gqa=True,
        )

    @property
    def traffic(self) -> tuple[float, float]:
        """Bytes of keys and values that one call has to read, and its multiply-adds times two."""
        case, shape = self.case, self.shape
        per_key = 2 * 2 * shape.num_kv_heads * shape.head_dim
        seen = case.query_len * (case.context - (case.query_len - 1) / 2)
        flops = 4 * shape.num_heads * shape.head_dim * seen * case.num_requests
        return per_key * case.context * case.num_requests, flops


def measure(shape: Shape, case: Case, ways: Sequence[Way]) -> str:
    """One line: us a call for each way, what the best reaches, and torch."""
    inputs = Inputs(shape, case)
    layers = [i % inputs.num_layers for i in range(max(4, inputs.num_layers))]
    times = [graph_us([partial(inputs.ours, layer, way) for layer in layers]) for way in ways]
    torchs = graph_us([inputs.torchs] * 4)
    num_bytes, flops = inputs.traffic
    best = min(times)
    cells = [f"{time:{len(way.name)}.1f}" for way, time in zip(ways, times, strict=True)]
    reached = f"{num_bytes / best / 1e3:.0f} GB/s, {flops / best / 1e6:.0f} TFLOP/s"
    place = f"{case.num_requests} x {case.query_len}, {case.context}"
    return " | ".join([f"{place:>15}", *cells, f"{reached:>22}", f"{torchs:.1f}"])


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {DTYPE}; us a call")
    for shape in SHAPES:
        for kind, ways, cases in groups(shape):
            print(f"\n{shape.name}, {kind}")
            names = [way.name for way in ways]
            print(" | ".join(["   rows, context", *names, "          best reaches", "torch"]))
            for case in cases:
                print(measure(shape, case, ways), flush=True)


if __name__ == "__main__":
    main()
