"""Drafts from the text a grammar forces, in the tokens the model would spell it with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from structspec.drafters.base import count_slots
from structspec.drafters.spelling import spell, whole_characters
from structspec.engine.batch import Batch, Draft
from structspec.grammars.base import Matcher
from structspec.vocabulary import Vocabulary

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
    return spell(forced, output_token_ids, vocabulary, limit)


def _forced_text(matcher: Matcher, vocabulary: Vocabulary, limit: int) -> bytes:
    """All that is forced: where a backend stops early, at a lexeme's end, more is behind it."""
    text, num_accepted = b"", 0
    while len(text) < limit and (more := matcher.forced(limit - len(text))):
        text += more
        token_ids = vocabulary.encode_text(whole_characters(more))
        num_taken = sum(1 for _ in takewhile(matcher.accept, token_ids))
        num_accepted += num_taken
        if vocabulary.decode_bytes(token_ids[:num_taken]) != more:
            break
    matcher.rollback(num_accepted)
    return text
