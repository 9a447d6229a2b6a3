"""Drafts for all requests of a step at once, where there is no time to walk each of them.

guesses     what one lookup for all says comes next, or whatever else knows
look        one call for all: which of them the grammars take, and what is certain behind those
again       both once more behind that, for those with room left
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from structspec.drafters.base import count_unseen
from structspec.drafters.forced import up_to_stop
from structspec.drafters.ngram import NgramDrafter
from structspec.drafters.walk import Walk
from structspec.engine.batch import ScheduledRequest
from structspec.grammars.base import BatchMatching, Look, Seen
from structspec.grammars.drafts import look_each

_SURE_MATCH = 3  # tokens: a match of fewer is one by chance too often
_NUM_ROUNDS = 2

Guess = tuple[str, Sequence[int]]  # who guesses, and what
_Pair = tuple[ScheduledRequest, Walk]


class QuickDrafter:
    """Drafts what is sure or certain: less than walks find, in a small part of their time."""

    def __init__(
        self,
        ngram: NgramDrafter,
        others: Callable[[Walk], Guess | None],
        stop_token_ids: Collection[int],
    ) -> None:
        """`others` guesses for one request what is surer than a lookup, if anything is."""
        self._ngram = ngram
        self._others = others
        self._stop_token_ids = stop_token_ids

    def draft(self, requests: Sequence[ScheduledRequest], walks: Sequence[Walk]) -> None:
        """Draft for those that have room; matchers stay where they are."""
        pairs = [
            (one, walk) for one, walk in zip(requests, walks, strict=True) if walk.num_free > 0
        ]
        for _ in range(_NUM_ROUNDS):
            lengths = [len(walk.token_ids) for _, walk in pairs]
            self._look(pairs, self._guess(pairs))
            pairs = [
                (one, walk)
                for (one, walk), length in zip(pairs, lengths, strict=True)
                # where nothing was found there is nothing new to find
                if one.may_guess and walk.num_guesses > 0 and len(walk.token_ids) > length
            ]
            if not pairs:
                return

    def _guess(self, pairs: Sequence[_Pair]) -> list[Guess]:
        guesses: list[Guess] = [("", ())] * len(pairs)
        asked: list[int] = []
        for index, (scheduled, walk) in enumerate(pairs):
            if not scheduled.may_guess or walk.num_guesses <= 0:
                continue
            other = self._others(walk)
            if other is not None:
                guesses[index] = other
            elif _may_look_up(walk):
                asked.append(index)
        places = [
            (walk.request, walk.token_ids, walk.num_guesses)
            for _, walk in (pairs[index] for index in asked)
        ]
        found = self._ngram.continue_all(places, min_match=_SURE_MATCH)
        for index, token_ids in zip(asked, found, strict=True):
            guesses[index] = "ngram", token_ids
        return [(name, up_to_stop(token_ids, self._stop_token_ids)) for name, token_ids in guesses]

    def _look(self, pairs: Sequence[_Pair], guesses: Sequence[Guess]) -> None:
        groups: dict[BatchMatching | None, list[int]] = {}
        for index, (_, walk) in enumerate(pairs):
            source, token_ids = guesses[index]
            if walk.matcher is None:
                walk.put(source, token_ids, ())
            elif token_ids or not walk.token_ids:  # else all that is certain was found
                groups.setdefault(walk.matching, []).append(index)
        for matching, indices in groups.items():
            looks = [_look(*pairs[index], guesses[index][1]) for index in indices]
            found = look_each(looks) if matching is None else matching.look_ahead(looks)
            for index, seen in zip(indices, found, strict=True):
                self._put(*pairs[index], guesses[index], seen)

    def _put(
        self, scheduled: ScheduledRequest, walk: Walk, guess: Guess, seen: Seen | Exception
    ) -> None:
        if isinstance(seen, Exception):  # its request fails when its rows are filled
            walk.num_slots = 0
            return
        num_taken = seen.num_taken - len(walk.token_ids)
        if num_taken < 0:  # of what was certain before: what is certain now stands elsewhere
            return
        source, guesses = guess[0], guess[1][:num_taken]
        certain: Sequence[int] = ()
        has_ended = bool(guesses) and guesses[-1] in self._stop_token_ids
        if _may_force(walk) and not has_ended:
            certain = up_to_stop(seen.certain, self._stop_token_ids)
        if not scheduled.may_guess:  # those before may still be on their way
            certain = certain[count_unseen(scheduled) :]
        walk.put(source, guesses, certain)


def _look(scheduled: ScheduledRequest, walk: Walk, guesses: Sequence[int]) -> Look:
    assert walk.matcher is not None
    known = [*walk.token_ids, *guesses]
    limit = walk.num_slots + count_unseen(scheduled) if _may_force(walk) else len(known)
    return Look(walk.matcher.inner, known, limit)


def _may_look_up(walk: Walk) -> bool:
    """Free text is not looked up behind what is drafted already: more would seldom hold."""
    is_behind = walk.matcher is None and bool(walk.token_ids)
    return "ngram" in walk.request.params.speculation.chain and not is_behind


def _may_force(walk: Walk) -> bool:
    return "forced" in walk.request.params.speculation.chain
