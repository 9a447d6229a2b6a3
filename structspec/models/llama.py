"""The llama-family decoder: one flattened forward pass per step, for inference only.

Names inside are Hugging Face's. Query, key and value weights are one matrix, gate and up another;
biases and query/key norms are used where the checkpoint has them (that is all that sets Qwen2,
Qwen3 and Mistral apart). The residual stream stays in one buffer that each norm adds to.

On a GPU a step of few rows, which decodes or verifies, runs a layer as fused kernels: launches and
the reading of weights are what takes the time there. Not in float16: the residual stream times a
norm's weight, which a fused product rounds, may be out of its range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from structspec.errors import ModelError
from structspec.kernels.add_rms_norm import add_rms_norm
from structspec.kernels.few_rows import (
    linear_add,
    make_arrivals,
    norm_gate_up_silu,
    norm_linear,
    norm_qkv_rotate_store,
)
from structspec.kernels.paged_attention import paged_attention
from structspec.kernels.paged_attention_plan import choose_block_q, plan_blocks
from structspec.kernels.rotate_and_store import rotate_and_store
from structspec.kernels.silu_mul import silu_mul
from structspec.models.config import LlamaConfig
from structspec.models.inputs import AttentionMetadata, ForwardInput
from structspec.models.linear import Linear, make_linear
from structspec.models.rope import rope_table

if TYPE_CHECKING:  # the cache is sized from a LlamaConfig: importing it here would be a circle
    from structspec.engine.kv_cache import KVCache

FEW_ROWS = 1  # a step of at most so many runs as fused kernels
FEW_ROWS_IF_SMALL = 32  # where a layer's weights are small: launches then take more than reading
_SMALL_LAYER = 16 * 2**20  # numbers in its weights
_INVARIANT_SPLITS = 4  # of every context: few for prompts, which write each, many for one request

Weights = Mapping[str, Tensor]  # Hugging Face names; may read and convert on access


_Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # of qkv, keys and values


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Tensor
    qkv: Linear
    query_norm: Tensor  # [head_dim], or [0] where there is none
    key_norm: Tensor
    attention_out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    mlp_out: Linear


class Llama:
    """A decoder with its weights; its parts may run on one thread at a time."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: Weights,
        dtype: torch.dtype,
        device: torch.device,
        *,
        is_batch_invariant: bool = False,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        self.is_batch_invariant = is_batch_invariant
        self._block_q = _invariant_block_q(config) if is_batch_invariant else None
        self._num_splits = _INVARIANT_SPLITS if is_batch_invariant else None
        reader = _WeightReader(weights, dtype, device, is_batch_invariant)
        self._embedding = reader.tensor("model.embed_tokens.weight")
        self._layers = [_read_layer(reader, index) for index in range(config.num_layers)]
        self._norm = reader.tensor("model.norm.weight")
        self._lm_head = (
            make_linear(self._embedding, is_invariant=is_batch_invariant)
            if config.is_embedding_tied
            else reader.linear("lm_head")
        )
        tables = rope_table(config.rope, config.head_dim, config.max_model_len)
        self._cos, self._sin = (table.to(device) for table in tables)
        self._arrivals = make_arrivals(config.hidden_size, device)
        self._can_fuse = (
            device.type == "cuda"
            and not is_batch_invariant
            and dtype in (torch.bfloat16, torch.float32)
            and self._lm_head.bias is None
            and all(_can_fuse(layer) for layer in self._layers)
        )
        self._few_rows = _few_rows(self._layers[0], dtype)

    @torch.no_grad()  # not inference_mode: the sampler changes the logits in place
    def forward(self, inputs: ForwardInput, kv_cache: KVCache) -> Tensor:
        """Logits [num_logits_rows, vocab_size]; writes the rows' keys and values to the cache."""
        hidden = self.body(inputs.token_ids, inputs.metadata, kv_cache)
        return self.head(hidden[inputs.logits_rows])

    @torch.no_grad()
    def body(self, token_ids: Tensor, metadata: AttentionMetadata, kv_cache: KVCache) -> Tensor:
        """The residual stream behind the last layer, [num_rows, hidden_size]."""
        eps = self.config.rms_norm_eps
        attend = self._plan_attention(metadata, len(token_ids), kv_cache)
        x = self._embedding[token_ids]  # [num_rows, hidden_size]
        if self._is_fused(x):
            return self._fused_body(x, metadata, kv_cache, attend)
        residual = torch.zeros_like(x)
        for index, layer in enumerate(self._layers):
            keys, values = kv_cache.layer(index)
            x = add_rms_norm(x, residual, layer.input_norm, eps)
            x = self._attention(layer, x, keys, values, metadata, attend)
            x = add_rms_norm(x, residual, layer.mlp_norm, eps)
            x = layer.mlp_out(silu_mul(layer.gate_up(x)))
        return residual.add_(x)

    @torch.no_grad()
    def head(self, hidden: Tensor) -> Tensor:
        """Logits [num_rows, vocab_size] of rows of the residual stream; on a GPU float32."""
        eps = self.config.rms_norm_eps
        if self._is_fused(hidden):
            return norm_linear(hidden, self._norm, eps, self._lm_head.weight)
        normed = add_rms_norm(hidden, torch.zeros_like(hidden), self._norm, eps)
        return self._lm_head.unrounded(normed)

    def _is_fused(self, rows: Tensor) -> bool:
        return self._can_fuse and len(rows) <= self._few_rows

    def _fused_body(
        self, residual: Tensor, metadata: AttentionMetadata, kv_cache: KVCache, attend: _Attend
    ) -> Tensor:
        """`body` for few rows; changes `residual`, the embeddings, in place."""
        eps = self.config.rms_norm_eps
        for index, layer in enumerate(self._layers):
            keys, values = kv_cache.layer(index)
            qkv = norm_qkv_rotate_store(
                residual,
                layer.input_norm,
                eps,
                layer.qkv.weight,
                layer.qkv.bias,
                self._cos,
                self._sin,
                metadata.positions,
                metadata.slot_mapping,
                keys,
                values,
            )
            x = attend(qkv, keys, values)
            linear_add(x, layer.attention_out.weight, residual, self._arrivals)
            x = norm_gate_up_silu(residual, layer.mlp_norm, eps, layer.gate_up.weight)
            linear_add(x, layer.mlp_out.weight, residual, self._arrivals)
        return residual

    def _attention(
        self,
        layer: _Layer,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        metadata: AttentionMetadata,
        attend: _Attend,
    ) -> Tensor:
        qkv = layer.qkv(x)
        rotate_and_store(
            qkv,
            layer.query_norm,
            layer.key_norm,
            self.config.rms_norm_eps,
            self._cos,
            self._sin,
            metadata.positions,
            metadata.slot_mapping,
            keys,
            values,
        )
        return layer.attention_out(attend(qkv, keys, values))

    def _plan_attention(
        self, metadata: AttentionMetadata, num_rows: int, kv_cache: KVCache
    ) -> _Attend:
        """Attention of a step's layers; what they have in common is found once."""
        config, block_q, block_requests = self.config, self._block_q, None
        if self.device.type == "cuda":
            shape = (num_rows, len(metadata.context_lens))
            longest = metadata.max_query_len
            group = config.num_heads // config.num_kv_heads
            if block_q is None:
                block_q = choose_block_q(*shape, group, longest, config.head_dim, self.dtype)
            block_requests = plan_blocks(metadata.cu_seqlens_q, num_rows, longest, block_q)

        def attend(qkv: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return paged_attention(
                qkv,
                keys,
                values,
                metadata.cu_seqlens_q,
                metadata.context_lens,
                metadata.block_tables,
                config.head_dim**-0.5,
                max_query_len=metadata.max_query_len,
                block_requests=block_requests,
                block_q=block_q,
                num_splits=self._num_splits,
                arrivals=kv_cache.arrivals,
            )

        return attend


def _can_fuse(layer: _Layer) -> bool:
    """Whether it has no query/key norm, which needs a whole head, and no bias but Qwen2's."""
    others = (layer.attention_out, layer.gate_up, layer.mlp_out)
    has_norm = len(layer.query_norm) or len(layer.key_norm)
    return not has_norm and all(linear.bias is None for linear in others)


def _few_rows(layer: _Layer, dtype: torch.dtype) -> int:
    """The most rows of a step that are few for a network of such layers."""
    linears = (layer.qkv, layer.attention_out, layer.gate_up, layer.mlp_out)
    num_weights = sum(linear.weight.numel() for linear in linears)
    is_small = num_weights <= _SMALL_LAYER and dtype.itemsize == 2
    return FEW_ROWS_IF_SMALL if is_small else FEW_ROWS


class _WeightReader:
    """Takes weights by name, onto the device, several fused into one matrix."""

    def __init__(
        self, weights: Weights, dtype: torch.dtype, device: torch.device, is_invariant: bool
    ) -> None:
        self._weights = weights
        self._dtype = dtype
        self._device = device
        self._is_invariant = is_invariant

    def tensor(self, name: str) -> Tensor:
        if name not in self._weights:
            raise ModelError(f"the checkpoint lacks the weight {name}")
        return self._weights[name].to(self._device, self._dtype)

    def optional(self, name: str) -> Tensor:
        """The weight, or an empty tensor."""
        if name in self._weights:
            return self.tensor(name)
        return torch.empty(0, dtype=self._dtype, device=self._device)

    def linear(self, *names: str) -> Linear:
        """One product for several projections of the same input."""
        weight = torch.cat([self.tensor(f"{name}.weight") for name in names])
        bias = torch.cat([self.optional(f"{name}.bias") for name in names])
        if len(bias) not in (0, len(weight)):
            raise ModelError(f"only some of {', '.join(names)} have a bias")
        return make_linear(weight, bias if len(bias) else None, is_invariant=self._is_invariant)


def _invariant_block_q(config: LlamaConfig) -> int:
    """Query rows that fill 64 rows of attention's products: a middle for decode and prompts."""
    return max(1, 64 // (config.num_heads // config.num_kv_heads))


def _read_layer(reader: _WeightReader, index: int) -> _Layer:
    prefix = f"model.layers.{index}"
    attention = f"{prefix}.self_attn"
    return _Layer(
        input_norm=reader.tensor(f"{prefix}.input_layernorm.weight"),
        qkv=reader.linear(f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"),
        query_norm=reader.optional(f"{attention}.q_norm.weight"),
        key_norm=reader.optional(f"{attention}.k_norm.weight"),
        attention_out=reader.linear(f"{attention}.o_proj"),
        mlp_norm=reader.tensor(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=reader.linear(f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj"),
        mlp_out=reader.linear(f"{prefix}.mlp.down_proj"),
    )
