"""What a GGUF file of a llama-family model means: config, Hugging Face weights, generation ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from structspec.errors import ModelError
from structspec.models.config import LLAMA_ARCHITECTURES, LlamaConfig, RopeConfig
from structspec.models.gguf_file import GgufFile

TOP_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def config_from_gguf(file: GgufFile) -> LlamaConfig:
    """The model's shape; raises ModelError for an architecture that is not supported."""
    metadata = file.metadata
    architecture = str(metadata.get("general.architecture"))
    if architecture not in LLAMA_ARCHITECTURES:
        raise ModelError(
            f"the architecture {architecture!r} is not supported in a GGUF file;"
            f" {', '.join(LLAMA_ARCHITECTURES)} are"
        )
    fields = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    if fields.get("expert_count"):
        raise ModelError("mixture-of-experts models are not supported")
    try:
        num_heads = fields["attention.head_count"]
        hidden_size = fields["embedding_length"]
        config = LlamaConfig(
            architecture=architecture,
            vocab_size=len(metadata["tokenizer.ggml.tokens"]),
            hidden_size=hidden_size,
            intermediate_size=fields["feed_forward_length"],
            num_layers=fields["block_count"],
            num_heads=num_heads,
            num_kv_heads=fields.get("attention.head_count_kv", num_heads),
            head_dim=fields.get("attention.key_length", hidden_size // num_heads),
            rms_norm_eps=fields["attention.layer_norm_rms_epsilon"],
            max_model_len=fields["context_length"],
            rope=_rope(fields, file),
            is_embedding_tied="output.weight" not in file,
        )
    except KeyError as error:
        raise ModelError(f"{file.path} lacks {error}") from None
    if fields.get("rope.dimension_count", config.head_dim) != config.head_dim:
        raise ModelError("rotating only a part of each head is not supported")
    return config


def _rope(fields: Mapping[str, Any], file: GgufFile) -> RopeConfig:
    theta = fields.get("rope.freq_base", RopeConfig().theta)
    if "rope_freqs.weight" in file:  # Llama 3's stretched frequencies, as one divisor each
        factors = tuple(file["rope_freqs.weight"].tolist())
        return RopeConfig(theta, kind="factors", factors=factors)
    kind = fields.get("rope.scaling.type", "none")
    if kind == "none":
        return RopeConfig(theta)
    return RopeConfig(theta, kind=kind, factor=fields.get("rope.scaling.factor", 1.0))


class GgufWeights(Mapping[str, torch.Tensor]):
    """The file's tensors under Hugging Face's names, in its layout; each access reads anew."""

    def __init__(self, file: GgufFile, config: LlamaConfig) -> None:
        self._file = file
        self._config = config
        names = dict(TOP_NAMES)
        for index in range(config.num_layers):
            for name, gguf_name in LAYER_NAMES.items():
                names[f"model.layers.{index}.{name}"] = f"blk.{index}.{gguf_name}"
        self._names = {
            f"{name}.{part}": f"{gguf_name}.{part}"
            for name, gguf_name in names.items()
            for part in ("weight", "bias")
            if f"{gguf_name}.{part}" in file
        }

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor = self._file[self._names[name]]
        if self._config.architecture == "llama":
            if ".q_proj." in name:
                return _halves_from_pairs(tensor, self._config.num_heads)
            if ".k_proj." in name:
                return _halves_from_pairs(tensor, self._config.num_kv_heads)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _halves_from_pairs(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo llama.cpp's order of a head's rows.

    It rotates neighbours (x0, x1), (x2, x3), …; Hugging Face rotates the two halves of a head.
    """
    pairs = tensor.reshape(num_heads, -1, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)
