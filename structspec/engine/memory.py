"""A KV cache as large as the device's memory allows, measured rather than guessed.

available = total * gpu_memory_utilization - held - step - graphs

held      what anybody has: weights, torch itself, other processes
step      what the largest step takes for a moment, seen by running it
graphs    an estimate for captured CUDA graphs, which are made when the cache is there already
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from structspec.config import EngineConfig
from structspec.engine.kv_cache import KVCache, bytes_per_block, choose_num_blocks, gibibytes
from structspec.models.inputs import AttentionMetadata, ForwardInput
from structspec.models.linear import MIN_ROWS
from structspec.models.network import Network
from structspec.models.out_of_memory import within_memory

logger = logging.getLogger("structspec")

_GRAPH_BYTES = 512 * 1024**2  # launches, and what a body keeps between its kernels
_NUM_GRAPH_COPIES = 7  # of the logits: each graph keeps its own, of 1, 7/8, 3/4 … as many rows
_NUM_SAMPLING_COPIES = 4  # of the logits: probabilities, what is cut from them, their sorted best


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A device's memory with the weights on it, before there is a KV cache; in bytes."""

    total: int
    held: int
    step: int
    graphs: int

    def available(self, utilization: float) -> int:
        """What the KV cache may take; negative where there is too little even without one."""
        return int(self.total * utilization) - self.held - self.step - self.graphs


class DeviceMemory(Protocol):
    """What is asked of a device."""

    def total_bytes(self) -> int:
        """All it has."""

    def held_bytes(self) -> int:
        """What is taken now, by this process or another."""

    def peak_bytes(self, work: Callable[[], None]) -> int:
        """Run `work`; the most that it took at once beyond what was taken before."""


class CudaMemory:
    """The memory of one GPU, as its driver and torch's allocator count it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total_bytes(self) -> int:
        """All it has."""
        return torch.cuda.mem_get_info(self._device)[1]

    def held_bytes(self) -> int:
        """What is taken now, without what torch's allocator keeps for later."""
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def peak_bytes(self, work: Callable[[], None]) -> int:
        """Counted in whole segments, so that what fragmentation wastes is in it."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_reserved(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_reserved(self._device) - before


def build_kv_cache(
    network: Network, engine: EngineConfig, memory: DeviceMemory | None = None
) -> KVCache:
    """The cache for a loaded network; raises OutOfMemory where it would be too small to serve.

    Sizes in `engine` must be numbers, as `resolved` makes them.

    Of a GPU without `memory` its own is asked. There a step of the largest size is run, unless the
    number of blocks is configured.
    """
    if memory is None and network.device.type == "cuda":
        memory = CudaMemory(network.device)
    available = None
    if memory is not None and engine.num_blocks is None:
        use = measure_use(network, engine, memory)
        available = use.available(engine.gpu_memory_utilization)
    num_blocks = choose_num_blocks(network.config, engine, network.dtype, available)
    num_bytes = num_blocks * bytes_per_block(network.config, engine.block_size, network.dtype)
    size = f"a KV cache of {num_blocks} blocks, {gibibytes(num_bytes)}"
    cache = within_memory(
        lambda: KVCache(
            network.config, num_blocks, engine.block_size, network.dtype, network.device
        ),
        f"making {size}",
        "lower num_blocks, max_model_len or gpu_memory_utilization, or take a smaller model or"
        " dtype",
    )
    logger.info("%s: %d tokens on %s", size, num_blocks * engine.block_size, network.device)
    return cache


def measure_use(network: Network, engine: EngineConfig, memory: DeviceMemory) -> MemoryUse:
    """Run the largest step, then count what it took, and what is held when it is over."""
    step = within_memory(
        lambda: memory.peak_bytes(lambda: run_largest_step(network, engine)),
        f"trying a step of max_num_batched_tokens={engine.max_num_batched_tokens}",
        "lower max_num_batched_tokens or max_num_requests, or take a smaller model or dtype",
    )
    graphs = graph_bytes(network.config.vocab_size, engine)
    return MemoryUse(memory.total_bytes(), memory.held_bytes(), step, graphs)


def graph_bytes(vocab_size: int, engine: EngineConfig) -> int:
    """About what the graphs of all sizes will hold."""
    if engine.enforce_eager:
        return 0
    return _GRAPH_BYTES + _NUM_GRAPH_COPIES * max_num_logits_rows(engine) * vocab_size * 4


def max_num_logits_rows(engine: EngineConfig) -> int:
    """The most rows that one step can sample from."""
    most = engine.max_num_requests + engine.max_num_draft_tokens
    return min(most, engine.max_num_batched_tokens)


def max_num_drafts(engine: EngineConfig) -> int:
    """The most drafts that one request can have in a step."""
    return min(engine.speculative.num_speculative_tokens, engine.max_num_draft_tokens)


def run_largest_step(network: Network, engine: EngineConfig) -> None:
    """A step with as many rows and logits as the scheduler may ask for; its output is noise.

    Its rows are whole prompts that read one block of a cache of one block, and write nowhere.
    """
    block_size, device = engine.block_size, network.device
    num_rows = max(MIN_ROWS, engine.max_num_batched_tokens)
    context = min(num_rows, network.config.max_model_len)
    starts = [*range(0, num_rows, context), num_rows]
    cu_seqlens_q = torch.tensor(starts, device=device)
    table_shape = (len(starts) - 1, -(-context // block_size))
    rows = torch.arange(num_rows, device=device)
    num_logits_rows = max(MIN_ROWS, max_num_logits_rows(engine))
    metadata = AttentionMetadata(
        positions=rows % context,
        slot_mapping=torch.full_like(rows, -1),
        cu_seqlens_q=cu_seqlens_q,
        context_lens=cu_seqlens_q.diff(),
        block_tables=torch.zeros(table_shape, dtype=torch.int64, device=device),
    )
    inputs = ForwardInput(torch.zeros_like(rows), rows[:num_logits_rows], metadata)
    cache = KVCache(network.config, 1, block_size, network.dtype, device)
    logits = network.forward(inputs, cache).float()
    copies = [logits.clone() for _ in range(_NUM_SAMPLING_COPIES)]
    del copies
