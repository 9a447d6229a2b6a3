"""Shapes of models: what the engine asks of any, and what a llama-family checkpoint says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from structspec.errors import InvalidRequest, ModelError

# As `model_type` names them. What sets them apart, biases and norms, shows in the weights.
LLAMA_ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


class BeyondFastPath(ModelError):
    """Of the llama family, but with something that only transformers' code computes."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The rotary embedding: its base, and how its frequencies are stretched.

    `kind` "linear" divides all frequencies by `factor`, "llama3" those whose wave is longer than
    the original context allows, "factors" each by its own entry of `factors`.
    """

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("default", "linear", "llama3", "factors"):
            raise BeyondFastPath(
                f"rope scaling {self.kind!r} is not supported; default, linear and llama3 are"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What the engine must know of any model. `max_model_len` is its context in tokens."""

    architecture: str
    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_model_len: int

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ModelError(
                f"{self.num_heads} heads over {self.num_kv_heads} kv heads of {self.head_dim}"
                " numbers: heads must divide evenly and be of even size"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """The further shapes and constants of a llama-family model."""

    hidden_size: int
    intermediate_size: int
    rms_norm_eps: float
    rope: RopeConfig
    is_embedding_tied: bool


_Config = TypeVar("_Config", bound=ModelConfig)


def limited(config: _Config, max_model_len: int | None) -> _Config:
    """With the context shortened; raises InvalidRequest if that would stretch it."""
    if max_model_len is None:
        return config
    if max_model_len > config.max_model_len:
        raise InvalidRequest(
            f"max_model_len {max_model_len} is beyond the model's context of {config.max_model_len}"
        )
    return replace(config, max_model_len=max_model_len)


def config_from_json(data: Mapping[str, Any]) -> LlamaConfig:
    """From the content of a config.json; raises BeyondFastPath for what our network does not do."""
    architecture = str(data.get("model_type", "without a model_type"))
    if architecture not in LLAMA_ARCHITECTURES:
        raise BeyondFastPath(f"{architecture!r} is not of the llama family")
    if (activation := data.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise BeyondFastPath(f"the activation {activation!r} is not supported; silu is")
    try:
        num_heads = data["num_attention_heads"]
        return LlamaConfig(
            architecture=architecture,
            vocab_size=data["vocab_size"],
            hidden_size=data["hidden_size"],
            intermediate_size=data["intermediate_size"],
            num_layers=data["num_hidden_layers"],
            num_heads=num_heads,
            num_kv_heads=data.get("num_key_value_heads") or num_heads,
            head_dim=data.get("head_dim") or data["hidden_size"] // num_heads,
            rms_norm_eps=data["rms_norm_eps"],
            max_model_len=_max_model_len(data),
            rope=_rope(data),
            is_embedding_tied=data.get("tie_word_embeddings", False),
        )
    except KeyError as error:
        raise ModelError(f"config.json lacks {error}") from None


def vocab_size_from_json(data: Mapping[str, Any]) -> int:
    """The number of tokens, of whatever architecture a config.json is."""
    if "vocab_size" not in data:
        raise ModelError("config.json lacks 'vocab_size'")
    return int(data["vocab_size"])


def _max_model_len(data: Mapping[str, Any]) -> int:
    max_len: int = data["max_position_embeddings"]
    window: int | None = data.get("sliding_window")
    if window is None or not data.get("use_sliding_window", True):
        return max_len
    return min(max_len, window)  # within one window, sliding attention is full attention


def _rope(data: Mapping[str, Any]) -> RopeConfig:
    # Newer files keep everything in `rope_parameters`, older ones in two places.
    scaling = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if scaling.get("partial_rotary_factor", data.get("partial_rotary_factor", 1.0)) != 1.0:
        raise BeyondFastPath("rotating only a part of each head is not supported")
    given = {
        "theta": scaling.get("rope_theta", data.get("rope_theta")),
        "kind": scaling.get("rope_type", scaling.get("type")),
        "factor": scaling.get("factor"),
        "low_freq_factor": scaling.get("low_freq_factor"),
        "high_freq_factor": scaling.get("high_freq_factor"),
        "original_max_len": scaling.get("original_max_position_embeddings"),
    }
    return RopeConfig(**{name: value for name, value in given.items() if value is not None})
