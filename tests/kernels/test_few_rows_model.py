"""The llama network's path for few rows gives the logits of its other path."""

from __future__ import annotations

import pytest
import torch

from structspec.engine.kv_cache import KVCache
from structspec.kernels.few_rows_tiles import MAX_ROWS
from structspec.models.config import LlamaConfig, RopeConfig
from structspec.models.dummy import DummyWeights
from structspec.models.inputs import AttentionMetadata
from structspec.models.llama import Llama

BLOCK_SIZE, NUM_BLOCKS = 4, 40


def make_network(architecture: str, dtype: torch.dtype, device: torch.device) -> Llama:
    """Two layers with weights large enough that each row's logits are its own."""
    config = LlamaConfig(
        architecture=architecture,
        vocab_size=71,
        num_layers=2,
        num_heads=6,
        num_kv_heads=2,
        head_dim=16,
        max_model_len=160,
        hidden_size=80,
        intermediate_size=112,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        is_embedding_tied=False,
    )
    drawn = DummyWeights(config, torch.float64, torch.device("cpu"))
    weights = {
        name: 1 + torch.sin(torch.arange(len(weight))) / 4 if "norm" in name else weight * 10
        for name, weight in drawn.items()
    }
    return Llama(config, weights, dtype, device)


def logits_of(network: Llama, num_rows: int, is_fused: bool) -> torch.Tensor:
    """Of the last rows of one request; one padding row behind them."""
    context, device = max(50, num_rows), network.device
    first = context - num_rows
    cache = KVCache(network.config, NUM_BLOCKS, BLOCK_SIZE, network.dtype, device)
    generator = torch.Generator().manual_seed(1)
    for tensor in (cache.keys, cache.values):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    table = torch.randperm(NUM_BLOCKS, generator=generator)[: -(-context // BLOCK_SIZE)]
    positions = torch.arange(first, context)
    slots = table[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    metadata = AttentionMetadata(
        positions=torch.cat([positions, torch.tensor([0])]).to(device),
        slot_mapping=torch.cat([slots, torch.tensor([-1])]).to(device),
        cu_seqlens_q=torch.tensor([0, num_rows], device=device),
        context_lens=torch.tensor([context], device=device),
        block_tables=table[None].to(device),
    )
    token_ids = torch.randint(71, (num_rows + 1,), generator=generator).to(device)
    network._can_fuse, network._few_rows = is_fused, MAX_ROWS
    hidden = network.body(token_ids, metadata, cache)
    return network.head(hidden[:num_rows])


def assert_same_logits(network: Llama, num_rows: int) -> None:
    expected = logits_of(network, num_rows, is_fused=False)
    actual = logits_of(network, num_rows, is_fused=True)
    assert actual.dtype == torch.float32 and expected.std() > 1
    assert (actual - expected).abs().max() <= 1e-4 * expected.std()


ARCHITECTURES = pytest.mark.parametrize("architecture", ["llama", "qwen2"])


@ARCHITECTURES
@pytest.mark.parametrize("num_rows", [1, 5, MAX_ROWS - 1])
def test_fused_layers_compute_what_the_others_do(architecture, num_rows):
    network = make_network(architecture, torch.float64, torch.device("cpu"))
    assert_same_logits(network, num_rows)


@pytest.mark.gpu
@ARCHITECTURES
def test_fused_kernels_give_the_logits_of_the_others(architecture):
    network = make_network(architecture, torch.float32, torch.device("cuda"))
    assert network._can_fuse
    for num_rows in (1, 2, 15, 16, 31, 32, 63, 64, MAX_ROWS - 1):  # and one of padding
        assert_same_logits(network, num_rows)


@pytest.mark.gpu
@pytest.mark.parametrize("num_rows", [3, MAX_ROWS + 1])
def test_logits_of_half_precision_are_float32_sums(num_rows):
    network = make_network("llama", torch.bfloat16, torch.device("cuda"))
    hidden = torch.randn(num_rows, 80, dtype=torch.bfloat16, device="cuda")
    logits = network.head(hidden)
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())


@pytest.mark.gpu
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_float16_and_query_norms_are_not_fused(architecture):
    dtype = torch.float16 if architecture == "llama" else torch.bfloat16
    assert not make_network(architecture, dtype, torch.device("cuda"))._can_fuse
