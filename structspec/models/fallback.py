"""Any decoder-only model of transformers with plain softmax attention, with our paged attention.

The model's own code does everything but attention, so it is slower than the llama family's
network, and right by construction for what sets architectures apart: norms, gates, biases,
parallel residuals, learned or partly rotated positions, experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from structspec.errors import ModelError
from structspec.models.attention_interface import (
    ATTENTION,
    AttentionCall,
    PagedStep,
    register,
    run_model,
)
from structspec.models.config import ModelConfig, limited
from structspec.models.folder import SafetensorsWeights
from structspec.models.inputs import ForwardInput
from structspec.models.packed import pack_linears
from structspec.models.probe import probe

if TYPE_CHECKING:  # the cache is sized from a ModelConfig: importing it here would be a circle
    from structspec.engine.kv_cache import KVCache


class TransformersNetwork:
    """A transformers model as a Network; of its KV cache each attention layer has its own part.

    On the CPU in float32 a row has the same bits whatever else its step holds, as in the llama
    family's network, unless the model has experts: which rows share one changes their rounding.
    """

    def __init__(
        self, config: ModelConfig, model: Any, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        self._model = model

    @torch.no_grad()
    def forward(self, inputs: ForwardInput, kv_cache: KVCache) -> Tensor:
        """Logits [num_logits_rows, vocab_size]; writes the rows' keys and values to the cache."""
        metadata = inputs.metadata
        step = PagedStep(metadata, kv_cache.layer, kv_cache.arrivals)
        return run_model(
            self._model, inputs.token_ids, metadata.positions, inputs.logits_rows, step
        )


def read_settings(folder: Path) -> Any:
    """The folder's config.json as transformers reads it."""
    from transformers import AutoConfig  # slow to import

    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"transformers cannot read {folder / 'config.json'}: {reason}") from error


def fitting_shape(settings: Any, max_model_len: int | None) -> ModelConfig:
    """The model's shape; raises ModelError where attention of ours would not be the model's."""
    probed = probe(settings)
    shape = limited(probed.config, max_model_len)
    if shape.max_model_len > probed.max_plain_len:
        raise ModelError(
            f"the architecture {shape.architecture!r} can be run with up to"
            f" {probed.max_plain_len} tokens, beyond which {probed.reason}:"
            f" pass max_model_len={probed.max_plain_len}"
        )
    return shape


def load_network(
    settings: Any,
    folder: Path | None,
    shape: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
) -> TransformersNetwork:
    """The network with the folder's weights, or random ones where there is none."""
    register()
    model = _draw(settings, dtype) if folder is None else _read(settings, folder, dtype)
    model = model.to(device).eval()
    pack_linears(model)
    _check_rows_stand_alone(model, shape, device)
    return TransformersNetwork(shape, model, dtype, device)


def _draw(settings: Any, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(
            settings, dtype=dtype, attn_implementation=ATTENTION
        )


def _read(settings: Any, folder: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    SafetensorsWeights(folder)  # says what is missing or damaged
    try:
        with _quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                config=settings,
                dtype=dtype,
                attn_implementation=ATTENTION,
                use_safetensors=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"transformers cannot load {folder}: {error}") from error
    if report["missing_keys"]:
        raise ModelError(f"the checkpoint lacks the weight {min(report['missing_keys'])}")
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars on the user's terminal."""
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


class _Alone:
    """Every row attends to nothing but itself: what it gets is made of its own heads."""

    def attend(self, call: AttentionCall) -> Tensor:
        group = call.query.shape[1] // call.value.shape[1]
        own = call.query + (call.key + call.value).repeat_interleave(group, dim=1)
        return own[0].transpose(0, 1).flatten(1)

    def mask(self, mask_function: Any, window: int | None) -> None:
        """Needs none."""


@torch.no_grad()
def _check_rows_stand_alone(model: Any, shape: ModelConfig, device: torch.device) -> None:
    """Raise ModelError if rows meet outside of attention, or their order counts there.

    Shown are a few rows, then the same in reverse with one replaced: the others' logits must stay.
    """
    ids = torch.linspace(0, shape.vocab_size - 1, 4, device=device).long()
    positions = torch.linspace(0, shape.max_model_len - 1, 4, device=device).long()
    rows = torch.arange(4, device=device)
    logits = run_model(model, ids, positions, rows, _Alone()).float()
    ids[2] = ids[1]
    changed = run_model(model, ids.flip(0), positions.flip(0), rows, _Alone()).float().flip(0)
    kept = torch.tensor([0, 1, 3], device=device)
    distance = (changed - logits)[kept].abs().max()
    # Rounding differs by less, and what one row says to another by more. No number is no answer.
    if not distance <= 0.05 * (logits[0] - logits[3]).abs().max():
        raise ModelError(
            f"the architecture {shape.architecture!r} is not supported: its tokens meet outside"
            " of attention, or its matrices are used in a way of its own"
        )
