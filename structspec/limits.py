"""Limits on which tokens a request may write, as a matcher around that of its grammar.

    text tokens   those the matcher inside allows, of allowed_token_ids, that complete no bad word
    stop tokens   where the matcher inside allows the end: the vocabulary's and stop_token_ids;
                  of a request without a constraint only those in allowed_token_ids
    row           the text tokens alone while there are fewer than min_tokens and any is left,
                  else both; DeadEnd if there are none

So min_tokens never leaves a row empty, and a constraint decides where its text may end, whatever
token ends it. Limits hold by masks and are as exact as a grammar, whatever is drafted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import takewhile

import numpy as np

from structspec.grammars.base import Bitmask, DeadEnd, FillJob, Matcher, Row
from structspec.grammars.drafts import fill_stop_row, is_allowed, taken_ahead
from structspec.grammars.wrapping import WrappedMatcher, Wrapper
from structspec.limits_words import FOUND, START, BadWords, TokenIndex
from structspec.request import SamplingParams
from structspec.vocabulary import Vocabulary

_STOP_SHOWN = -2  # in place of a state: a stop token that the matcher inside knows of
_STOP_OWN = -3  # and one that it does not


class Limits:
    """One set of limits for one vocabulary, shared by the requests that have them."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        allowed_token_ids: Iterable[int] | None = None,
        bad_words: BadWords | None = None,
        min_tokens: int = 0,
        stop_token_ids: Sequence[int] = (),
        is_constrained: bool = False,
        ignores_eos: bool = False,
    ) -> None:
        """With `ignores_eos` only `stop_token_ids` end the text, not the vocabulary's."""
        self.bad_words = bad_words
        self.min_tokens = min_tokens
        self.has_own_stops = bool(stop_token_ids)
        own = () if ignores_eos else vocabulary.stop_token_ids
        self.eos_token_ids = vocabulary.stop_token_ids
        self.end_token_ids = tuple(dict.fromkeys((*own, *stop_token_ids)))
        self.is_end = frozenset(self.end_token_ids)
        self.vocab_size = vocabulary.vocab_size
        self._num_words = vocabulary.num_words
        self._has_allowed = allowed_token_ids is not None
        ends_text = any(vocabulary.token_bytes[token_id] for token_id in stop_token_ids)
        self.is_hard = self._has_allowed or bad_words is not None or ends_text
        self._names = [
            name
            for name, is_set in (
                ("allowed_token_ids", self._has_allowed),
                ("bad_words", bad_words is not None),
                ("stop_token_ids", ends_text),
                ("ignore_eos", ignores_eos),
            )
            if is_set
        ]
        allowed = np.full(vocabulary.num_words, -1, np.int32)
        if allowed_token_ids is not None:
            allowed = self._row(allowed_token_ids)
        stops = self._row({*self.eos_token_ids, *self.end_token_ids})
        self.text_row: Row = allowed & ~stops
        self.end_row: Row = self._row(self.end_token_ids)
        if not is_constrained:
            self.end_row &= allowed
        never = -1 if bad_words is None else bad_words.row(START)
        self._wide_row: Row = self.text_row & never | self.end_row

    def around(self, matcher: Matcher) -> LimitedMatcher:
        """A matcher at the start of the text."""
        return LimitedMatcher(matcher, self)

    def widen(self, row: Row | None) -> Row | None:
        """What of these tokens no limit forbids everywhere."""
        if row is None:
            return self._wide_row if self._has_allowed else None
        if not (self._has_allowed or self.has_own_stops):
            return row
        widened: Row = row & self._wide_row | self.end_row
        return widened

    def dead_end(self, num_tokens: int) -> DeadEnd:
        """What to say where nothing is left."""
        return DeadEnd(
            f"{' and '.join(self._names)} leave no token that may follow the first {num_tokens};"
            " allow more, or change the constraint so that its text need not come here"
        )

    def _row(self, token_ids: Iterable[int]) -> Row:
        bitmask = np.zeros((1, self._num_words), np.int32)
        fill_stop_row(bitmask, 0, tuple(token_ids))
        row: Row = bitmask[0]
        return row


class Limiter:
    """Makes the limits of requests for one vocabulary; equal ones once. Thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._make = lru_cache(maxsize=64)(self._make_limits)

    def limit(
        self, params: SamplingParams, wrappers: Sequence[Wrapper] = (), *, is_constrained: bool
    ) -> tuple[Wrapper, ...]:
        """These wrappers of a request with its limits around them, where it has any.

        Their tokens are to be of the vocabulary.
        """
        has_limits = params.allowed_token_ids is not None or params.bad_words or params.min_tokens
        # the end of free text needs no mask, nor do samplers where nothing else judges it
        has_ends = bool(params.stop_token_ids) and (is_constrained or bool(wrappers))
        if not (has_limits or has_ends or (wrappers and params.ignore_eos)):
            return tuple(wrappers)
        limits = self._make(
            params.allowed_token_ids,
            params.bad_words,
            params.min_tokens,
            params.stop_token_ids,
            is_constrained,
            params.ignore_eos and not is_constrained,
        )
        return (*wrappers, limits)

    def _make_limits(
        self,
        allowed_token_ids: tuple[int, ...] | None,
        bad_words: tuple[str, ...],
        min_tokens: int,
        stop_token_ids: tuple[int, ...],
        is_constrained: bool,
        ignores_eos: bool,
    ) -> Limits:
        return Limits(
            self._vocabulary,
            allowed_token_ids=allowed_token_ids,
            bad_words=BadWords(bad_words, self._index, self._vocabulary) if bad_words else None,
            min_tokens=min_tokens,
            stop_token_ids=stop_token_ids,
            is_constrained=is_constrained,
            ignores_eos=ignores_eos,
        )

    @cached_property
    def _index(self) -> TokenIndex:
        return TokenIndex(self._vocabulary)


class LimitedMatcher(WrappedMatcher):
    """What the matcher inside allows, within limits; stop tokens of the request's own end it too.

    Behind a stop token of either kind all of them are allowed, and the matcher inside hears of no
    more.
    """

    __slots__ = ("_limits", "_states")

    def __init__(self, inner: Matcher, limits: Limits) -> None:
        super().__init__(inner)
        self._limits = limits
        self._states = [START]  # for each accepted token: of bad words, or a kind of stop

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens; DeadEnd where the limits leave none."""
        if self._has_ended:
            fill_stop_row(bitmask, row, self._limits.end_token_ids)
            return
        self.inner.fill(bitmask, row, budget)
        self._narrow(bitmask, row, self._states[-1], self._num_tokens)

    def inner_job(self, job: FillJob) -> FillJob | None:
        """The same for the matcher inside, unless the text ends before or among the drafts."""
        if self._has_ended or not self._limits.is_end.isdisjoint(job.draft_token_ids):
            return None
        return FillJob(self.inner, job.first_row, job.draft_token_ids)

    def narrow(self, job: FillJob, bitmask: Bitmask, num_valid: int) -> int:
        """Make limited rows of those inside; how many drafts are taken within the limits."""
        state, num_tokens = self._states[-1], self._num_tokens
        for place in range(num_valid + 1):
            row = job.first_row + place
            try:
                self._narrow(bitmask, row, state, num_tokens + place)
            except DeadEnd:
                if place == 0:
                    raise
                return place
            if place == num_valid or not is_allowed(bitmask, row, job.draft_token_ids[place]):
                num_valid = place
                break
            if self._limits.bad_words is not None:
                state = self._limits.bad_words.after(state, job.draft_token_ids[place])
        return num_valid

    def _narrow(self, bitmask: Bitmask, row: int, state: int, num_tokens: int) -> None:
        limits, words = self._limits, bitmask[row]
        may_end = is_allowed(bitmask, row, limits.eos_token_ids[0])
        words &= limits.text_row
        if limits.bad_words is not None:
            words &= limits.bad_words.row(state)
        if may_end and not (num_tokens < limits.min_tokens and words.any()):
            words |= limits.end_row
        if not words.any():
            fill_stop_row(bitmask, row, limits.end_token_ids or limits.eos_token_ids)
            raise limits.dead_end(num_tokens)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        if not 0 <= token_id < self._limits.vocab_size:
            return False
        if self._has_ended:
            return self._note(_STOP_OWN, token_id in self._limits.is_end)
        if token_id in self._limits.is_end:
            return self._accept_end(token_id)
        if not _holds(self._limits.text_row, token_id):
            return False
        state, bad_words = START, self._limits.bad_words
        if bad_words is not None:
            state = bad_words.after(self._states[-1], token_id)
        return self._note(state, state != FOUND and self.inner.accept(token_id))

    def _accept_end(self, token_id: int) -> bool:
        """End the text, if it may end here."""
        limits = self._limits
        if not _holds(limits.end_row, token_id):
            return False
        is_known = token_id in limits.eos_token_ids
        if not self.inner.accept(token_id if is_known else limits.eos_token_ids[0]):
            return False
        if self._is_short:
            self.inner.rollback(1)
            if self._may_go_on():
                return False
            self.inner.accept(limits.eos_token_ids[0])
        return self._note(_STOP_SHOWN, True)

    def _may_go_on(self) -> bool:
        """Whether any text is left that may stand here."""
        bitmask = np.zeros((1, len(self._limits.text_row)), np.int32)
        self.fill(bitmask, 0)
        return bool(np.any(bitmask[0] & self._limits.text_row))

    def _note(self, state: int, is_accepted: bool) -> bool:
        if is_accepted:
            self._states.append(state)
        return is_accepted

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens, stop tokens included."""
        if not num_tokens:
            return
        num_own = self._states[-num_tokens:].count(_STOP_OWN)
        del self._states[-num_tokens:]
        self.inner.rollback(num_tokens - num_own)

    def forced_tokens(self, limit: int) -> list[int]:
        """What the matcher inside leaves no choice about, as far as the limits allow it.

        Where the request has stop tokens of its own the end is always a choice.
        """
        ends = self._limits.is_end if self._limits.has_own_stops else ()
        forced = takewhile(lambda t: t not in ends, self.inner.forced_tokens(limit))
        return taken_ahead(self, forced)

    def tokens_to_end(self) -> int | None:
        """None while a limit may stand between the matcher inside and its end."""
        return None if self._is_short or self._limits.is_hard else self.inner.tokens_to_end()

    @property
    def _num_tokens(self) -> int:
        return len(self._states) - 1

    @property
    def _has_ended(self) -> bool:
        return self._states[-1] < FOUND

    @property
    def _is_short(self) -> bool:
        return self._num_tokens < self._limits.min_tokens


def _holds(row: Row, token_id: int) -> bool:
    return bool(row.item(token_id >> 5) >> (token_id & 31) & 1)
