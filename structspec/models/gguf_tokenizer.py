"""Build the tokenizer that a GGUF file describes: byte-level BPE from its tokens and merges."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from structspec.errors import ModelError
from structspec.models.gguf_file import GgufFile
from structspec.models.tokenizer import Tokenizer, make_tokenizer

# Token types that are matched in the text before BPE.
_CONTROL, _USER_DEFINED = 3, 4

# How text is cut before merging. The two differ only in how many digits stay together.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SUPPORTED = ("gpt-2", "smollm", "llama-bpe", "qwen2")


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    """The file's tokenizer, its chat template and its stop tokens; takes about 0.3 s."""
    metadata = file.metadata
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    special_tokens = {
        f"{name}_token": tokens[metadata[f"tokenizer.ggml.{name}_token_id"]]
        for name in ("bos", "eos")
        if f"tokenizer.ggml.{name}_token_id" in metadata
    }
    end_ids = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return make_tokenizer(
        _backend(file),
        vocab_size=len(tokens),
        eos_token_ids=[token_id for token_id in end_ids if token_id is not None],
        chat_template=metadata.get("tokenizer.chat_template"),
        special_tokens=special_tokens,
    )


def _backend(file: GgufFile) -> tokenizers.Tokenizer:
    metadata = file.metadata
    kind, cut = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or cut not in _SUPPORTED:
        raise ModelError(
            f"{file.path} has a tokenizer of kind {kind!r}, {cut!r}, which is not supported (of"
            f" kind 'gpt2', {', '.join(_SUPPORTED)} are): load the model from a folder with a"
            " tokenizer.json instead"
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    # Llama 3 takes a word that is a token as it is, even where no merges lead to it.
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=cut == "llama-bpe"))
    backend.pre_tokenizer = pre_tokenizer(cut)
    backend.decoder = decoders.ByteLevel()
    if cut == "qwen2":
        backend.normalizer = normalizers.NFC()
    kinds = metadata["tokenizer.ggml.token_type"]
    for is_special, wanted in ((True, _CONTROL), (False, _USER_DEFINED)):
        texts = [token for token, kind in zip(tokens, kinds, strict=True) if kind == wanted]
        added = [AddedToken(text, special=is_special, normalized=False) for text in texts]
        backend.add_special_tokens(added) if is_special else backend.add_tokens(added)
    return backend


def pre_tokenizer(cut: str) -> Any:
    """How a GGUF's `tokenizer.ggml.pre` cuts text into the pieces that BPE merges within."""
    if cut == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cut == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    words = _WORDS.format(digits=r"\p{N}" if cut == "qwen2" else r"\p{N}{1,3}")
    split = pre_tokenizers.Split(Regex(words), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, to_bytes])
