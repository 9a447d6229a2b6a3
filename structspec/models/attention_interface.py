"""Attention of ours inside models of transformers, through its attention interface.

A model set to ATTENTION calls `_attend` once per attention layer and forward pass, with what it has
after its own projections, norms and rotations. Which step this belongs to does not travel through
the model, whose layers may drop arguments: it is a context variable around the forward pass.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from structspec.kernels.paged_attention import paged_attention
from structspec.kernels.paged_attention_triton import Arrivals
from structspec.kernels.rotate_and_store import rotate_and_store
from structspec.models.inputs import AttentionMetadata

ATTENTION = "structspec"  # the name to set a model's attention to, once `register` was called


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What one attention layer of a model asks for; `options` are the arguments of its own."""

    query: Tensor  # [1, num_heads, num_rows, head_dim]
    key: Tensor  # [1, num_kv_heads, num_rows, head_dim]
    value: Tensor  # [1, num_kv_heads, num_rows, head_dim]
    scale: float
    is_masked: bool
    is_causal: bool
    options: Mapping[str, Any]


class AttentionStep(Protocol):
    """Answers the attention layers of one forward pass, which call in their order."""

    def attend(self, call: AttentionCall) -> Tensor:
        """Each row's sum of values, [num_rows, num_heads * head_dim]."""

    def mask(self, mask_function: Callable[..., Any], window: int | None) -> None:
        """Told each mask that the model asks for; it gets none, attention is causal by itself."""


_step: ContextVar[AttentionStep] = ContextVar("structspec_attention_step")


@contextmanager
def attention_by(step: AttentionStep) -> Iterator[None]:
    """Models run inside have their attention computed by `step`; for this thread alone."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)


@functools.cache
def register() -> None:
    """Make ATTENTION known to transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface  # slow to import

    AttentionInterface.register(ATTENTION, _attend)
    AttentionMaskInterface.register(ATTENTION, _mask)


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    call = AttentionCall(
        query,
        key,
        value,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        is_masked=attention_mask is not None,
        is_causal=is_causal,
        options=options,
    )
    attended = _step.get().attend(call)
    return attended.view(1, query.shape[2], query.shape[1], -1), None


def _mask(*, mask_function: Callable[..., Any], local_size: int | None = None, **_: Any) -> None:
    _step.get().mask(mask_function, local_size)


class PagedStep:
    """One step of the engine: keys and values go to the cache's slots, and are read from there."""

    def __init__(
        self,
        metadata: AttentionMetadata,
        layer: Callable[[int], tuple[Tensor, Tensor]],
        arrivals: Arrivals,
    ) -> None:
        self._metadata = metadata
        self._layer = layer
        self._arrivals = arrivals
        self._num_calls = 0

    def attend(self, call: AttentionCall) -> Tensor:
        keys, values = self._layer(self._num_calls)
        self._num_calls += 1
        heads = torch.cat([call.query, call.key, call.value], dim=1)[0].to(keys.dtype)
        qkv = heads.transpose(0, 1).flatten(1).contiguous()
        _store(qkv, keys, values, self._metadata.slot_mapping)
        attended = paged_attention(
            qkv,
            keys,
            values,
            self._metadata.cu_seqlens_q,
            self._metadata.context_lens,
            self._metadata.block_tables,
            call.scale,
            arrivals=self._arrivals,
        )
        return attended.to(call.query.dtype)

    def mask(self, mask_function: Callable[..., Any], window: int | None) -> None:
        """Needs none: what masks the model may ask for was looked at when it was loaded."""


def _store(qkv: Tensor, keys: Tensor, values: Tensor, slot_mapping: Tensor) -> None:
    # The model has rotated already: here every position is turned by an angle of 0.
    cos = torch.ones(1, keys.shape[3] // 2, device=qkv.device)
    no_norm, positions = qkv.new_empty(0), torch.zeros_like(slot_mapping)
    rotate_and_store(
        qkv,
        no_norm,
        no_norm,
        0.0,
        cos,
        torch.zeros_like(cos),
        positions,
        slot_mapping,
        keys,
        values,
    )


def run_model(
    model: Any,
    token_ids: Tensor,  # [num_rows] int64
    positions: Tensor,  # [num_rows] int64
    logits_rows: Tensor,  # [num_logits_rows] int64
    step: AttentionStep,
) -> Tensor:
    """Logits [num_logits_rows, vocab_size] of a transformers model whose attention is ATTENTION."""
    can_choose = "logits_to_keep" in inspect.signature(model.forward).parameters
    with attention_by(step):
        output = model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            # Nothing is hidden. Without it, jumps in the positions would be looked for.
            attention_mask=torch.ones_like(token_ids[None]),
            use_cache=False,
            **({"logits_to_keep": logits_rows} if can_choose else {}),
        )
    logits: Tensor = output.logits[0]
    return logits if can_choose else logits[logits_rows]
