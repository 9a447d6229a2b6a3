"""Tokens that were drawn without a row: followers look at them, and take those that are allowed.

    {"a": 1, "b": x        of ` "b"`, `: ` and `x` the first two are taken

A token is taken exactly when a row filled in its place would show it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import takewhile

from structspec.grammars.base import Look, Matcher, Move, Seen
from structspec.grammars.drafts import count_taken, first_taken, look_beyond
from structspec.grammars.llguidance_batch import inner_of
from structspec.grammars.llguidance_followers import Follower, Work
from structspec.grammars.llguidance_matcher import LLGuidanceMatcher
from structspec.grammars.llguidance_threads import (
    AT_OTHER,
    AT_STOP,
    FAILED,
    MAX_AHEAD,
    FillThreads,
)
from structspec.grammars.unique_keys import GuardedMatcher

_MANY = 8  # moves that followers are worth asking for: `accept` takes 5 us or so


def take_followed(
    moves: Sequence[Move], threads: FillThreads, kinds: array[int]
) -> list[int | Exception]:
    """Move matchers up to the first token that is refused, by their followers where they have one.

    Says how many each has taken, or what went wrong with it.
    """
    is_worth_asking = len(moves) >= _MANY
    taken: list[int | Exception] = [0] * len(moves)
    followed: list[int] = []
    hoped: list[int] = []
    work = Work()
    for index, (matcher, token_ids) in enumerate(moves):
        inner = matcher if type(matcher) is LLGuidanceMatcher else inner_of(matcher)
        follower = inner.follower
        if follower is None and is_worth_asking:
            follower = inner.ask_for_follower()
        elif follower is not None and follower.is_astray:
            follower = inner.follower_for(len(token_ids))
        if (
            follower is None
            or inner.num_stops
            or (inner is not matcher and _repeats_a_key(matcher, token_ids))
        ):
            taken[index] = count_taken(matcher, token_ids)
            continue
        # noted as taken while all this is at hand: what is refused is taken back
        inner.follow(work, token_ids)
        if inner is not matcher:
            _note_places(matcher, token_ids)
        followed.append(index)
        hoped.append(len(token_ids))
    if not followed:
        return taken
    found, _ = work.do(threads, kinds)
    if found == hoped and len(found) == len(taken):
        return [*found]
    for index, wanted, result in zip(followed, hoped, found, strict=True):
        taken[index] = wanted if wanted == result else _settle(*moves[index], result)
    return taken


def _repeats_a_key(matcher: Matcher, token_ids: Sequence[int]) -> bool:
    return isinstance(matcher, GuardedMatcher) and matcher.places_of(token_ids) is None


def _note_places(matcher: Matcher, token_ids: Sequence[int]) -> None:
    assert isinstance(matcher, GuardedMatcher)
    matcher.note_taken(token_ids)


def _settle(matcher: Matcher, token_ids: Sequence[int], result: int) -> int | Exception:
    """Take back what a follower has not taken, and go on with what is no text.

    That is stop tokens, and names: the library itself is asked for those.
    """
    inner, num_taken = inner_of(matcher), 0 if result == FAILED else result % AT_STOP
    num_left = len(token_ids) - num_taken
    inner.note_refused(num_left)
    matcher.rollback(num_left)
    if result == FAILED:
        inner.drop_follower()
        return count_taken(matcher, token_ids)
    if result >= AT_OTHER:
        more = count_taken(matcher, token_ids[num_taken:])
        return more if isinstance(more, Exception) else num_taken + more
    if result < AT_STOP:
        return num_taken
    stops = [*takewhile(inner.ends_with, token_ids[num_taken:])]
    inner.num_stops += len(stops)
    if isinstance(matcher, GuardedMatcher):
        matcher.note_taken(stops)
    return num_taken + len(stops)


def choose_followed(
    moves: Sequence[Move], threads: FillThreads, kinds: array[int]
) -> list[int | Exception]:
    """Move matchers by the first of some tokens that they take, by their followers if they can.

    Says which it was, len(token_ids) for none of them, or what went wrong with it.
    """
    chosen: list[int | Exception] = [0] * len(moves)
    followed: list[int] = []
    work = Work()
    for index, (matcher, token_ids) in enumerate(moves):
        # a guard knows no more than `accept` of keys that may not come twice
        if type(matcher) is LLGuidanceMatcher and not matcher.num_stops:
            follower = matcher.follower_for(len(token_ids))
            if follower is not None:
                work.choose(follower, matcher.token_ids, token_ids)
                followed.append(index)
                continue
        chosen[index] = first_taken(matcher, token_ids)
    if followed:
        found, _ = work.do(threads, kinds)
        for index, result in zip(followed, found, strict=True):
            chosen[index] = _settle_choice(*moves[index], result)
    return chosen


def _settle_choice(matcher: Matcher, token_ids: Sequence[int], result: int) -> int | Exception:
    inner, index = inner_of(matcher), 0 if result == FAILED else result % AT_STOP
    if result == FAILED:
        inner.drop_follower()
    if result == FAILED or result >= AT_OTHER:
        more = first_taken(matcher, token_ids[index:])
        return more if isinstance(more, Exception) else index + more
    if result >= AT_STOP:
        inner.num_stops += 1
    elif index < len(token_ids):
        inner.note_chosen(token_ids[index])
    return index


def look_followed(
    looks: Sequence[Look], threads: FillThreads, kinds: array[int]
) -> list[Seen | Exception]:
    """Look ahead of matchers, by their followers where they have one."""
    is_worth_asking = len(looks) >= _MANY
    seen: list[Seen | Exception] = []
    followed: list[int] = []
    work = Work()
    for index, look in enumerate(looks):
        follower = _follower_ahead(look, is_worth_asking)
        if follower is None:
            seen.append(look_beyond(look))
            continue
        matcher, guesses, limit = look
        work.look(follower, inner_of(matcher).token_ids, guesses[:limit], limit)
        seen.append(_NOTHING)
        followed.append(index)
    if followed:
        taken, certain = work.do_looks(threads, kinds)
        for index, result, tokens in zip(followed, taken, certain, strict=True):
            seen[index] = _settle_look(looks[index], result, tokens)
    return seen


_NOTHING = Seen(0, [])


def _follower_ahead(look: Look, is_worth_asking: bool) -> Follower | None:
    """The follower that may look so far ahead, if there is one."""
    matcher, guesses, limit = look
    inner = matcher if type(matcher) is LLGuidanceMatcher else inner_of(matcher)
    follower = inner.ask_for_follower() if is_worth_asking else inner.follower
    if follower is None or inner.num_stops or not 0 < limit <= MAX_AHEAD:
        return None
    if inner is not matcher and _repeats_a_key(matcher, guesses):
        return None
    return inner.follower_for(1)


def _settle_look(look: Look, result: int, certain: list[int]) -> Seen | Exception:
    """What a follower has seen; the library itself is asked behind what is no text."""
    if result == FAILED or result >= AT_OTHER:
        if result == FAILED:
            inner_of(look.matcher).drop_follower()
        return look_beyond(look)
    return Seen(result % AT_STOP + result // AT_STOP, certain)
