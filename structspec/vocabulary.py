"""The tokens a model can write, as bytes: all that the grammar layer knows about a tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from structspec.errors import ModelError
from structspec.tokenizer_files import ModelSettings, read_settings, read_spec
from structspec.tokenizer_spec import (
    Spec,
    bytes_of_tokens,
    exact_encoder,
    find_stop_tokens,
    special_ids,
)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Token ids, the bytes each stands for, and which of them stop or are special.

    `token_bytes[i]` is None for special tokens, stop tokens and padding rows of the embedding: a
    constraint never allows them as text. `len(token_bytes)` is the width of the model's logits.
    Empty tokens stand for no text either. `encode_text` is the tokenizer's own (canonical)
    tokenisation of exactly that text, without special tokens.
    `special_tokens` are ids by name: only tool calls of families that write them allow them.
    """

    token_bytes: tuple[bytes | None, ...]
    stop_token_ids: tuple[int, ...]
    encode_text: Callable[[str], list[int]]
    special_tokens: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if b"" in self.token_bytes:  # one could be written for ever
            tokens = tuple(data or None for data in self.token_bytes)
            object.__setattr__(self, "token_bytes", tokens)

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

        A path is a `tokenizer.json`, a `tekken.json`, a SentencePiece `tokenizer.model` or a folder
        holding one. `vocab_size` is the width of the logits where it is larger than the tokenizer,
        by default what a `config.json` beside it says. `stop_token_ids` are by default those of a
        `generation_config.json` beside it, the tokenizer's end token and all end tokens in common
        use. Raises ModelError where none is known.
        """
        own = getattr(tokenizer, "vocabulary", None)
        if isinstance(own, Vocabulary):
            return _adjusted(own, vocab_size, stop_token_ids)
        spec, settings = _read(tokenizer)
        tokens = bytes_of_tokens(spec)
        if vocab_size is None:
            vocab_size = max(len(tokens), settings.vocab_size or 0)
        if stop_token_ids is None:
            stop_token_ids = find_stop_tokens(spec, settings.eos_tokens, settings.eos_token_ids)
        vocabulary = cls(tokens, (), exact_encoder(spec), special_ids(spec))
        return _adjusted(vocabulary, vocab_size, stop_token_ids)


def _read(tokenizer: Any) -> tuple[Spec, ModelSettings]:
    if isinstance(tokenizer, (str, Path)):
        path = Path(tokenizer)
        return read_spec(path), read_settings(path if path.is_dir() else path.parent)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise ModelError(
            f"{type(tokenizer).__name__} is not a tokenizer structspec can read: pass a "
            "`tokenizers.Tokenizer`, a fast transformers tokenizer or the path of one"
        )
    folder: str = getattr(tokenizer, "name_or_path", "")  # where transformers read it
    settings = read_settings(Path(folder)) if folder else ModelSettings()
    if (eos_token := getattr(tokenizer, "eos_token", None)) is not None:
        settings = replace(settings, eos_tokens=(eos_token,))
    return json.loads(backend.to_str()), settings


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


def greedy_encoder(token_bytes: Sequence[bytes | None]) -> Callable[[str], list[int]]:
    """Tokenises by the longest token that fits: not as the model would, but its tokens and text."""
    ids = {data: token_id for token_id, data in enumerate(token_bytes) if data}
    longest = max(map(len, ids), default=0)

    def encode_text(text: str) -> list[int]:
        data, start, found = text.encode(), 0, list[int]()
        while start < len(data):
            fits = (data[start : start + n] for n in range(longest, 0, -1))
            piece = next((piece for piece in fits if piece in ids), None)
            if piece is None:
                raise ValueError(f"no token begins with the byte {data[start]}")
            found.append(ids[piece])
            start += len(piece)
        return found

    return encode_text
