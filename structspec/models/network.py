"""What the engine runs: any network that turns one step's tokens into logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from structspec.models.config import ModelConfig
from structspec.models.inputs import ForwardInput

if TYPE_CHECKING:  # the cache is sized from a ModelConfig: importing it here would be a circle
    from structspec.engine.kv_cache import KVCache


class Network(Protocol):
    """A decoder with its weights; `forward` may run on one thread at a time."""

    @property
    def config(self) -> ModelConfig:
        """The shape that its KV cache must have, and its context."""

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, keys and values."""

    @property
    def device(self) -> torch.device:
        """Where weights, inputs and KV cache live."""

    def forward(self, inputs: ForwardInput, kv_cache: KVCache) -> Tensor:
        """Logits [num_logits_rows, vocab_size]; writes the rows' keys and values to the cache."""
