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

from structspec.drafters.spelling import NUM_CONTEXT_TOKENS, spell
from structspec.drafters.token_index import Ask, TokenIndex
from structspec.grammars.base import Matcher
from structspec.request import Request
from structspec.vocabulary import Vocabulary

_MAX_MATCH = 32  # bytes compared
_MAX_COPY = 48  # bytes copied
_SPECIAL = -1  # stands for a special token: no byte, and nothing is copied across it
_CLOSERS = ('"', ",", "}", "]")


class TextCopier:
    """Finds what the prompt's text would go on with; keeps the bytes of unfinished requests."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._index = TokenIndex()  # its tokens are bytes
        self._known: dict[int, tuple[Request, int]] = {}  # how many tokens of each are in it

    def continue_from(self, request: Request, draft: Sequence[int], limit: int) -> list[int] | None:
        """At most `limit` tokens that copy the rest of the value whose beginning stands there.

        Empty where the value is whole already; None where the text ends in no such beginning.
        """
        tail = _bytes_of([*request.token_ids[-_MAX_MATCH - 1 :], *draft], self._vocabulary)
        length = _num_word_bytes(tail)
        if limit <= 0 or not 0 < length <= _MAX_MATCH:
            return None
        _, num_known = self._known.get(request.request_id, (request, 0))
        self._known[request.request_id] = request, len(request.token_ids)
        new = _bytes_of(request.token_ids[num_known:], self._vocabulary)
        ask = Ask(request, new, _bytes_of(draft, self._vocabulary), _MAX_COPY, length, _MAX_MATCH)
        start, text = self._index.find(ask)
        # A word that merely ends like this one is another word.
        if start == 0 or (start > length and _is_in_word(int(text[start - length - 1]))):
            return None
        found = text[start : start + _MAX_COPY]
        ends = np.flatnonzero(found == _SPECIAL)
        span = value_span(bytes(found[: ends[0] if len(ends) else None].astype(np.uint8)))
        context = [*request.last_output_token_ids(NUM_CONTEXT_TOKENS), *draft]
        return spell(span, context, self._vocabulary, limit)

    def forget_finished(self) -> None:
        """Let go of requests that are finished; to be called in every step."""
        self._index.forget_finished()
        for key in [key for key, (request, _) in self._known.items() if request.is_finished]:
            del self._known[key]


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


def _num_word_bytes(text: Sequence[int]) -> int:
    """How many bytes at the end of the text are the beginning of a word, or the whole of one."""
    for length in range(min(len(text), _MAX_MATCH + 1)):
        if not _is_in_word(text[-1 - length]):
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
