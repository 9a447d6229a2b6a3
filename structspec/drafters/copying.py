"""Drafts that copy a value from the prompt's text, however the prompt spells it in tokens.

Extraction copies values, but `Ada` behind a quote and ` Ada` in a sentence are different tokens, so
token n-grams miss the start of nearly every value. Here the match is between characters:

    prompt   … Ada Lovelace is 36 years old …
    output   {"name": "Ad                       "Ad" stands in the prompt
    copied               a Lovelace             up to where the span of names and numbers ends
    closed                         ", "age":    the first closer the grammar takes, and what follows
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structspec.drafters.ngram import TokenArray, TokenBuffer, find_continuation
from structspec.drafters.spelling import NUM_CONTEXT_TOKENS, spell
from structspec.engine.batch import Batch
from structspec.grammars.base import Matcher
from structspec.request import Request
from structspec.vocabulary import Vocabulary

_MAX_MATCH = 32  # bytes compared
_MAX_COPY = 48  # bytes copied
_SPECIAL = -1  # stands for a special token: no byte, and nothing is copied across it
_CLOSERS = ('"', ",", "}", "]")


class TextCopier:
    """Finds what the prompt's text would go on with; keeps one buffer for each request."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._texts: dict[int, _Text] = {}

    def continue_from(self, request: Request, draft: Sequence[int], limit: int) -> list[int] | None:
        """At most `limit` tokens that copy the rest of the value whose beginning stands there.

        Empty where the value is whole already; None where the text ends in no such beginning.
        """
        text = self._texts.setdefault(request.request_id, _Text())
        array = text.view(request.token_ids, draft, self._vocabulary)
        length = _num_word_bytes(array)
        if limit <= 0 or not 0 < length <= _MAX_MATCH:
            return None
        start = find_continuation(array, length, _MAX_MATCH)
        # A word that merely ends like this one is another word.
        if start == 0 or (start > length and _is_in_word(int(array[start - length - 1]))):
            return None
        found = array[start : start + _MAX_COPY]
        ends = np.flatnonzero(found == _SPECIAL)
        span = value_span(bytes(found[: ends[0] if len(ends) else None].astype(np.uint8)))
        context = [*request.last_output_token_ids(NUM_CONTEXT_TOKENS), *draft]
        return spell(span, context, self._vocabulary, limit)

    def keep_only(self, batch: Batch) -> None:
        """Forget requests that are not in this batch."""
        here = {scheduled.request.request_id for scheduled in batch.requests}
        self._texts = {key: text for key, text in self._texts.items() if key in here}


class _Text:
    """One request's tokens as bytes, kept across steps."""

    __slots__ = ("_buffer", "_num_tokens", "_text")

    def __init__(self) -> None:
        self._text: list[int] = []
        self._num_tokens = 0
        self._buffer = TokenBuffer()

    def view(
        self, known: Sequence[int], draft: Sequence[int], vocabulary: Vocabulary
    ) -> TokenArray:
        """The bytes of `known` then `draft`; `known` must go on where the last call's ended."""
        self._text += _bytes_of(known[self._num_tokens :], vocabulary)
        self._num_tokens = len(known)
        return self._buffer.view(self._text, _bytes_of(draft, vocabulary))


def _bytes_of(token_ids: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    values: list[int] = []
    for token_id in token_ids:
        data = vocabulary.token_bytes[token_id]
        values += (_SPECIAL,) if data is None else data
    return values


def value_span(text: bytes) -> bytes:
    """The start of `text` that reads like one value: words in capitals, numbers, dates, codes."""
    for index, byte in enumerate(text):
        following = text[index + 1 : index + 2]
        if _is_in_word(byte):
            continue
        if byte == ord(" ") and (following.isupper() or following.isdigit()):
            continue
        if byte in b".," and following.isdigit():
            continue
        return text[:index]
    return text


def _num_word_bytes(array: TokenArray) -> int:
    """How many bytes at the end of the text are the beginning of a word, or the whole of one."""
    for length in range(min(len(array), _MAX_MATCH + 1)):
        if not _is_in_word(int(array[len(array) - 1 - length])):
            return length
    return _MAX_MATCH + 1


def _is_in_word(byte: int) -> bool:
    return byte != _SPECIAL and (byte >= 0x80 or chr(byte).isalnum() or byte in b"-_:/'@")


def closing_text(matcher: Matcher, vocabulary: Vocabulary) -> bytes:
    """What ends the JSON value here and is forced then; empty where nothing ends it.

    The matcher is left where it was.
    """
    for closer in _CLOSERS:
        token_ids = vocabulary.encode_text(closer)
        if len(token_ids) == 1 and matcher.accept(token_ids[0]):
            forced = matcher.forced(_MAX_COPY)
            matcher.rollback(1)
            return closer.encode() + forced
    return b""
