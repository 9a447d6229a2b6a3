"""Drafts from what a grammar forces.

Tokens where the masks force those; else the forced text, as the model would spell it."""

from __future__ import annotations

from itertools import takewhile

from structspec.drafters.base import count_slots
from structspec.drafters.habits import Habits, Spelling
from structspec.drafters.lessons import Lessons
from structspec.drafters.spelling import NUM_CONTEXT_TOKENS, whole_characters
from structspec.engine.batch import Batch, Draft
from structspec.grammars.base import Matcher
from structspec.request import Request
from structspec.vocabulary import Vocabulary

_MAX_TOKEN_BYTES = 16  # of a usual token: more forced text than the slots can hold is of no use


class ForcedDrafter:
    """Drafts the forced text alone, as the model has spelled its like before."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._habits = Habits(vocabulary)
        self._lessons = Lessons(self._habits)

    def propose(self, batch: Batch) -> Draft:
        """The forced tokens of each constrained request."""
        self._lessons.learn()
        drafts: list[list[int]] = []
        for scheduled in batch.requests:
            spelling = self._propose_one(scheduled.request, count_slots(scheduled))
            self._lessons.expect(scheduled.request, spelling.openings)
            drafts.append(spelling.token_ids)
        return Draft(drafts, [None] * len(drafts), [[True] * len(draft) for draft in drafts])

    def _propose_one(self, request: Request, limit: int) -> Spelling:
        if limit <= 0 or request.matcher is None:
            return Spelling()
        matcher, context = request.matcher, request.last_output_token_ids(NUM_CONTEXT_TOKENS)
        fixed = matcher.forced_tokens(limit)
        num_taken = sum(1 for _ in takewhile(matcher.accept, fixed))
        text = forced_text(matcher, self._vocabulary, limit - num_taken)
        matcher.rollback(num_taken)
        context = [*context, *fixed[:num_taken]][-NUM_CONTEXT_TOKENS:]
        spelling = self._habits.spell(text, context, limit - num_taken)
        openings = {num_taken + i: opening for i, opening in spelling.openings.items()}
        return Spelling(fixed[:num_taken] + spelling.token_ids, openings)


def forced_text(matcher: Matcher, vocabulary: Vocabulary, limit: int) -> bytes:
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
