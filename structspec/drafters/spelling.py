"""Text as the tokens a model would spell it with behind what it has written."""

from __future__ import annotations

from collections.abc import Sequence

from structspec.vocabulary import Vocabulary

NUM_CONTEXT_TOKENS = 8  # enough for a tokenizer to fall into step with the tokens already there


def spell(
    text: bytes, output_token_ids: Sequence[int], vocabulary: Vocabulary, limit: int
) -> list[int]:
    """At most `limit` tokens that spell `text` as it would follow the output.

    A character cut off at the end of `text` is left out.
    """
    context = _context(output_token_ids, vocabulary)
    token_ids = vocabulary.encode_text(whole_characters(context + text))
    start = _find_boundary(token_ids, len(context), vocabulary)
    if start is None:  # the output is spelled otherwise: what follows begins afresh
        return vocabulary.encode_text(whole_characters(text))[:limit]
    return token_ids[start : start + limit]


def whole_characters(data: bytes) -> str:
    """`data` without the incomplete character at its end, and nothing if it is not UTF-8."""
    for num_cut in range(4):
        try:
            return data[: len(data) - num_cut].decode()
        except UnicodeDecodeError:
            continue
    return ""


def _context(output_token_ids: Sequence[int], vocabulary: Vocabulary) -> bytes:
    """What the last output tokens spell, from one on that begins a character."""
    tail: list[bytes] = []
    for token_id in reversed(output_token_ids[-NUM_CONTEXT_TOKENS:]):
        data = vocabulary.token_bytes[token_id]
        if data is None:  # tokenisation starts afresh behind a special token
            break
        tail.insert(0, data)
    while tail and 0x80 <= tail[0][0] < 0xC0:  # the middle of a character
        tail.pop(0)
    return b"".join(tail)


def _find_boundary(token_ids: Sequence[int], num_bytes: int, vocabulary: Vocabulary) -> int | None:
    """How many tokens spell exactly the first `num_bytes` bytes; None where one straddles."""
    length = 0
    for index, token_id in enumerate(token_ids):
        if length >= num_bytes:
            return index if length == num_bytes else None
        length += len(vocabulary.token_bytes[token_id] or b"")
    return None
