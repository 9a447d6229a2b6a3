"""The same weights in transformers, to compare with, and small models to load from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from structspec.models import find_model
from structspec.models.gguf_file import GgufFile
from structspec.models.gguf_model import GgufWeights, config_from_gguf

TINY_VOCAB_SIZE = 260  # 256 bytes, three special tokens, one row of padding
END = "<|im_end|>"


def reference_model() -> LlamaForCausalLM:
    """SmolLM2 in transformers, in float32; its own GGUF loader would take 30 s."""
    file = GgufFile(find_model("smollm2-135m"))
    config = config_from_gguf(file)
    with torch.device("meta"):
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_kv_heads,
                max_position_embeddings=config.max_model_len,
                rms_norm_eps=config.rms_norm_eps,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
                tie_word_embeddings=config.is_embedding_tied,
            )
        )
    rotary = model.model.rotary_emb
    rotary.inv_freq = rotary.compute_default_rope_parameters(model.config)[0]
    rotary.original_inv_freq = rotary.inv_freq.clone()
    model.load_state_dict(dict(GgufWeights(file, config)), strict=False, assign=True)
    model.tie_weights()
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    return model.eval()


def byte_tokenizer() -> tokenizers.Tokenizer:
    """One token per byte, then three special tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: token_id for token_id, character in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", END, "<tool>"])
    return tokenizer


def save_tiny_model(
    folder: Path, architecture: str, *, max_shard_size: str = "1GB", **changes: Any
) -> Any:
    """Two random layers with grouped heads, written by transformers itself; returns its model."""
    settings = {
        "vocab_size": TINY_VOCAB_SIZE,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
        "initializer_range": 0.2,  # large enough for attention to matter
        "bos_token_id": None,
        "eos_token_id": 257,
        "pad_token_id": None,
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture, **(settings | changes))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms and biases, which transformers starts all at 1 and 0
            torch.nn.init.normal_(parameter, mean=0.5, std=0.5)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return model


@torch.no_grad()
def reference_logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits


def random_ids(count: int, vocab_size: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (count,), generator=generator).tolist()
