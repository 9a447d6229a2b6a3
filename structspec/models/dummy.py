"""Random weights of a model's shape, for benchmarks: they cost what real ones cost."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from structspec.models.config import LlamaConfig

_SPREAD = 0.02  # as checkpoints are initialised: logits stay finite through any number of layers


class DummyWeights(Mapping[str, Tensor]):
    """Tensors by Hugging Face's names, drawn when they are read; each name's are always the same.

    Norms are 1, so that layers do not fade; biases and query/key norms are there where the
    architecture has them.
    """

    def __init__(self, config: LlamaConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self._device = device
        self._shapes = _shapes(config)

    def __getitem__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        generator = torch.Generator(self._device).manual_seed(zlib.crc32(name.encode()))
        empty = torch.empty(shape, dtype=self._dtype, device=self._device)
        return empty.normal_(0.0, _SPREAD, generator=generator)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def _shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.is_embedding_tied:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.architecture == "qwen2":
        sizes = {"q": queries, "k": keys, "v": keys}
        layer |= {f"self_attn.{name}_proj.bias": (size,) for name, size in sizes.items()}
    if config.architecture == "qwen3":
        layer |= {f"self_attn.{name}_norm.weight": (config.head_dim,) for name in "qk"}
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes
