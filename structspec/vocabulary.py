"""The tokens a model can write, as bytes: all that the grammar layer knows about a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Token ids, the bytes each stands for, and which of them stop or are special.

    `token_bytes[i]` is None for special tokens, stop tokens and padding rows of the embedding: a
    constraint never allows them as text. `len(token_bytes)` is the width of the model's logits.
    `encode_text` is the tokenizer's own (canonical) tokenisation, without special tokens.
    """

    token_bytes: tuple[bytes | None, ...]
    stop_token_ids: tuple[int, ...]
    encode_text: Callable[[str], list[int]]

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

    def decode_bytes(self, token_ids: Sequence[int]) -> bytes:
        """The bytes of these tokens; special tokens give none."""
        return b"".join(self.token_bytes[i] or b"" for i in token_ids)

    @classmethod
    def bytes(cls) -> Vocabulary:
        """A vocabulary for tests: token i is byte i, token 256 the stop token."""
        tokens = (*(bytes([i]) for i in range(256)), None)
        return cls(tokens, (256,), lambda text: list(text.encode()))

    @classmethod
    def from_tokenizer(cls, tokenizer: Any | str | Path) -> Vocabulary:
        """From a structspec, `tokenizers` or transformers tokenizer, or the path of one."""
        raise NotImplementedError
