"""A transformers model's matrix products in the form that is fastest, and steady, on the CPU."""

from __future__ import annotations

from torch import Tensor, nn

from structspec.models.linear import can_pack, make_linear


class _PackedLinear(nn.Module):
    """Has no weight to read: a model that computes with it in its own way fails."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._linear = make_linear(weight, bias)
        self._out_size = len(weight)

    def forward(self, x: Tensor) -> Tensor:
        return self._linear(x.flatten(0, -2)).view(*x.shape[:-1], self._out_size)


def pack_linears(model: nn.Module) -> None:
    """Replace all linear layers whose weights can be packed."""
    from transformers.pytorch_utils import Conv1D  # GPT-2's: a linear layer, transposed

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, (nn.Linear, Conv1D)) or not can_pack(child.weight):
                continue
            weight = child.weight.detach()
            bias = None if child.bias is None else child.bias.detach()
            packed = _PackedLinear(weight.t() if isinstance(child, Conv1D) else weight, bias)
            setattr(parent, name, packed)
