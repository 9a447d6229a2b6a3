"""Drafts from what a grammar forces: tokens where its masks force those, else spelled-out text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from structspec.drafters.base import count_slots
from structspec.drafters.spelling import NUM_CONTEXT_TOKENS, spell, whole_characters
from structspec.drafters.trust import SpellingTrust
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.grammars.base import Matcher, MatcherFailed
from structspec.vocabulary import Vocabulary

_MAX_TOKEN_BYTES = 16  # of a usual token: more forced text than the slots can hold is of no use


class ForcedDrafter:
    """Drafts what is forced and nothing else.

    Text that tokens may spell in several ways is left out where the model spells it otherwise.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._trust = SpellingTrust()

    def propose(self, batch: Batch) -> Draft:
        """The forced tokens of each constrained request."""
        self._trust.judge()
        drafts = [self._propose_one(one) for one in batch.requests]
        token_ids = [draft for draft, _ in drafts]
        return Draft(
            token_ids,
            [None] * len(drafts),
            [[True] * len(draft) for draft in token_ids],
            [num_certain for _, num_certain in drafts],
        )

    def _propose_one(self, scheduled: ScheduledRequest) -> tuple[list[int], int]:
        matcher, limit = scheduled.request.matcher, count_slots(scheduled)
        if limit <= 0 or matcher is None:
            return [], 0
        try:
            return self._propose_constrained(scheduled, matcher, limit)
        except MatcherFailed:  # the request fails when its rows are filled, not the whole step here
            return [], 0

    def _propose_constrained(
        self, scheduled: ScheduledRequest, matcher: Matcher, limit: int
    ) -> tuple[list[int], int]:
        drafted = take_certain(scheduled, matcher, limit)
        num_certain = len(drafted)
        if scheduled.may_guess:
            request = scheduled.request
            if self._trust.allows():
                context = [*request.last_output_token_ids(NUM_CONTEXT_TOKENS), *drafted]
                drafted += take_spelled(matcher, context, self._vocabulary, limit - num_certain)
            self._trust.note(request, drafted, range(num_certain, len(drafted)))
            matcher.rollback(len(drafted))
        return drafted, num_certain


def take_certain(scheduled: ScheduledRequest, matcher: Matcher, limit: int) -> list[int]:
    """At most `limit` tokens behind the last one that the masks leave no choice about.

    The matcher is advanced by them if guesses may follow, else left where it was. Where the last
    token is still on its way it has to be certain too, and all between the matcher and it.
    """
    if scheduled.may_guess:
        return list(takewhile(matcher.accept, matcher.forced_tokens(limit)))
    num_unseen = scheduled.request.num_unseen if scheduled.last_index >= 0 else 0
    return matcher.forced_tokens(limit + num_unseen)[num_unseen:]


def take_spelled(
    matcher: Matcher, context: Sequence[int], vocabulary: Vocabulary, limit: int
) -> list[int]:
    """Advance a matcher by the tokens of its forced text, spelled as it would follow the context.

    The masks leave a choice of tokens here, and the last may merge with what comes next: guesses.
    """
    if limit <= 0:
        return []
    text = _forced_text(matcher, vocabulary, limit)
    spelled = spell(text, context, vocabulary, limit)
    return list(takewhile(matcher.accept, spelled))


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
