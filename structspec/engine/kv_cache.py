"""The keys and values of every cached position, in fixed-size blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.config import EngineConfig
from structspec.errors import OutOfMemory
from structspec.kernels.paged_attention_triton import Arrivals
from structspec.models.config import ModelConfig

_MAX_DEFAULT_BYTES = 2 * 1024**3
_NUM_DEFAULT_CONTEXTS = 4


class KVCache:
    """Keys and values, each [num_layers, num_blocks, num_kv_heads, block_size, head_dim].

    A block is contiguous per kv head: attention walks a head's keys without strides. In main memory
    it is touched, and so really taken, only as blocks are written. `arrivals` are the counters of
    attention to it.
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
        self.arrivals = Arrivals(device)
        self._layers = list(zip(self.keys.unbind(), self.values.unbind(), strict=True))

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """One layer's keys and values, [num_blocks, num_kv_heads, block_size, head_dim] each."""
        return self._layers[index]


def bytes_per_block(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """The keys and values of `block_size` positions in all layers."""
    numbers_per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return numbers_per_token * dtype.itemsize * block_size


def choose_num_blocks(
    config: ModelConfig,
    engine: EngineConfig,
    dtype: torch.dtype,
    available_bytes: int | None = None,
) -> int:
    """As configured; else what fits, but no more than all requests with full contexts could fill.

    What fits is told in `available_bytes` where the device's memory was measured: then there must
    be room for one full context, and for a block of each request, or OutOfMemory is raised. Else it
    is room for 4 full contexts, at most 2 GiB but always one block.
    """
    if engine.num_blocks is not None:
        return engine.num_blocks
    block_bytes = bytes_per_block(config, engine.block_size, dtype)
    blocks_per_context = -(-config.max_model_len // engine.block_size)
    if available_bytes is None:
        wanted = _NUM_DEFAULT_CONTEXTS * blocks_per_context
        return max(1, min(wanted, _MAX_DEFAULT_BYTES // block_bytes))
    assert engine.max_num_requests >= 1
    num_blocks = max(0, available_bytes) // block_bytes
    if num_blocks < blocks_per_context:
        at_most = f" to {num_blocks * engine.block_size} or less" if num_blocks else ""
        raise OutOfMemory(
            f"one context of {config.max_model_len} tokens needs a KV cache of"
            f" {gibibytes(blocks_per_context * block_bytes)}, and {gibibytes(available_bytes)} are"
            " left for it beside the weights, the largest step and what other processes hold:"
            f" lower max_model_len{at_most}, raise gpu_memory_utilization"
            f" ({engine.gpu_memory_utilization}), or take a smaller model or dtype"
        )
    if num_blocks < engine.max_num_requests:
        raise OutOfMemory(
            f"a KV block for each of max_num_requests={engine.max_num_requests} needs"
            f" {gibibytes(engine.max_num_requests * block_bytes)}, and"
            f" {gibibytes(available_bytes)} are left for it: lower max_num_requests or block_size,"
            f" raise gpu_memory_utilization ({engine.gpu_memory_utilization}), or take a smaller"
            " model or dtype"
        )
    return min(num_blocks, engine.max_num_requests * blocks_per_context)


def gibibytes(num_bytes: int) -> str:
    """Such as 1.50 GiB; what is below nothing is nothing."""
    return f"{max(0, num_bytes) / 1024**3:.2f} GiB"
