"""KV caches sized by what a device has left, seen through a device of made-up numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from structspec.config import EngineConfig
from structspec.engine import memory as memory_module
from structspec.engine.graphs import bucket_sizes
from structspec.engine.kv_cache import KVCache, bytes_per_block
from structspec.engine.memory import (
    CudaMemory,
    MemoryUse,
    build_kv_cache,
    graph_bytes,
    run_largest_step,
)
from structspec.errors import OutOfMemory
from structspec.models.config import LlamaConfig, RopeConfig
from structspec.models.dummy import DummyWeights
from structspec.models.inputs import ForwardInput
from structspec.models.llama import Llama

CONFIG = LlamaConfig(
    architecture="llama",
    vocab_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_model_len=100,
    hidden_size=64,
    intermediate_size=96,
    rms_norm_eps=1e-5,
    rope=RopeConfig(),
    is_embedding_tied=True,
)
BLOCK_BYTES = bytes_per_block(CONFIG, 16, torch.float32)
CPU = torch.device("cpu")


def sizes(**changes: Any) -> EngineConfig:
    given = {"max_num_requests": 64, "max_num_batched_tokens": 512, "max_num_draft_tokens": 64}
    return EngineConfig(**{**given, **changes})


def make_network(config: LlamaConfig = CONFIG, device: torch.device = CPU) -> Llama:
    return Llama(config, DummyWeights(config, torch.float32, device), torch.float32, device)


@dataclass
class FakeMemory:
    total: int
    held: int
    step: int
    events: list[str] = field(default_factory=list)

    def total_bytes(self) -> int:
        return self.total

    def held_bytes(self) -> int:
        self.events.append("held")
        return self.held

    def peak_bytes(self, work: Callable[[], None]) -> int:
        work()
        self.events.append("step")
        return self.step


@given(
    total=st.integers(0, 2**38),
    held=st.integers(0, 2**38),
    step=st.integers(0, 2**34),
    graphs=st.integers(0, 2**34),
    utilization=st.floats(0.01, 1.0),
)
def test_cache_weights_step_and_graphs_stay_within_the_share_of_the_whole(
    total, held, step, graphs, utilization
):
    available = MemoryUse(total, held, step, graphs).available(utilization)
    assert total * utilization - 1 < available + held + step + graphs <= total * utilization


def test_a_cache_takes_what_the_rest_leaves() -> None:
    fake = FakeMemory(total=2 * 2**30, held=2**30, step=2**20)
    engine = sizes(max_num_requests=10_000)
    room = int(2 * 2**30 * 0.9) - 2**30 - 2**20 - graph_bytes(64, engine)
    network = make_network()
    assert build_kv_cache(network, engine, fake).num_blocks == room // BLOCK_BYTES
    # What stays behind after the step, such as compiled kernels, counts as held.
    assert fake.events == ["step", "held"]


def test_what_others_hold_makes_the_cache_smaller_and_at_last_too_small() -> None:
    engine, network = sizes(max_num_requests=100_000), make_network()
    found = []
    with pytest.raises(OutOfMemory, match="gpu_memory_utilization"):
        for held in range(0, 2 * 2**30, 2**28):
            fake = FakeMemory(2 * 2**30, held, 0)
            found.append(build_kv_cache(network, engine, fake).num_blocks)
    assert found == sorted(set(found), reverse=True) and len(found) > 1


def test_graphs_of_all_sizes_keep_their_logits_within_the_estimate() -> None:
    engine = sizes(max_num_requests=200, max_num_draft_tokens=56, max_num_batched_tokens=4096)
    num_rows = sum(bucket_sizes(256))
    assert num_rows * 128_256 * 4 < graph_bytes(128_256, engine) - graph_bytes(0, engine)
    assert graph_bytes(128_256, replace(engine, enforce_eager=True)) == 0


def test_a_configured_cache_asks_nobody() -> None:
    fake = FakeMemory(0, 0, 0)
    cache = build_kv_cache(make_network(), sizes(num_blocks=3), fake)
    assert (cache.num_blocks, fake.events) == (3, [])


def test_on_a_cpu_room_for_four_contexts_is_kept() -> None:
    assert build_kv_cache(make_network(), sizes()).num_blocks == 28


class Watched:
    """A network that keeps what it is given."""

    def __init__(self, config: LlamaConfig) -> None:
        self._network = make_network(config)
        self.inputs: list[ForwardInput] = []
        self.caches: list[KVCache] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def forward(self, inputs: ForwardInput, kv_cache: KVCache) -> torch.Tensor:
        self.inputs.append(inputs)
        self.caches.append(kv_cache)
        return self._network.forward(inputs, kv_cache)


@pytest.mark.parametrize("max_num_batched_tokens", [1, 64, 512])
def test_largest_step_has_all_tokens_and_logits_that_may_be_asked_for(max_num_batched_tokens):
    engine = sizes(
        max_num_batched_tokens=max_num_batched_tokens, max_num_requests=20, max_num_draft_tokens=30
    )
    watched = Watched(CONFIG)
    run_largest_step(watched, engine)
    (inputs,), (cache,) = watched.inputs, watched.caches
    assert len(inputs.token_ids) == max(4, max_num_batched_tokens)
    assert len(inputs.logits_rows) == max(4, min(50, max_num_batched_tokens))
    metadata = inputs.metadata
    assert metadata.cu_seqlens_q[-1] == len(inputs.token_ids)
    assert metadata.context_lens.sum() == len(inputs.token_ids)
    assert metadata.context_lens.min() > 0 and metadata.context_lens.max() <= 100
    assert metadata.positions.max() < 100
    assert cache.num_blocks == 1 and (metadata.slot_mapping == -1).all()


@pytest.mark.parametrize("stage", ["trying a step of max_num_batched_tokens=512", "making a KV"])
def test_running_out_at_start_is_a_typed_error_that_names_the_stage(stage, monkeypatch):
    def run_out(*arguments: object) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 9 GiB.")

    name = "run_largest_step" if stage.startswith("trying") else "KVCache"
    fake = FakeMemory(2 * 2**30, 0, 0)
    network = make_network()
    if name == "KVCache":
        monkeypatch.setattr(memory_module, "run_largest_step", lambda *arguments: None)
    monkeypatch.setattr(memory_module, name, run_out)
    with pytest.raises(OutOfMemory, match=stage + ".*Tried to allocate 9 GiB.*: lower"):
        build_kv_cache(network, sizes(), fake)


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    yield torch.device("cuda")
    torch.cuda.empty_cache()


@pytest.mark.gpu
def test_a_gpu_counts_what_is_taken_for_a_moment_and_what_stays(gpu):
    memory = CudaMemory(gpu)
    before = memory.held_bytes()

    def work() -> None:
        torch.empty(2**30, dtype=torch.uint8, device=gpu)

    assert 2**30 <= memory.peak_bytes(work) < 2**30 + 2**26
    assert memory.held_bytes() - before < 2**26
    kept = torch.empty(2**30, dtype=torch.uint8, device=gpu)
    assert 2**30 <= memory.held_bytes() - before < 2**30 + 2**26
    assert kept.is_cuda and memory.held_bytes() < memory.total_bytes()


@pytest.mark.gpu
def test_a_gpu_is_filled_up_to_its_share(gpu):
    # 2 layers of 8 heads of 128 numbers: 256 KiB a block, 16 GiB a context.
    wide = replace(CONFIG, num_kv_heads=8, num_heads=8, head_dim=128, max_model_len=2**20)
    network, memory = make_network(wide, gpu), CudaMemory(gpu)
    engine = sizes(gpu_memory_utilization=0.8)
    cache = build_kv_cache(network, engine)
    share = memory.total_bytes() * 0.8
    assert share - 4 * 2**30 < memory.held_bytes() < share
    with pytest.raises(OutOfMemory, match="lower max_model_len"):  # the first one counts
        build_kv_cache(network, engine)
    assert cache.keys.is_cuda


@pytest.mark.gpu
def test_a_cache_that_a_gpu_cannot_hold_is_a_typed_error(gpu):
    network = make_network(CONFIG, gpu)
    with pytest.raises(OutOfMemory, match="making a KV cache"):
        build_kv_cache(network, sizes(num_blocks=2**26))
    assert build_kv_cache(network, sizes(num_blocks=8)).num_blocks == 8
