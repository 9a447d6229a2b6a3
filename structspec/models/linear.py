"""A matrix product with fixed weights, in the fastest form the device has.

On a CPU with oneDNN, float32 weights are packed once. Measured on SmolLM2 with two threads, all
products of a step take 19 ms for 3 to 8 rows instead of 60 (one row: 30 instead of 53), and a row's
result has the same bits however many other rows there are, as long as there are two. So callers pad
to MIN_ROWS, and a decode step is bit-identical to the same row inside a batch or a verify span.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from structspec.kernels.invariant_linear import invariant_linear

MIN_ROWS = 4  # fewer rows take longer, and one row alone has other bits

# torch prepares its products for each number of rows it meets with each shape of weights, and keeps
# 1,024 of them, half a megabyte each; oneDNN beneath it keeps as many. A server meets hundreds, and
# they would be its largest use of memory. A step asks for five shapes, layer by layer, so few must
# be at hand, but what oneDNN has to make again takes a millisecond. Read at the first product.
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512")


_Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # of x, weight and bias


@dataclass(frozen=True, slots=True)
class Linear:
    """x -> x weight^T + bias, [num_rows, in_size] -> [num_rows, out_size]."""

    weight: Tensor  # [out_size, in_size], or what oneDNN has made of it
    bias: Tensor | None
    product: _Product

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)

    def unrounded(self, x: Tensor) -> Tensor:
        """On a GPU the float32 sums of half-precision numbers, elsewhere what a call gives."""
        if not x.is_cuda or x.dtype.itemsize > 2:
            return self(x)
        if self.product is invariant_linear:
            return invariant_linear(x, self.weight, self.bias, out_dtype=torch.float32)
        out = torch.mm(x, self.weight.t(), out_dtype=torch.float32)
        return out if self.bias is None else out.add_(self.bias)


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN packing is to be had for this weight."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def make_linear(
    weight: Tensor, bias: Tensor | None = None, *, is_invariant: bool = False
) -> Linear:
    """x -> x weight^T + bias; the weight may be freed by the caller.

    On a GPU a row's bits may depend on the number of rows, unless the product `is_invariant`.
    """
    if is_invariant and weight.is_cuda:
        return Linear(weight, bias, invariant_linear)
    if not can_pack(weight):
        return Linear(weight, bias, torch.nn.functional.linear)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, MIN_ROWS)
    return Linear(packed, bias, _packed_product)


def _packed_product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")
    return out
