"""Drafts from what a grammar forces: tokens where its masks force those, else spelled-out text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from structspec.drafters.base import count_slots
from structspec.drafters.spelling import NUM_CONTEXT_TOKENS, spell, whole_characters
from structspec.engine.batch import Batch, Draft
from structspec.grammars.base import Matcher
from structspec.request import Request
from structspec.vocabulary import Vocabulary

_MAX_TOKEN_BYTES = 16  # of a usual token: more forced text than the slots can hold is of no use


class ForcedDrafter:
    """Drafts what is forced and nothing else."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def propose(self, batch: Batch) -> Draft:
        """The forced tokens of each constrained request."""
        drafts = [self._propose_one(one.request, count_slots(one)) for one in batch.requests]
        return Draft(drafts, [None] * len(drafts), [[True] * len(draft) for draft in drafts])

    def _propose_one(self, request: Request, limit: int) -> list[int]:
        if limit <= 0 or request.matcher is None:
            return []
        context = request.last_output_token_ids(NUM_CONTEXT_TOKENS)
        taken = take_forced(request.matcher, context, self._vocabulary, limit)
        request.matcher.rollback(len(taken))
        return taken


def take_forced(
    matcher: Matcher, context: Sequence[int], vocabulary: Vocabulary, limit: int
) -> list[int]:
    """Advance a matcher by at most `limit` forced tokens, and say which they are.

    Where the masks leave a choice of tokens, the forced text is spelled as it would follow the
    context; its last token may merge with what comes next, and is a guess.
    """
    taken = list(takewhile(matcher.accept, matcher.forced_tokens(limit)))
    text = _forced_text(matcher, vocabulary, limit - len(taken))
    spelled = spell(text, [*context, *taken], vocabulary, limit - len(taken))
    return taken + list(takewhile(matcher.accept, spelled))


def _forced_text(matcher: Matcher, vocabulary: Vocabulary, limit: int) -> bytes:
    """All that is forced, as far as `limit` tokens go; the matcher is left where it was.

    Where a backend stops early, at a lexeme's end, more is behind it.
    """
    text, num_accepted, num_bytes = b"", 0, limit * _MAX_TOKEN_BYTES
    while len(text) < num_bytes and (more := matcher.forced(num_bytes - len(text))):
        text += more
        token_ids = vocabulary.encode_text(whole_characters(more))
        num_taken = sum(1 for _ in takewhile(matcher.accept, token_ids))
        num_accepted += num_taken
        if vocabulary.decode_bytes(token_ids[:num_taken]) != more:
            break
    matcher.rollback(num_accepted)
    return text
