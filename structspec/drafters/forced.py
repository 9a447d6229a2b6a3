"""Drafts from the text a grammar forces, in the tokens the model would spell it with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from structspec.drafters.base import count_slots
from structspec.engine.batch import Batch, Draft
from structspec.grammars.base import Matcher
from structspec.vocabulary import Vocabulary

NUM_CONTEXT_TOKENS = 8  # enough for a tokenizer to fall into step with the tokens already there
_MAX_TOKEN_BYTES = 16  # of a usual token: more forced text than the slots can hold is of no use


class ForcedDrafter:
    """Drafts the forced text alone."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def propose(self, batch: Batch) -> Draft:
        """The forced tokens of each constrained request."""
        drafts: list[list[int]] = []
        for scheduled in batch.requests:
            request, limit = scheduled.request, count_slots(scheduled)
            drafts.append(
                forced_token_ids(request.matcher, request.output_token_ids, self._vocabulary, limit)
                if limit > 0 and request.matcher is not None
                else []
            )
        return Draft(drafts, [None] * len(drafts), [[True] * len(draft) for draft in drafts])


def forced_token_ids(
    matcher: Matcher, output_token_ids: Sequence[int], vocabulary: Vocabulary, limit: int
) -> list[int]:
    """At most `limit` tokens that spell what `matcher` forces, as they would follow the output.

    The last one is a guess where the text goes on: what comes next may merge with it. Models take
    it in four cases of five, so it is kept. The matcher is left where it was.
    """
    forced = _forced_text(matcher, vocabulary, limit * _MAX_TOKEN_BYTES)
    if not forced:
        return []
    context = _context(output_token_ids, vocabulary)
    token_ids = vocabulary.encode_text(_whole_characters(context + forced))
    start = _find_boundary(token_ids, len(context), vocabulary)
    if start is None:  # the output is spelled otherwise: what follows begins afresh
        return vocabulary.encode_text(_whole_characters(forced))[:limit]
    return token_ids[start : start + limit]


def _forced_text(matcher: Matcher, vocabulary: Vocabulary, limit: int) -> bytes:
    """All that is forced: where a backend stops early, at a lexeme's end, more is behind it."""
    text, num_accepted = b"", 0
    while len(text) < limit and (more := matcher.forced(limit - len(text))):
        text += more
        token_ids = vocabulary.encode_text(_whole_characters(more))
        num_taken = sum(1 for _ in takewhile(matcher.accept, token_ids))
        num_accepted += num_taken
        if vocabulary.decode_bytes(token_ids[:num_taken]) != more:
            break
    matcher.rollback(num_accepted)
    return text


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


def _whole_characters(data: bytes) -> str:
    """`data` without the incomplete character at its end, and nothing if it is not UTF-8."""
    for num_cut in range(4):
        try:
            return data[: len(data) - num_cut].decode()
        except UnicodeDecodeError:
            continue
    return ""


def _find_boundary(token_ids: Sequence[int], num_bytes: int, vocabulary: Vocabulary) -> int | None:
    """How many tokens spell exactly the first `num_bytes` bytes; None where one straddles."""
    length = 0
    for index, token_id in enumerate(token_ids):
        if length >= num_bytes:
            return index if length == num_bytes else None
        length += len(vocabulary.token_bytes[token_id] or b"")
    return None
