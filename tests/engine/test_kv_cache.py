"""How large a KV cache is, and how it is laid out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from structspec.config import EngineConfig
from structspec.engine.kv_cache import KVCache, bytes_per_block, choose_num_blocks
from structspec.errors import OutOfMemory
from structspec.models.config import ModelConfig

ENGINE = EngineConfig(max_num_requests=64)
CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=100,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_model_len=100,
)
BLOCK_BYTES = 2 * 3 * 2 * 8 * 16 * 4  # keys and values, layers, heads, numbers, tokens, float32


def test_default_has_room_for_four_full_contexts() -> None:
    # 100 tokens need 7 blocks of 16.
    assert choose_num_blocks(CONFIG, ENGINE, torch.float32) == 28


@pytest.mark.parametrize(("dtype", "num_bytes"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_default_stays_within_two_gibibytes(dtype: torch.dtype, num_bytes: int) -> None:
    huge = replace(CONFIG, max_model_len=10_000_000)
    block_bytes = BLOCK_BYTES // 4 * num_bytes
    num_blocks = choose_num_blocks(huge, ENGINE, dtype)
    assert num_blocks * block_bytes <= 2 * 1024**3 < (num_blocks + 1) * block_bytes


def test_configured_size_is_taken_as_it_is() -> None:
    engine = EngineConfig(num_blocks=5)
    assert choose_num_blocks(CONFIG, engine, torch.float32) == 5
    assert choose_num_blocks(CONFIG, engine, torch.float32, available_bytes=0) == 5


def test_a_block_has_the_bytes_of_its_keys_and_values() -> None:
    assert bytes_per_block(CONFIG, 16, torch.float32) == BLOCK_BYTES
    cache = KVCache(CONFIG, 5, 16, torch.bfloat16, torch.device("cpu"))
    assert cache.keys.nbytes + cache.values.nbytes == 5 * bytes_per_block(
        CONFIG, 16, torch.bfloat16
    )


@given(available=st.integers(7 * BLOCK_BYTES, 200 * BLOCK_BYTES), requests=st.integers(1, 7))
def test_measured_memory_is_filled_as_far_as_requests_could_use_it(available, requests):
    engine = EngineConfig(max_num_requests=requests)
    num_blocks = choose_num_blocks(CONFIG, engine, torch.float32, available)
    assert num_blocks == min(available // BLOCK_BYTES, 7 * requests)


def test_a_context_that_does_not_fit_is_refused_with_numbers_and_ways_out() -> None:
    long = replace(CONFIG, max_model_len=2**20)  # 65,536 blocks of 6 KiB
    with pytest.raises(OutOfMemory) as caught:
        choose_num_blocks(long, ENGINE, torch.float32, 2**28)
    message = str(caught.value)
    assert "1048576 tokens needs a KV cache of 0.38 GiB, and 0.25 GiB are left" in message
    for way_out in ("gpu_memory_utilization (0.9)", "a smaller model or dtype"):
        assert way_out in message
    found = re.search(r"max_model_len to (\d+) or less", message)
    assert found is not None
    fitting = int(found[1])
    assert choose_num_blocks(
        replace(long, max_model_len=fitting), ENGINE, torch.float32, 2**28
    ) == -(-fitting // 16)
    with pytest.raises(OutOfMemory):
        choose_num_blocks(
            replace(long, max_model_len=fitting + 1),
            ENGINE,
            torch.float32,
            2**28,
        )


def test_memory_below_nothing_is_told_as_none() -> None:
    with pytest.raises(OutOfMemory, match=r"and 0\.00 GiB are left.*: lower max_model_len, raise"):
        choose_num_blocks(CONFIG, ENGINE, torch.float32, -1)


def test_every_request_must_have_a_block() -> None:
    assert choose_num_blocks(CONFIG, ENGINE, torch.float32, 64 * BLOCK_BYTES) == 64
    with pytest.raises(OutOfMemory, match="max_num_requests=64"):
        choose_num_blocks(CONFIG, ENGINE, torch.float32, 64 * BLOCK_BYTES - 1)


def test_layers_are_views_of_one_cache() -> None:
    cache = KVCache(CONFIG, 5, 16, torch.float32, torch.device("cpu"))
    keys, values = cache.layer(1)
    assert keys.shape == values.shape == (5, 2, 16, 8)
    assert keys.is_contiguous() and values.is_contiguous()
    keys.fill_(1.0)
    values.fill_(2.0)
    assert cache.keys[1].unique().tolist() == [1.0]
    assert cache.values[1].unique().tolist() == [2.0]
