"""A transformers model's matrix products in the form that is fastest on the CPU."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from structspec.models.linear import can_pack, make_linear


class _PackedLinear(nn.Module):
    """`weight` tells its shape and type to models that ask, and spoils what is computed with it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._linear = make_linear(weight, bias)
        self.weight = weight.new_full((), float("nan")).expand(weight.shape)

    def forward(self, x: Tensor) -> Tensor:
        return self._linear(x.flatten(0, -2)).view(*x.shape[:-1], len(self.weight))


def pack_linears(model: nn.Module) -> None:
    """Replace all linear layers whose weights can be packed."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            packed = _packed(child)
            if packed is not None:
                setattr(parent, name, packed)


def _packed(module: Any) -> _PackedLinear | None:
    from transformers.pytorch_utils import Conv1D  # GPT-2's: a linear layer, transposed

    # No subclasses: routers of experts are some, and compute something else.
    if type(module) not in (nn.Linear, Conv1D) or not can_pack(module.weight):
        return None
    weight = module.weight.detach()
    bias = None if module.bias is None else module.bias.detach()
    return _PackedLinear(weight.t() if type(module) is Conv1D else weight, bias)
