"""Every supported architecture, loaded from a folder, gives the logits that transformers gives."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.model_runner import ModelRunner
from structspec.models import LoadedModel, load_model
from tests.engine.feeding import feed, make_request
from tests.models.reference import (
    TINY_VOCAB_SIZE,
    random_ids,
    reference_logits,
    save_tiny_model,
)

SCATTERED = [17, 3, 11, 0, 8, 5, 14, 2, 9, 12]  # blocks of one request, in no order

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}

TINY_MODELS = [
    pytest.param("llama", {}, id="llama-untied"),
    pytest.param("llama", {"tie_word_embeddings": True}, id="llama-tied"),
    pytest.param("llama", {"head_dim": 10}, id="llama-head-dim-10"),
    pytest.param("llama", {"rope_parameters": LLAMA3_ROPE}, id="llama-rope-llama3"),
    pytest.param("llama", {"rope_parameters": LINEAR_ROPE}, id="llama-rope-linear"),
    pytest.param("llama", {"attention_bias": True, "mlp_bias": True}, id="llama-biases"),
    pytest.param("mistral", {"head_dim": 8}, id="mistral"),
    pytest.param("qwen2", {}, id="qwen2-qkv-bias"),
    pytest.param("qwen3", {"head_dim": 16}, id="qwen3-qk-norm"),
]


def runner_for(loaded: LoadedModel, block_size: int = 16) -> ModelRunner:
    return ModelRunner(loaded, EngineConfig(num_blocks=40, block_size=block_size))


@pytest.mark.parametrize(("architecture", "changes"), TINY_MODELS)
def test_tiny_model_from_a_folder_agrees(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    reference = save_tiny_model(tmp_path, architecture, **changes)
    ids = random_ids(100, TINY_VOCAB_SIZE)
    expected = reference_logits(reference, ids)
    for sizes in ([100], [50, 1, 1, 13, 35]):
        logits = feed(runner_for(load_model(tmp_path)), make_request(ids, SCATTERED), sizes)
        assert logits.shape == expected.shape
        assert (logits - expected).abs().max() <= 1e-3 * expected.std()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.bfloat16, 0.05)], ids=["f64", "bf16"]
)
def test_plain_torch_path_agrees(tmp_path: Path, dtype: torch.dtype, tolerance: float) -> None:
    reference = save_tiny_model(tmp_path, "qwen3", head_dim=16)
    ids = random_ids(60, TINY_VOCAB_SIZE)
    expected = reference_logits(copy.deepcopy(reference).to(torch.float64), ids)
    runner = runner_for(load_model(tmp_path, dtype=dtype))
    logits = feed(runner, make_request(ids, SCATTERED), [30, 1, 29])
    assert logits.dtype == torch.float32
    assert (logits - expected).abs().mean() <= tolerance * expected.std()
