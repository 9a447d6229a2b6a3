"""Models whose attention is more than plain softmax are refused by name, before any weight is read.

Each is its architecture's own configuration, made small where its size would show.
"""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig

from structspec.errors import ModelError
from structspec.models.fallback import fitting_shape

SMALL = {"num_hidden_layers": 2, "vocab_size": 260, "max_position_embeddings": 128}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
STRETCHED = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("bart", {}, "has an encoder"),
        ("t5", {}, "has an encoder"),
        ("vit", {}, "writes no text"),
        ("mamba", {}, "is recurrent"),
        ("lfm2", {"full_attn_idxs": [0]}, "layers of the kind conv"),
        ("bloom", {}, "does not offer transformers' attention interface"),
        ("mpt", {}, "does not offer transformers' attention interface"),
        ("falcon", {"new_decoder_architecture": True}, "does not offer"),
        ("bert", {}, "masks its attention in a way of its own"),
        ("gemma2", {}, "caps its attention scores"),
        ("gpt_oss", {"num_local_experts": 2, "rope_parameters": PLAIN_ROPE}, "has attention sinks"),
        ("deepseek_v3", {"n_routed_experts": 8}, "keys and values of different shapes"),
        ("fuyu", {}, "a text model inside a larger one"),
        ("gpt2", {"quantization_config": {"quant_method": "gptq"}}, "quantised"),
    ],
)
def test_refusal_says_why(architecture: str, changes: dict[str, Any], reason: str) -> None:
    settings = AutoConfig.for_model(architecture, **(SMALL | changes))
    with pytest.raises(ModelError, match=f"'{architecture}' is not supported: it .*{reason}"):
        fitting_shape(settings, None)


def test_stretched_positions_are_run_where_they_do_not_change_with_the_length() -> None:
    settings = AutoConfig.for_model(
        "phi3",
        **SMALL,
        hidden_size=48,
        num_attention_heads=6,
        rope_parameters=STRETCHED,
        original_max_position_embeddings=32,
        pad_token_id=None,
    )
    with pytest.raises(ModelError, match="up to 32 tokens.*stretched.*max_model_len=32"):
        fitting_shape(settings, None)
    assert fitting_shape(settings, 32).max_model_len == 32


WINDOWED = SMALL | {"sliding_window": 400}  # longer than the context


def test_a_window_longer_than_the_context_is_none() -> None:
    settings = AutoConfig.for_model("gemma3_text", **WINDOWED)
    assert fitting_shape(settings, None).max_model_len == 128


def test_a_window_open_to_both_sides_is_refused_however_long() -> None:
    settings = AutoConfig.for_model("gemma3_text", **WINDOWED, use_bidirectional_attention=True)
    with pytest.raises(ModelError, match="masks its attention in a way of its own"):
        fitting_shape(settings, None)


def test_looking_at_a_model_leaves_its_settings_alone() -> None:
    settings = AutoConfig.for_model("gpt2", n_layer=2)
    before = settings.to_dict()
    fitting_shape(settings, None)
    assert settings.to_dict() == before
    assert settings._attn_implementation is None
