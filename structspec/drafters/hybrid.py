"""The default drafter: forced text and prompt lookup take turns, steered by the grammar.

while there are slots left:
    forced text
    else, up to the first token the matcher refuses:
        what followed the last three tokens or more, the last time they occurred
        else a value copied from the prompt's text, and its end
        else what followed the last token or two
    else the stop token if nothing but the end is left
    else stop drafting
roll the matcher back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from structspec.drafters.base import count_slots
from structspec.drafters.copying import TextCopier, closing_text
from structspec.drafters.forced import take_certain, take_forced
from structspec.drafters.ngram import NgramDrafter
from structspec.drafters.spelling import NUM_CONTEXT_TOKENS, spell
from structspec.engine.batch import Batch, Draft, ScheduledRequest, no_draft
from structspec.grammars.base import Matcher, MatcherFailed
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig
from structspec.vocabulary import Vocabulary

_SURE_MATCH = 3  # tokens: a match of so many is better than one of characters


@dataclass(slots=True)
class _OneDraft:
    """One request's draft; the first `num_certain` tokens are all that its grammar allows."""

    token_ids: list[int] = field(default_factory=list)
    is_forced: list[bool] = field(default_factory=list)
    num_certain: int = 0


@dataclass(slots=True)
class _Walk:
    """A draft in the making, its matcher standing behind the last drafted token."""

    request: Request
    matcher: Matcher
    num_slots: int
    max_num_guessed: int
    output: Sequence[int]  # the last tokens before the draft
    draft: _OneDraft

    @property
    def token_ids(self) -> list[int]:
        return self.draft.token_ids

    @property
    def context(self) -> list[int]:
        """The last tokens, drafted ones included."""
        return [*self.output, *self.token_ids][-NUM_CONTEXT_TOKENS:]

    @property
    def num_free(self) -> int:
        """How many tokens may still be drafted."""
        return self.num_slots - len(self.token_ids)

    @property
    def num_guesses(self) -> int:
        """How many of them may be guesses."""
        return min(self.num_free, self.max_num_guessed - self.draft.is_forced.count(False))

    def take(self, token_ids: Sequence[int], *, is_forced: bool) -> int:
        """Draft these tokens up to the first that the matcher refuses; says how many it took."""
        for count, token_id in enumerate(token_ids):
            if not self.matcher.accept(token_id):
                return count
            self.token_ids.append(token_id)
            self.draft.is_forced.append(is_forced)
        return len(token_ids)


class HybridDrafter:
    """Drafts from forced text and prompt lookup; from lookup alone where nothing constrains."""

    def __init__(self, vocabulary: Vocabulary, config: SpeculativeConfig) -> None:
        self._vocabulary = vocabulary
        self._ngram = NgramDrafter(config)
        self._copier = TextCopier(vocabulary)
        self._max_guess_rows = config.max_guess_rows
        self._num_speculative_tokens = config.num_speculative_tokens
        self._scratch = np.zeros((1, vocabulary.num_words), np.int32)
        self._stop_row = np.zeros(vocabulary.num_words, np.uint32)
        for token_id in vocabulary.stop_token_ids:
            self._stop_row[token_id // 32] |= np.uint32(1 << token_id % 32)

    def propose(self, batch: Batch) -> Draft:
        """One-hot drafts, never with a token that the grammar refuses."""
        max_num_guessed = self._max_num_guessed(batch)
        num_hopeful = self._num_hopeful(batch) if max_num_guessed else 0
        if not any(scheduled.num_draft_slots for scheduled in batch.requests):
            return no_draft(len(batch.requests), num_hopeful)
        self._ngram.keep_only(batch)
        self._copier.keep_only(batch)
        drafts = [self._propose_one(one, max_num_guessed) for one in batch.requests]
        return Draft(
            [draft.token_ids for draft in drafts],
            [None] * len(drafts),
            [draft.is_forced for draft in drafts],
            [draft.num_certain for draft in drafts],
            num_hopeful,
        )

    def _max_num_guessed(self, batch: Batch) -> int:
        """How many drafts of one request may be guesses: rows are cheap only up to a number."""
        num_sampled = sum(scheduled.is_sampled for scheduled in batch.requests)
        max_num_rows = self._max_guess_rows // max(1, num_sampled)
        return max(0, min(self._num_speculative_tokens, max_num_rows - 1))

    def _num_hopeful(self, batch: Batch) -> int:
        """How many requests something may be looked up for once their last token is known."""
        return sum(
            scheduled.is_sampled
            and scheduled.allows_guesses
            and scheduled.request.params.speculative
            for scheduled in batch.requests
        )

    def _propose_one(self, scheduled: ScheduledRequest, max_num_guessed: int) -> _OneDraft:
        request, num_slots = scheduled.request, count_slots(scheduled)
        if num_slots <= 0:
            return _OneDraft()
        if request.matcher is None:
            limit = min(num_slots, max_num_guessed) if scheduled.may_guess else 0
            guess = self._until_stop(self._ngram.continue_from(request, (), limit))
            return _OneDraft(guess, [False] * len(guess))
        try:
            return self._propose_constrained(scheduled, request.matcher, num_slots, max_num_guessed)
        except MatcherFailed:  # the request fails when its rows are filled, not the whole step here
            return _OneDraft()

    def _propose_constrained(
        self, scheduled: ScheduledRequest, matcher: Matcher, num_slots: int, max_num_guessed: int
    ) -> _OneDraft:
        request = scheduled.request
        certain = take_certain(scheduled, matcher, num_slots)
        draft = _OneDraft(list(certain), [True] * len(certain), len(certain))
        if not scheduled.may_guess:
            return draft
        output = request.last_output_token_ids(NUM_CONTEXT_TOKENS)
        walk = _Walk(request, matcher, num_slots, max_num_guessed, output, draft)
        self._extend(walk)
        matcher.rollback(len(draft.token_ids))
        return draft

    def _extend(self, walk: _Walk) -> None:
        while walk.num_free > 0:
            num_taken = self._take_forced(walk) or self._guess(walk)
            if num_taken == 0:
                walk.take(self._forced_stop(walk.matcher), is_forced=True)
                return
            if walk.token_ids[-1] in self._vocabulary.stop_token_ids:
                return

    def _take_forced(self, walk: _Walk) -> int:
        taken = take_forced(walk.matcher, walk.context, self._vocabulary, walk.num_free)
        walk.draft.token_ids += taken
        walk.draft.is_forced += [True] * len(taken)
        return len(taken)

    def _guess(self, walk: _Walk) -> int:
        """Draft from prompt lookup, the surest kind first; says how many tokens were taken."""
        return (
            self._look_up(walk, _SURE_MATCH)
            or self._copy_value(walk)
            or self._look_up(walk, min_match=1)
        )

    def _look_up(self, walk: _Walk, min_match: int) -> int:
        guess = self._ngram.continue_from(
            walk.request, walk.token_ids, walk.num_guesses, min_match=min_match
        )
        return walk.take(self._until_stop(guess), is_forced=False)

    def _copy_value(self, walk: _Walk) -> int:
        copied = self._copier.continue_from(walk.request, walk.token_ids, walk.num_guesses)
        if copied is None:
            return 0
        num_taken = walk.take(copied, is_forced=False)
        text = closing_text(walk.matcher, self._vocabulary)
        closing = spell(text, walk.context, self._vocabulary, walk.num_guesses)
        return num_taken + walk.take(closing, is_forced=False)

    def _until_stop(self, token_ids: list[int]) -> list[int]:
        """Nothing is drafted behind a stop token."""
        for index, token_id in enumerate(token_ids):
            if token_id in self._vocabulary.stop_token_ids:
                return token_ids[: index + 1]
        return token_ids

    def _forced_stop(self, matcher: Matcher) -> Sequence[int]:
        """A stop token where the grammar allows nothing else."""
        stop_token_id = self._vocabulary.stop_token_ids[0]
        if not matcher.accept(stop_token_id):
            return ()
        matcher.rollback(1)
        matcher.fill(self._scratch, 0)
        only_stops = not np.any(self._scratch[0].view(np.uint32) & ~self._stop_row)
        return (stop_token_id,) if only_stops else ()
