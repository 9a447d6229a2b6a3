"""What a model of transformers is, found out by running it without numbers, and whether it fits.

The model is built on torch's meta device, where tensors have shapes and nothing else, and run over
a few tokens: how often and with what it calls its attention is then known rather than guessed from
its configuration's names.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from structspec.errors import ModelError
from structspec.models.attention_interface import (
    ATTENTION,
    AttentionCall,
    register,
    run_model,
)
from structspec.models.config import ModelConfig

NUM_PROBE_TOKENS = 4

_OLDEST = (5, 17)  # of transformers; before it, most models do not run on the meta device
_PLAIN_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}

# Arguments of an attention layer that change nothing here.
_HARMLESS = {"position_ids", "cache_position", "dropout", "use_cache"}
_REASONS = {
    "softcap": "caps its attention scores",
    "s_aux": "has attention sinks",
    "position_bias": "adds a bias to its attention scores",
}


class Unfit(Exception):
    """Why a model cannot be run, as the end of a sentence about it."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A model's shape. Beyond `max_plain_len` tokens it is no plain attention, for `reason`."""

    config: ModelConfig
    max_plain_len: int
    reason: str


def probe(config: Any) -> Probed:
    """Look at the model of a transformers configuration; raises ModelError, saying why not."""
    try:
        _check_config(config)
        return _probed(config, _trace(config))
    except Unfit as unfit:
        raise ModelError(
            f"the architecture {config.model_type!r} is not supported: it {unfit}. Supported"
            " are decoder-only models with plain softmax attention"
        ) from unfit.__cause__


def _check_config(config: Any) -> None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, __version__  # slow to import

    if tuple(int(part) for part in __version__.split(".")[:2]) < _OLDEST:
        raise Unfit(f"needs transformers >= 5.17, and {__version__} is installed")
    if config.is_encoder_decoder:
        raise Unfit("has an encoder")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise Unfit("writes no text")
    if config.get_text_config() is not config:
        raise Unfit("is a text model inside a larger one")
    if getattr(config, "quantization_config", None) is not None:
        raise Unfit("is quantised here; load its original weights")
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if model_class._is_stateful:
        raise Unfit("is recurrent: it keeps more than keys and values")
    if not model_class._supports_attention_backend:
        raise Unfit("does not offer transformers' attention interface")
    if unknown := sorted(set(getattr(config, "layer_types", None) or ()) - _PLAIN_LAYERS):
        raise Unfit(f"has layers of the kind {', '.join(unknown)}")
    if getattr(config, "attn_temperature_tuning", False):
        raise Unfit("scales its attention by a token's place in the step")
    if "position_ids" not in inspect.signature(model_class.forward).parameters:
        raise Unfit("takes no positions")


class _Recorder:
    """Notes the attention layers' calls, and refuses those that plain attention does not answer."""

    def __init__(self) -> None:
        self.num_layers = 0
        self.num_heads = 0
        self.cache_shapes: set[tuple[int, int]] = set()  # num_kv_heads, head_dim
        self.windows: set[int] = set()

    def attend(self, call: AttentionCall) -> Tensor:
        if call.is_masked or not call.is_causal:
            raise Unfit("masks its attention in a way of its own")
        for name, value in call.options.items():
            if name in _HARMLESS or value is None or value is False:
                continue
            if name != "sliding_window":
                raise Unfit(_REASONS.get(name, f"has attention with {name!r}"))
            if value > 0:
                self.windows.add(value)
        _, num_kv_heads, num_rows, head_dim = call.key.shape
        if call.key.shape != call.value.shape or head_dim != call.query.shape[3]:
            raise Unfit("has keys and values of different shapes")
        if num_rows != NUM_PROBE_TOKENS or call.query.shape[2] != num_rows:
            raise Unfit("attends to other rows than its tokens")
        self.num_layers += 1
        self.num_heads = max(self.num_heads, call.query.shape[1])
        self.cache_shapes.add((num_kv_heads, head_dim))
        return call.query.transpose(1, 2).flatten(2)[0]

    def mask(self, mask_function: Callable[..., Any], window: int | None) -> None:
        from transformers.masking_utils import causal_mask_function

        is_plain = mask_function is causal_mask_function
        if window:  # 0 stands for none
            self.windows.add(window)
            is_plain = _is_causal_nearby(mask_function, window)
        if not is_plain and window != 0:
            raise Unfit("masks its attention in a way of its own")


def _is_causal_nearby(mask_function: Callable[..., Any], window: int) -> bool:
    places = torch.arange(min(window, NUM_PROBE_TOKENS), device="cpu")
    query, key = places[:, None], places[None, :]
    return torch.equal(mask_function(0, 0, query, key), key <= query)


@dataclass(frozen=True, slots=True)
class _Trace:
    calls: _Recorder
    vocab_size: int  # the width of the logits


def _trace(config: Any) -> _Trace:
    from transformers import AutoModelForCausalLM

    register()
    calls = _Recorder()
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                _without_stretching(config),
                attn_implementation=ATTENTION,
                experts_implementation="batched_mm",  # no shape depends on a value
            ).eval()
            logits = run_model(
                model,
                torch.zeros(NUM_PROBE_TOKENS, dtype=torch.int64),
                torch.arange(NUM_PROBE_TOKENS),
                torch.arange(NUM_PROBE_TOKENS),
                calls,
            )
    except Unfit:
        raise
    except Exception as error:  # a model's own code may raise anything
        raise Unfit(f"cannot be run without numbers ({error})") from error
    return _Trace(calls, logits.shape[1])


def _probed(config: Any, trace: _Trace) -> Probed:
    calls = trace.calls
    num_layers = getattr(config, "num_hidden_layers", None)
    if calls.num_layers != num_layers:
        raise Unfit(
            f"attends through the interface {calls.num_layers} times in {num_layers} layers"
        )
    if len(calls.cache_shapes) != 1:
        raise Unfit("has layers with keys of different shapes")
    max_model_len = getattr(config, "max_position_embeddings", None)
    if not isinstance(max_model_len, int):
        raise Unfit("does not say how long its context is")
    ((num_kv_heads, head_dim),) = calls.cache_shapes
    shape = ModelConfig(
        architecture=config.model_type,
        vocab_size=trace.vocab_size,
        num_layers=calls.num_layers,
        num_heads=calls.num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_model_len=max_model_len,
    )
    limits = [(max_model_len, "its context ends")]
    limits += [(window, "its attention slides or is cut in chunks") for window in calls.windows]
    limits += [(length, "its positions are stretched") for length in _stretched_beyond(config)]
    return Probed(shape, *min(limits))


def _stretched_beyond(config: Any) -> Iterator[int]:
    """Lengths from which rotations depend on the longest request of a step, not on its own."""
    for rope in _stretched_ropes(config):
        original = rope.get("original_max_position_embeddings")
        yield original or config.max_position_embeddings


def _without_stretching(config: Any) -> Any:
    """A copy whose rotations ask no tensor how long the longest request is."""
    config = copy.deepcopy(config)
    for rope in _stretched_ropes(config):
        rope["rope_type"] = "default"
    return config


def _stretched_ropes(config: Any) -> list[dict[str, Any]]:
    ropes: Any = getattr(config, "rope_parameters", None) or {}
    return [
        rope
        for rope in [ropes, *ropes.values()]  # one for all layers, or one for each kind of layer
        if isinstance(rope, dict) and rope.get("rope_type") in ("dynamic", "longrope")
    ]
