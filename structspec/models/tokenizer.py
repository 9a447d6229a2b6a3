"""Text to token ids and back, and chat messages to prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tokenizers

from structspec.constraint import find_half_character
from structspec.errors import InvalidRequest, ModelError
from structspec.models.chat_template import render_chat
from structspec.tokenizer_spec import known_ends
from structspec.vocabulary import Vocabulary

# Put inside special-token text that a message contains, so that it stays plain text.
_BREAK = "\ufdd0"  # a noncharacter: no text has it


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A model's tokenizer; safe for use by many threads.

    `vocab_size` is the width of the logits, at least the tokenizer's own. `special_tokens` are the
    named ones a chat template may use, such as `bos_token`.
    """

    backend: tokenizers.Tokenizer
    vocab_size: int
    stop_token_ids: tuple[int, ...]
    chat_template: str | None
    special_tokens: Mapping[str, str]

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Token ids of the text and nothing else.

        Text that spells a special token, such as `<|im_end|>`, stays plain text unless
        `parse_special`: never set that for text a user wrote. Raises InvalidRequest for half
        characters.
        """
        offset = find_half_character(text)
        if offset is not None:
            raise InvalidRequest(
                f"the prompt holds half a surrogate pair, {text[offset]!r}, behind"
                f" {text[max(0, offset - 20) : offset]!r}; read it with errors='replace'"
            )
        backend = self.backend if parse_special else self._plain_backend
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The prompt of a chat; special tokens come from the template alone.

        `options` are variables of the template, such as `enable_thinking`. A message that spells a
        special token is encoded as the plain text it is.
        """
        messages = _map_strings(messages, self._break_special)
        tools = _map_strings(tools, self._break_special)
        text = self.apply_chat_template(messages, tools, options)
        if _BREAK not in text:
            return self.encode(text, parse_special=True)
        ids: list[int] = []
        for index, part in enumerate(self._special_pattern.split(text)):
            is_special = index % 2 == 1  # split keeps what it split at, in every other place
            ids += self.encode(part.replace(_BREAK, ""), parse_special=is_special)
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens left out."""
        text: str = self.backend.decode(list(token_ids), skip_special_tokens=True)
        return text

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of a chat as text; raises InvalidRequest for messages it cannot show."""
        variables = {**(options or {}), **self.special_tokens}
        return render_chat(self.chat_template, messages, tools, variables)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens as the grammar layer sees them."""
        return Vocabulary.from_tokenizer(
            self.backend, vocab_size=self.vocab_size, stop_token_ids=self.stop_token_ids
        )

    @cached_property
    def _plain_backend(self) -> tokenizers.Tokenizer:
        plain = tokenizers.Tokenizer.from_str(self.backend.to_str())
        plain.encode_special_tokens = True
        return plain

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        added = self.backend.get_added_tokens_decoder().values()
        texts = sorted((token.content for token in added if token.special), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, texts))})" if texts else "(?!)()")

    def _break_special(self, text: str) -> str:
        return self._special_pattern.sub(lambda match: match[0][0] + _BREAK + match[0][1:], text)


def make_tokenizer(
    backend: tokenizers.Tokenizer,
    *,
    vocab_size: int,
    eos_token_ids: Iterable[int],
    chat_template: str | None,
    special_tokens: Mapping[str, str],
) -> Tokenizer:
    """A tokenizer whose stop tokens are the given ones, its `eos_token` and all well-known ends."""
    backend.no_padding()
    backend.no_truncation()
    size = backend.get_vocab_size(with_added_tokens=True)
    if size > vocab_size:
        raise ModelError(f"the tokenizer has {size} tokens and the model only {vocab_size}")
    added = backend.get_added_tokens_decoder()
    special_ids = {token.content: token_id for token_id, token in added.items() if token.special}
    stops = {*eos_token_ids, *known_ends(special_ids)}
    eos_id = backend.token_to_id(special_tokens.get("eos_token", ""))
    if eos_id is not None:
        stops.add(eos_id)
    if not stops:
        raise ModelError("the model names no token that ends its output")
    return Tokenizer(backend, vocab_size, tuple(sorted(stops)), chat_template, special_tokens)


def _map_strings(value: Any, change: Any) -> Any:
    """The same nested value with every string inside changed, the keys of mappings excepted."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_map_strings(item, change) for item in value]
    return value
