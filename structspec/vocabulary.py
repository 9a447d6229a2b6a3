"""The tokens a model can write, as bytes: all that the grammar layer knows about a tokenizer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from structspec.errors import ModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_STOP_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>", "<eos>")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Token ids, the bytes each stands for, and which of them stop or are special.

    `token_bytes[i]` is None for special tokens, stop tokens and padding rows of the embedding: a
    constraint never allows them as text. `len(token_bytes)` is the width of the model's logits.
    `encode_text` is the tokenizer's own (canonical) tokenisation, without special tokens.
    `special_tokens` are ids by name: only tool calls of families that write them allow them.
    """

    token_bytes: tuple[bytes | None, ...]
    stop_token_ids: tuple[int, ...]
    encode_text: Callable[[str], list[int]]
    special_tokens: Mapping[str, int] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """How many ids the logits have."""
        return len(self.token_bytes)

    @property
    def num_words(self) -> int:
        """How many int32 words a bitmask row has."""
        return (self.vocab_size + 31) // 32

    @cached_property
    def special_token_ids(self) -> frozenset[int]:
        """Ids that stand for no text."""
        return frozenset(i for i, data in enumerate(self.token_bytes) if data is None)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for vocabularies with the same tokens and stop tokens, on any day and machine."""
        digest = hashlib.sha256(repr(self.stop_token_ids).encode())
        for data in self.token_bytes:
            # -1: no text, which an empty token is not
            digest.update((-1 if data is None else len(data)).to_bytes(4, "little", signed=True))
            digest.update(data or b"")
        digest.update(repr(sorted(self.special_tokens.items())).encode())
        return digest.hexdigest()

    def is_text(self, token_id: int) -> bool:
        """Whether this is a token of the vocabulary that stands for text."""
        return 0 <= token_id < len(self.token_bytes) and self.token_bytes[token_id] is not None

    def decode_bytes(self, token_ids: Sequence[int]) -> bytes:
        """The bytes of these tokens; special tokens give none."""
        return b"".join(self.token_bytes[i] or b"" for i in token_ids)

    def spell_bytes(self, token_ids: Sequence[int]) -> bytes:
        """The bytes of these tokens; special tokens are spelled by name, where they have one."""
        names = {token_id: name.encode() for name, token_id in self.special_tokens.items()}
        return b"".join(self.token_bytes[i] or names.get(i, b"") for i in token_ids)

    @classmethod
    def bytes(cls) -> Vocabulary:
        """A vocabulary for tests: token i is byte i, token 256 the stop token."""
        tokens = (*(bytes([i]) for i in range(256)), None)
        return cls(tokens, (256,), lambda text: list(text.encode()))

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any | str | Path,
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> Vocabulary:
        """From a structspec, `tokenizers` or transformers tokenizer, or the path of one.

        A path is a `tokenizer.json` or a folder holding one. `vocab_size` is the width of the
        logits where it is larger than the tokenizer; `stop_token_ids` defaults to the tokenizer's
        end token, else to the end tokens in common use. Raises ModelError where none is known.
        """
        own = getattr(tokenizer, "vocabulary", None)
        if isinstance(own, Vocabulary):
            return _adjusted(own, vocab_size, stop_token_ids)
        eos_token: str | None = getattr(tokenizer, "eos_token", None)
        if isinstance(tokenizer, (str, Path)):
            tokenizer, eos_token = _load(Path(tokenizer))
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            raise ModelError(
                f"{type(tokenizer).__name__} is not a tokenizer structspec can read: pass a "
                "`tokenizers.Tokenizer`, a fast transformers tokenizer or the path of one"
            )
        spec = json.loads(backend.to_str())
        if stop_token_ids is None:
            stop_token_ids = _find_stop_tokens(backend, eos_token)
        added = spec.get("added_tokens") or ()
        special = {token["content"]: token["id"] for token in added if token["special"]}
        vocabulary = cls(_token_bytes(spec), (), _encoder(backend), special)
        return _adjusted(vocabulary, vocab_size, stop_token_ids)


def _adjusted(
    vocabulary: Vocabulary, vocab_size: int | None, stop_token_ids: Sequence[int] | None
) -> Vocabulary:
    """The vocabulary with another width and other stop tokens."""
    if vocab_size is None and stop_token_ids is None:
        return vocabulary
    tokens = list(vocabulary.token_bytes)
    if vocab_size is not None and vocab_size < len(tokens):
        raise ModelError(f"vocab_size {vocab_size} is below the tokenizer's {len(tokens)} tokens")
    tokens += [None] * ((vocab_size or 0) - len(tokens))
    stops = tuple(vocabulary.stop_token_ids if stop_token_ids is None else stop_token_ids)
    for token_id in stops:
        if not 0 <= token_id < len(tokens):
            raise ModelError(f"stop token {token_id} is not in the vocabulary of {len(tokens)}")
        tokens[token_id] = None
    return Vocabulary(tuple(tokens), stops, vocabulary.encode_text, vocabulary.special_tokens)


def _load(path: Path) -> tuple[Any, str | None]:
    """The tokenizer in a file or folder, and the name of its end token if a config tells it."""
    from tokenizers import Tokenizer

    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ModelError(f"there is no tokenizer at {file}")
    config = file.with_name("tokenizer_config.json")
    eos_token = json.loads(config.read_text())["eos_token"] if config.is_file() else None
    if isinstance(eos_token, dict):
        eos_token = eos_token["content"]
    return Tokenizer.from_file(str(file)), eos_token


def _find_stop_tokens(backend: Any, eos_token: str | None) -> tuple[int, ...]:
    """The end token the tokenizer names, else those in common use that it has."""
    names = (eos_token,) if eos_token else _STOP_TOKENS
    ids = [backend.token_to_id(name) for name in names]
    stops = tuple(token_id for token_id in ids if token_id is not None)
    if not stops:
        raise ModelError("the tokenizer names no end token: pass stop_token_ids")
    return stops


def _encoder(backend: Any) -> Callable[[str], list[int]]:
    """Canonical tokenisation that reads special-token text in its input as plain text."""
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(backend.to_str())  # a copy: the caller's settings stay his
    plain.encode_special_tokens = True
    plain.no_padding()
    plain.no_truncation()

    def encode_text(text: str) -> list[int]:
        ids: list[int] = plain.encode(text, add_special_tokens=False).ids
        return ids

    return encode_text


def _token_bytes(spec: dict[str, Any]) -> tuple[bytes | None, ...]:
    """The bytes of every token of a `tokenizer.json`."""
    model, added = spec["model"], spec.get("added_tokens", [])
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: [piece, score] pairs
        vocab = {piece: token_id for token_id, (piece, _) in enumerate(vocab)}
    to_bytes = _byte_level_bytes if _is_byte_level(spec) else _piece_bytes
    ids = [*vocab.values(), *(token["id"] for token in added)]
    tokens: list[bytes | None] = [None] * (max(ids, default=-1) + 1)
    for piece, token_id in vocab.items():
        tokens[token_id] = to_bytes(piece)
    for token in added:  # an added token is its own text, not the model's alphabet
        tokens[token["id"]] = None if token["special"] else token["content"].encode()
    unknown = model.get("unk_token")
    if unknown in vocab:
        tokens[vocab[unknown]] = None
    return tuple(token or None for token in tokens)


def _is_byte_level(spec: dict[str, Any]) -> bool:
    """Whether tokens are written in the byte-to-character alphabet of GPT-2."""
    return any('"ByteLevel"' in json.dumps(spec.get(part)) for part in ("pre_tokenizer", "decoder"))


@cache
def _byte_alphabet() -> dict[str, int]:
    """Character to byte: printable Latin-1 stands for itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in alphabet)
    return alphabet | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def _byte_level_bytes(piece: str) -> bytes:
    alphabet = _byte_alphabet()
    if all(character in alphabet for character in piece):
        return bytes(alphabet[character] for character in piece)
    return piece.encode()


def _piece_bytes(piece: str) -> bytes:
    """SentencePiece: `▁` is a blank, `<0xNN>` one byte."""
    if match := _BYTE_TOKEN.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace("▁", " ").encode()
