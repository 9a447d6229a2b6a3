"""Tokenizers of every kind, small enough to be looked at, and large ones made by rule."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Iterable
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from structspec.vocabulary import Vocabulary
from tests.grammars.cases import smollm2_vocabulary

# Words, blanks in front of some, signs of JSON, a character in halves, and bytes that are no text.
PIECES = [
    *(b"na", b"me", b"name", b" na", b" name", b'{"', b'":', b'": "', b'", "', b'"}', b'\\"'),
    *("é".encode(), "日".encode(), "日".encode()[:2], b"\x97\xa5", "😀".encode()[:3]),
    *(b"\xff\xfe", b"\xc0\x80", b"12", b"00", b"  ", b"\n\n", b'"\n', b"\\u", b"\\ud8", b"00e9"),
]


def byte_level_tokenizer() -> Tokenizer:
    """All 256 bytes, the merge `Ġa`, a special and a plain added token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: i for i, character in enumerate([*alphabet, "Ġa"])}
    tokenizer = Tokenizer(models.BPE(vocab, [("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>"])
    tokenizer.add_tokens([AddedToken("Ġplain", special=False)])
    return tokenizer


def sentencepiece_tokenizer(prepend_scheme: str = "never") -> Tokenizer:
    """`▁` for the blank and every byte as `<0xNN>`."""
    pieces = ["<unk>", "</s>", "▁", "a", "▁a", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    model = models.BPE(vocab, [("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def llama2_tokenizer() -> Tokenizer:
    """The same, with the blank in front written by a normalizer, as Llama 2 and Phi 3 have it."""
    tokenizer = sentencepiece_tokenizer()
    tokenizer.pre_tokenizer = None
    spelled = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(spelled)
    return tokenizer


def unigram_tokenizer() -> Tokenizer:
    """Pieces with scores, and bytes for the rest; its ends have the best scores of all."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("a", -1.0), ("▁a", -1.5), ("名", -3.0)]
    pieces += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, byte_fallback=True))
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(spaces)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def tekken_content(pieces: Iterable[bytes] = PIECES, **changes: Any) -> dict[str, Any]:
    """What a `tekken.json` with these tokens holds; 30 special ones, and 5 tokens left out."""
    tokens = list(dict.fromkeys([*(bytes([i]) for i in range(256)), *pieces]))
    left_out = [b"left out %d" % i for i in range(5)]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(data).decode(), "token_str": None}
        for rank, data in enumerate([*tokens, *left_out])
    ]
    config = {
        "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
        "default_vocab_size": 30 + len(tokens),
        "default_num_special_tokens": 30,
        "num_vocab_tokens": len(vocab),
        "version": "v3",
    }
    return {"config": config, "vocab": vocab} | changes


def sentencepiece_content(pieces: Iterable[tuple[str, float, int]], model_type: int) -> bytes:
    """A SentencePiece model file: (text, score, type) of each piece; 1 is Unigram, 2 is BPE."""
    model = b"".join(
        _message(1, _message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _int(3, kind))
        for text, score, kind in pieces
    )
    return model + _message(2, _int(3, model_type)) + _message(3, _message(1, b"identity"))


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _int(number: int, value: int) -> bytes:
    return bytes([number << 3]) + _varint(value)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


@cache
def large_spec(num_tokens: int = 128_000) -> str:
    """A byte-level BPE of so many tokens as a `tokenizer.json`: joined in layers, by rule.

    Two, three and four of some frequent bytes; then 6 special tokens.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    frequent = 'etaoinsrhldcu01{}[]":,.\\-Ġ_Ã©¤'
    layers = ("".join(letters) for n in (2, 3, 4) for letters in product(frequent, repeat=n))
    made = list(islice(layers, num_tokens - 256))
    vocab = {piece: i for i, piece in enumerate([*alphabet, *made])}
    assert len(vocab) == num_tokens
    merges = [(piece[:-1], piece[-1]) for piece in made]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"①②③"])
    spec: str = tokenizer.to_str()
    return spec


def real_vocabulary(name: str) -> Vocabulary:
    """SmolLM2's from its weights; others from STRUCTSPEC_TOKENIZERS/name, where they are kept."""
    if name == "smollm2":
        return smollm2_vocabulary()
    folder = _kept() / name
    if not folder.is_dir():
        pytest.skip(f"there is no tokenizer in {folder}; STRUCTSPEC_TOKENIZERS names another")
    return _from_folder(folder)


@cache
def _from_folder(folder: Path) -> Vocabulary:
    return Vocabulary.from_tokenizer(folder)


def _kept() -> Path:
    named = os.environ.get("STRUCTSPEC_TOKENIZERS")
    return Path(named) if named else Path.home() / ".cache" / "structspec" / "tokenizers"


def save(folder: Path, tokenizer: Tokenizer, **configs: Any) -> Path:
    """A folder with the tokenizer and configs by their name without `.json`."""
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
