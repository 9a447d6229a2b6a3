"""How large a KV cache is, and how it is laid out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.kv_cache import KVCache, choose_num_blocks
from structspec.models.config import ModelConfig

CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=100,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_model_len=100,
)


def test_default_has_room_for_four_full_contexts() -> None:
    # 100 tokens need 7 blocks of 16.
    assert choose_num_blocks(CONFIG, EngineConfig(), torch.float32) == 28


@pytest.mark.parametrize(("dtype", "num_bytes"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_default_stays_within_two_gibibytes(dtype: torch.dtype, num_bytes: int) -> None:
    huge = replace(CONFIG, max_model_len=10_000_000)
    bytes_per_block = 2 * 3 * 2 * 8 * 16 * num_bytes  # keys and values, layers, heads, numbers
    num_blocks = choose_num_blocks(huge, EngineConfig(), dtype)
    assert num_blocks * bytes_per_block <= 2 * 1024**3 < (num_blocks + 1) * bytes_per_block


def test_configured_size_is_taken_as_it_is() -> None:
    assert choose_num_blocks(CONFIG, EngineConfig(num_blocks=5), torch.float32) == 5


def test_layers_are_views_of_one_cache() -> None:
    cache = KVCache(CONFIG, 5, 16, torch.float32, torch.device("cpu"))
    keys, values = cache.layer(1)
    assert keys.shape == values.shape == (5, 2, 16, 8)
    assert keys.is_contiguous() and values.is_contiguous()
    keys.fill_(1.0)
    values.fill_(2.0)
    assert cache.keys[1].unique().tolist() == [1.0]
    assert cache.values[1].unique().tolist() == [2.0]
