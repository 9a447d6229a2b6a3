"""Drafts from what a grammar forces: tokens where its masks force those, else spelled-out text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile

import numpy as np

from structspec.drafters.base import count_slots, count_unseen
from structspec.drafters.spelling import NUM_CONTEXT_TOKENS, spell, whole_characters
from structspec.drafters.tracked import left_in_place, track
from structspec.drafters.trust import SpellingTrust, TailTrust
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.grammars.base import Matcher
from structspec.vocabulary import Vocabulary

_MAX_TOKEN_BYTES = 16  # of a usual token: more forced text than the slots can hold is of no use


class ForcedDrafter:
    """Drafts what is forced and nothing else, the end included.

    Text that tokens may spell in several ways is left out where the model spells it otherwise.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._trust = SpellingTrust()
        self._tails = TailTrust()
        self._find_stop = StopFinder(vocabulary)

    def propose(self, batch: Batch) -> Draft:
        """The forced tokens of each constrained request."""
        self._trust.judge()
        self._tails.judge()
        drafts = [self._propose_one(one) for one in batch.requests]
        token_ids = [draft for draft, _ in drafts]
        return Draft(
            token_ids,
            [None] * len(drafts),
            [[True] * len(draft) for draft in token_ids],
            [num_certain for _, num_certain in drafts],
        )

    def _propose_one(self, scheduled: ScheduledRequest) -> tuple[list[int], int]:
        matcher, limit = track(scheduled.request), count_slots(scheduled)
        proposed: tuple[list[int], int] = [], 0  # unless all goes well
        if limit > 0 and matcher is not None:
            with left_in_place(scheduled.request, matcher):
                proposed = self._propose_constrained(scheduled, matcher, limit)
        return proposed

    def _propose_constrained(
        self, scheduled: ScheduledRequest, matcher: Matcher, limit: int
    ) -> tuple[list[int], int]:
        drafted = take_certain(scheduled, matcher, limit, self._vocabulary.stop_token_ids)
        num_certain = len(drafted)
        if not scheduled.may_guess:
            return drafted, num_certain
        request = scheduled.request
        if self._trust.allows():
            context = [*request.last_output_token_ids(NUM_CONTEXT_TOKENS), *drafted]
            spelled, tail = find_spelled(matcher, context, self._vocabulary, limit - num_certain)
            drafted += takewhile(matcher.accept, spelled)
            if tail is not None and self._tails.allows(request, drafted, tail):
                drafted += takewhile(matcher.accept, [tail])
        self._trust.note(request, drafted, range(num_certain, len(drafted)))
        has_ended = bool(drafted) and drafted[-1] in self._vocabulary.stop_token_ids
        if len(drafted) < limit and not has_ended:
            drafted += takewhile(matcher.accept, self._find_stop(matcher))
        return drafted, num_certain


class StopFinder:
    """Finds the end of a text whose grammar allows nothing but to end."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._stop_token_id = vocabulary.stop_token_ids[0]
        self._scratch = np.zeros((1, vocabulary.num_words), np.int32)
        self._stop_row = np.zeros(vocabulary.num_words, np.uint32)
        for token_id in vocabulary.stop_token_ids:
            self._stop_row[token_id // 32] |= np.uint32(1 << token_id % 32)

    def __call__(self, matcher: Matcher) -> Sequence[int]:
        """A stop token where stop tokens alone are allowed; the matcher is left where it was."""
        if not matcher.accept(self._stop_token_id):
            return ()
        matcher.rollback(1)
        matcher.fill(self._scratch, 0)
        only_stops = not np.any(self._scratch[0].view(np.uint32) & ~self._stop_row)
        return (self._stop_token_id,) if only_stops else ()


def take_certain(
    scheduled: ScheduledRequest, matcher: Matcher, limit: int, stop_token_ids: Collection[int]
) -> list[int]:
    """At most `limit` tokens behind the last one that the masks leave no choice about.

    Behind a stop token there are none. The matcher is advanced by them if guesses may follow, else
    left where it was. Where the last token is still on its way it has to be certain too, and all
    between the matcher and it.
    """
    if scheduled.may_guess:
        tokens = up_to_stop(matcher.forced_tokens(limit), stop_token_ids)
        return list(takewhile(matcher.accept, tokens))
    num_unseen = count_unseen(scheduled)
    tokens = matcher.forced_tokens(limit + num_unseen)
    return [*up_to_stop(tokens, stop_token_ids)][num_unseen:]


def up_to_stop(token_ids: Sequence[int], stop_token_ids: Collection[int]) -> Sequence[int]:
    """The tokens up to the first that ends the text, that one included."""
    ends = (place for place, token_id in enumerate(token_ids, 1) if token_id in stop_token_ids)
    return token_ids[: next(ends, len(token_ids))]


def find_spelled(
    matcher: Matcher, context: Sequence[int], vocabulary: Vocabulary, limit: int
) -> tuple[list[int], int | None]:
    """The tokens of a matcher's forced text, spelled as it would follow the context, and its tail.

    The masks leave a choice of tokens here: all are guesses. The tail is the token that the text
    ends with, which may merge with what comes next; None where `limit` has cut it off.
    """
    if limit <= 0:
        return [], None
    text = _forced_text(matcher, vocabulary, limit)
    spelled = spell(text, context, vocabulary, limit + 1)
    if not spelled or len(spelled) > limit:
        return spelled[:limit], None
    return spelled[:-1], spelled[-1]


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
