"""A matrix product with fixed weights, in the fastest form the device has.

On a CPU with oneDNN, float32 weights are packed once. Measured on SmolLM2 with two threads, all
products of a step take 19 ms for 3 to 8 rows instead of 60 (one row: 30 instead of 53), and a row's
result has the same bits however many other rows there are, as long as there are two. So callers pad
to MIN_ROWS, and a decode step is bit-identical to the same row inside a batch or a verify span.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from structspec.kernels.invariant_linear import invariant_linear

MIN_ROWS = 4  # fewer rows take longer, and one row alone has other bits

Linear = Callable[[Tensor], Tensor]  # [num_rows, in_size] -> [num_rows, out_size]


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
        return lambda x: invariant_linear(x, weight, bias)
    if not can_pack(weight):
        return lambda x: torch.nn.functional.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, MIN_ROWS)
    product = torch.ops.mkldnn._linear_pointwise.default

    def linear(x: Tensor) -> Tensor:
        out: Tensor = product(x, packed, bias, "none", [], "")
        return out

    return linear
