"""Tokens that were drawn without a row: followers look at them, and take those that are allowed.

    {"a": 1, "b": x        of ` "b"`, `: ` and `x` the first two are taken

A token is taken exactly when a row filled in its place would show it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import takewhile

from structspec.grammars.base import Matcher, Move
from structspec.grammars.drafts import count_taken
from structspec.grammars.llguidance_batch import MAX_NEW, inner_of
from structspec.grammars.llguidance_followers import Work
from structspec.grammars.llguidance_matcher import LLGuidanceMatcher
from structspec.grammars.llguidance_threads import NO_END, FillThreads
from structspec.grammars.unique_keys import GuardedMatcher

_MANY = 8  # moves that are worth new followers: `accept` takes 5 us or so


def take_followed(
    moves: Sequence[Move], threads: FillThreads, is_text: array[int]
) -> list[int | Exception]:
    """Move matchers up to the first token that is refused, by their followers where they have one.

    Says how many each has taken, or what went wrong with it.
    """
    max_new = MAX_NEW if len(moves) >= _MANY else 0
    taken: list[int | Exception] = [0] * len(moves)
    followed: list[tuple[int, LLGuidanceMatcher]] = []
    work = Work()
    for index, (matcher, token_ids) in enumerate(moves):
        inner = matcher if isinstance(matcher, LLGuidanceMatcher) else inner_of(matcher)
        follower = inner.follower
        if follower is None and max_new:
            follower = inner.new_follower()
            max_new -= follower is not None
        if follower is None or inner.num_stops or _repeats_a_key(matcher, token_ids):
            taken[index] = count_taken(matcher, token_ids)
        else:
            work.add(follower, inner.token_ids, token_ids)
            followed.append((index, inner))
    if not followed:
        return taken
    results = zip(followed, *work.look(threads, is_text), strict=True)
    for (index, inner), status, num_taken, ends in results:
        matcher, token_ids = moves[index]
        if status != 0:
            inner.drop_follower()
            taken[index] = count_taken(matcher, token_ids)
        elif inner is matcher and num_taken == len(token_ids):
            inner.note_followed(token_ids)
            taken[index] = num_taken
        else:
            taken[index] = _note(matcher, inner, token_ids, num_taken, ends)
    return taken


def _repeats_a_key(matcher: Matcher, token_ids: Sequence[int]) -> bool:
    return isinstance(matcher, GuardedMatcher) and matcher.places_of(token_ids) is None


def _note(
    matcher: Matcher,
    inner: LLGuidanceMatcher,
    token_ids: Sequence[int],
    num_followed: int,
    ends: int,
) -> int | Exception:
    """Note what a follower has taken, and go on with stop tokens and names, which are no text."""
    text, rest = token_ids[:num_followed], token_ids[num_followed:]
    inner.note_followed(text)
    if isinstance(matcher, GuardedMatcher):
        matcher.note_taken(text)
    if ends == NO_END:
        return num_followed
    stops = [*takewhile(inner.ends_with, rest)]
    if not stops:
        more = count_taken(matcher, rest)
        return more if isinstance(more, Exception) else num_followed + more
    if not ends:
        return num_followed
    inner.num_stops += len(stops)
    if isinstance(matcher, GuardedMatcher):
        matcher.note_taken(stops)
    return num_followed + len(stops)
