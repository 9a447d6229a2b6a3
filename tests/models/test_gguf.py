"""GGUF files of other models: written here with the gguf package, as llama.cpp converts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.model_runner import ModelRunner
from structspec.errors import ModelError
from structspec.models import load_model
from structspec.models.gguf_model import LAYER_NAMES, TOP_NAMES
from structspec.models.gguf_tokenizer import pre_tokenizer
from tests.engine.feeding import feed, make_request
from tests.models.reference import (
    TINY_VOCAB_SIZE,
    byte_tokenizer,
    random_ids,
    reference_logits,
    save_tiny_model,
)


def pairs_from_halves(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """llama.cpp's order of the rows of a head: x0, x(d/2), x1, x(d/2 + 1), …"""
    rows = weight.unflatten(0, (num_heads, 2, -1))
    return rows.transpose(1, 2).flatten(0, 2)


def write_gguf(path: Path, model: Any, architecture: str, **changes: Any) -> None:
    """The model as a GGUF with the byte tokenizer."""
    config, writer = model.config, gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    if "key_length" in changes:
        writer.add_key_length(changes["key_length"])
    if "rope_factors" in changes:
        writer.add_tensor("rope_freqs.weight", changes["rope_factors"].numpy())
    vocab = byte_tokenizer().get_vocab()
    tokens = sorted(vocab, key=lambda token: vocab[token]) + ["ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(changes.get("pre", "gpt-2"))
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3] * 3 + [1])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(257)
    names = dict(TOP_NAMES)
    for index in range(config.num_hidden_layers):
        for name, gguf_name in LAYER_NAMES.items():
            names[f"model.layers.{index}.{name}"] = f"blk.{index}.{gguf_name}"
    for name, tensor in model.state_dict().items():
        module, _, part = name.rpartition(".")
        if architecture == "llama" and "q_proj" in name:
            tensor = pairs_from_halves(tensor, config.num_attention_heads)
        if architecture == "llama" and "k_proj" in name:
            tensor = pairs_from_halves(tensor, config.num_key_value_heads)
        if not (module == "lm_head" and config.tie_word_embeddings):
            writer.add_tensor(f"{names[module]}.{part}", tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("architecture", "model_changes", "file_changes"),
    [
        ("llama", {}, {}),
        ("llama", {"tie_word_embeddings": True, "attention_bias": True}, {}),
        ("qwen2", {}, {}),
        ("qwen3", {"head_dim": 12}, {"key_length": 12}),
    ],
    ids=["llama-untied", "llama-tied-biases", "qwen2", "qwen3"],
)
def test_logits_are_those_of_the_model_it_was_written_from(
    tmp_path: Path, architecture: str, model_changes: dict[str, Any], file_changes: dict[str, Any]
) -> None:
    model = save_tiny_model(tmp_path, architecture, **model_changes)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, model, architecture, **file_changes)
    ids = random_ids(50, TINY_VOCAB_SIZE)
    loaded = load_model(path)
    logits = feed(
        ModelRunner(loaded, EngineConfig(num_blocks=4)), make_request(ids, range(4)), [50]
    )
    expected = reference_logits(model, ids)
    assert (logits - expected).abs().max() <= 1e-3 * expected.std()
    assert loaded.tokenizer.encode("ab") == [259]  # the one merge there is


def test_stretched_frequencies_are_read_from_their_tensor(tmp_path: Path) -> None:
    """Factors of 4 throughout are what linear scaling by 4 does."""
    rope = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
    model = save_tiny_model(tmp_path, "llama", rope_parameters=rope)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, model, "llama", rope_factors=torch.full((4,), 4.0))
    ids = random_ids(50, TINY_VOCAB_SIZE)
    runner = ModelRunner(load_model(path), EngineConfig(num_blocks=4))
    logits = feed(runner, make_request(ids, range(4)), [50])
    expected = reference_logits(model, ids)
    assert (logits - expected).abs().max() <= 1e-3 * expected.std()


def test_an_unknown_tokenizer_points_to_what_works(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, save_tiny_model(tmp_path, "llama"), "llama", pre="chameleon")
    with pytest.raises(ModelError, match=r"'chameleon'.*tokenizer\.json"):
        load_model(path)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, save_tiny_model(tmp_path, "llama"), "mamba")
    with pytest.raises(ModelError, match="'mamba' is not supported"):
        load_model(path)


@pytest.mark.parametrize(
    ("cut", "pieces"),
    [
        ("gpt-2", ["It", "'s", "Ġ12345", "Ġok", "!", "Ċ"]),
        ("smollm", ["It", "'s", "Ġ", "1", "2", "3", "4", "5", "Ġok", "!", "Ċ"]),
        ("llama-bpe", ["It", "'s", "Ġ", "123", "45", "Ġok", "!Ċ"]),
        ("qwen2", ["It", "'s", "Ġ", "1", "2", "3", "4", "5", "Ġok", "!Ċ"]),
    ],
)
def test_text_is_cut_as_each_family_cuts_it(cut: str, pieces: list[str]) -> None:
    found = pre_tokenizer(cut).pre_tokenize_str("It's 12345 ok!\n")
    assert [piece for piece, _ in found] == pieces
