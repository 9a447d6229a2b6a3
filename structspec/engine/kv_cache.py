"""The keys and values of every cached position, in fixed-size blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.config import EngineConfig
from structspec.models.config import ModelConfig

_MAX_DEFAULT_BYTES = 2 * 1024**3
_NUM_DEFAULT_CONTEXTS = 4


class KVCache:
    """Keys and values, each [num_layers, num_blocks, num_kv_heads, block_size, head_dim].

    A block is contiguous per kv head: attention walks a head's keys without strides. Memory is
    touched, and so really taken, only as blocks are written.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (config.num_layers, num_blocks, config.num_kv_heads, block_size, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self._layers = list(zip(self.keys.unbind(), self.values.unbind(), strict=True))

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """One layer's keys and values, [num_blocks, num_kv_heads, block_size, head_dim] each."""
        return self._layers[index]


def choose_num_blocks(config: ModelConfig, engine: EngineConfig, dtype: torch.dtype) -> int:
    """As configured; else room for 4 full contexts, at most 2 GiB but always one block."""
    if engine.num_blocks is not None:
        return engine.num_blocks
    numbers_per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    bytes_per_block = numbers_per_token * dtype.itemsize * engine.block_size
    blocks_per_context = -(-config.max_model_len // engine.block_size)
    wanted = _NUM_DEFAULT_CONTEXTS * blocks_per_context
    return max(1, min(wanted, _MAX_DEFAULT_BYTES // bytes_per_block))
