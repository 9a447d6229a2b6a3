"""A short way to the end of a text, found by asking its matcher and nobody else.

It need not be the shortest way there is, but it is one: its tokens were all taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.ending_hints import NO_HINTS, Hints
from structspec.ending_tokens import EndingTokens
from structspec.ending_way import CLOSERS, EAGER, Effort, Way, is_free, last_byte
from structspec.grammars.base import MatcherFailed
from structspec.grammars.scouts import Scout

Ending = tuple[int, ...]  # tokens, without the stop token behind them

_CLOSED = (*CLOSERS, b'"', b"0", b"l", b"e")  # what values end with
_BEHIND_NUMBERS = (b",", b"}", b"]")
_CLOSING = frozenset(b'",]}')
_NUM_BEHIND = 8  # tokens
_MOST_FORCED = 32
_MOST_WAYS = 128  # that are tried where the first fails
_MOST_STEPS = 512  # of one search, beside those for what may be lacking: in vain it takes no longer
_MOST_SKIPPED = 24  # of an ending, where a way goes on as it does
_MOST_MERGED = 8  # tokens that one may spell


@dataclass(slots=True)
class Closers:
    """Endings behind tokens that close one JSON string, as far as they are known.

    What comes behind hangs on nothing in the string, so its places share them. Once `most` is
    known every token that was allowed leaves an ending of so many tokens at most.
    """

    limit: int  # tokens that an ending may have behind the first of those places
    endings: dict[int, Ending | None] = field(default_factory=dict)
    stays: dict[str, bool] = field(default_factory=dict)  # whether tokens of a kind keep the ending
    most: int | None = None


class Place(NamedTuple):
    """What is known of the end at one place of a text."""

    ending: Ending | None
    last: bytes  # of the text, blanks left out; empty where that is not known
    closers: Closers
    is_plain: bool = False  # the last token was whole characters of the string that goes on
    # the string or number that the ending closes has gone on since a matcher was asked: what may
    # follow it may hang on what it says
    is_unsure: bool = False


class EndingSearch:
    """Finds ends for matchers of one vocabulary; a matcher is left where it was."""

    def __init__(self, tokens: EndingTokens, hints: Hints = NO_HINTS, num_lacking: int = 0) -> None:
        """For texts that may lack about so many tokens."""
        self.tokens = tokens
        self._hints = hints
        self._num_lacking = num_lacking
        self.stop_token_ids = tokens.vocabulary.stop_token_ids

    def find(
        self,
        matcher: Scout,
        limit: int,
        last: bytes = b"",
        before: Ending = (),
        *,
        num_skipped: int = 0,
    ) -> Ending | None:
        """Tokens that end the text, at most `limit`; None where none such were found.

        What its `last` byte is that is no blank, if that is known, may make for a shorter way. So
        may the ending `before` the last token, or the last `num_skipped`, for a quicker one: the
        way may lead back to it.
        """
        effort = self._effort()
        found = self._find_merged(matcher, limit, last, before, effort, num_skipped=num_skipped)
        if found is None and limit > 1 and self.is_free(matcher):
            # as it stands it may be a key of more than fits: another one
            return self._behind(matcher, self.tokens.ids(b"Z")[:1], limit, before, effort)
        return found

    def find_among(self, matcher: Scout, limit: int, last: bytes = b"") -> Ending | None:
        """The same, with more ways tried where the first fails: all that begin where it guessed."""
        found = self.find(matcher, limit, last)
        if found is None:
            found = self._find_merged(matcher, limit, last, (), self._effort(), 4)
        if found is None and self._hints != NO_HINTS:
            found = self._find_merged(matcher, limit, last, (), self._effort(), is_bold=True)
        if found is not None:
            return found
        sure: list[int] = []
        effort = self._effort()
        try:
            for token_id in self._sure(matcher, limit, last):
                if not matcher.accept(token_id):
                    return None
                sure.append(token_id)
            ways = [
                self._behind(matcher, [token_id], limit - len(sure), (), effort)
                for token_id in self._first_tokens(matcher)
            ]
        except MatcherFailed:
            return None
        finally:
            matcher.rollback(len(sure))
        shortest = min((way for way in ways if way is not None), key=len, default=None)
        return None if shortest is None else (*sure, *shortest)

    def _effort(self) -> Effort:
        return Effort(_MOST_STEPS + self._num_lacking)

    def _first_tokens(self, matcher: Scout) -> list[int]:
        """Tokens that may come next, stop tokens left out."""
        bitmask = allocate_bitmask(1, self.tokens.vocab_size)
        matcher.fill(bitmask, 0)
        found = np.flatnonzero(unpack_row(bitmask[0], self.tokens.vocab_size)).tolist()
        return [token_id for token_id in found if token_id not in self.stop_token_ids][:_MOST_WAYS]

    def _way(
        self, matcher: Scout, last: bytes, uses: Counter[bytes], *, is_bold: bool = False
    ) -> Way:
        return Way(self.tokens, self._hints, matcher, last, uses, is_bold=is_bold)

    def _sure(self, matcher: Scout, limit: int, last: bytes) -> list[int]:
        """The first tokens of a way, up to where the next was but a guess."""
        way = self._way(matcher, last, Counter())
        num_sure = 0
        try:
            while len(way.path) <= limit and not way.uses and not way.may_end:
                num_sure = len(way.path)
                if not way.go_on(limit - num_sure):
                    break
            return way.path[:num_sure]
        finally:
            matcher.rollback(len(way.path))

    def _behind(
        self,
        matcher: Scout,
        token_ids: Sequence[int],
        limit: int,
        before: Ending,
        effort: Effort,
    ) -> Ending | None:
        """A way that begins with these tokens."""
        num_taken = 0
        try:
            for token_id in token_ids:
                if not matcher.accept(token_id):
                    return None
                num_taken += 1
            last = self.last_byte(token_ids, b"")
            rest = self._find_merged(matcher, limit - num_taken, last, before, effort)
            return None if rest is None else (*token_ids, *rest)
        finally:
            matcher.rollback(num_taken)

    def _find_merged(
        self,
        matcher: Scout,
        limit: int,
        last: bytes,
        before: Ending,
        effort: Effort,
        num_merged: int = 2,
        *,
        is_bold: bool = False,
        num_skipped: int = 0,
    ) -> Ending | None:
        """A way of at most `limit` tokens, each of them for `num_merged` that are found at most."""
        most = _MOST_MERGED + num_merged * limit
        way, tails = self._way(matcher, last, Counter(), is_bold=is_bold), {}
        if before:
            tails = self._tails(before, num_skipped)
        found = self._walk(way, matcher, most, tails, effort)
        if found is None and any(way.uses[text] >= num_eager for text, num_eager in EAGER.items()):
            uses = Counter({text: -2 * most for text in EAGER})  # so much has to be closed
            way = self._way(matcher, last, uses, is_bold=is_bold)
            found = self._walk(way, matcher, 2 * most, tails, effort)
        if found is None:
            return None
        path, rest = found
        # those of the ending before are as long as they can be
        path, rest = (*path, *rest[:_MOST_MERGED]), rest[_MOST_MERGED:]
        shorter = (*self._merged(matcher, path, rest), *rest)
        return shorter if len(shorter) <= limit else None

    def keep_exactly(
        self, ending: Ending, token_ids: Sequence[int], *, by_bytes: bool
    ) -> Ending | None:
        """What is left of an ending that begins with the tokens just taken; None: it does not.

        With `by_bytes` their spelling does not matter, if they end where one of its tokens does:
        what is left of one need not be how a matcher spells what is forced.
        """
        if ending[: len(token_ids)] == (*token_ids,):
            return ending[len(token_ids) :]
        if token_ids[-1] in self.stop_token_ids:
            return ()
        texts = [*map(self.tokens.bytes_of, token_ids)]
        left = self.tokens.left_of(ending, b"".join(texts)) if by_bytes and all(texts) else None
        return left if left is None or _ends_with(ending, left) else None

    def near(self, ending: Ending) -> Ending:
        """The tokens of an ending up to what closes the value where it begins, and some more."""
        closing = (place for place, i in enumerate(ending) if _CLOSING & {*self.tokens.bytes_of(i)})
        return ending[: next(closing, len(ending)) + _NUM_BEHIND]

    def keep_through(self, ending: Ending, token_ids: Sequence[int]) -> Ending | None:
        """What may be left of an ending behind several tokens: to be asked about.

        Strings and numbers that it closes may have gone on.
        """
        for token_id in token_ids:
            left = self.keep_exactly(ending, [token_id], by_bytes=True)
            if left is not None:
                ending = left
            elif not ending:
                return None
            elif self._is_other_scalar(ending, token_id):
                ending = ending[1:]
            elif not self.goes_on(ending, token_id):
                return None
        return ending

    def other_values(self, ending: Ending, token_id: int) -> Iterator[Ending]:
        """Endings behind a token that begins another value than an ending does.

        Whether they stand there is to be asked: the text may be in a string.
        """
        if self._is_other_scalar(ending, token_id):
            yield ending[1:]
            return
        begun = self.tokens.bytes_of(token_id)
        text = b"".join(map(self.tokens.bytes_of, ending[:_MOST_MERGED]))
        first = max(filter(text.startswith, self._hints.words), key=len, default=b"")
        left = self.tokens.left_of(ending, first) if begun and first else None
        # behind another key there is another value
        if left is None or self._begins_with(left, b":"):
            return
        for word in self._hints.words:
            if word.startswith(begun) and (rest := self.tokens.spelled(word[len(begun) :])):
                both = b"".join(map(self.tokens.bytes_of, (rest[-1], *left[:1])))
                if left and (joined := self.tokens.ids(both)):  # as forced text is mostly spelled
                    yield (*rest[:-1], joined[0], *left[1:])
                yield (*rest, *left)

    def _is_other_scalar(self, ending: Ending, token_id: int) -> bool:
        """Whether a token is a number or literal, and an ending begins with all of another."""
        is_scalar = self.tokens.is_scalar
        return (
            len(ending) > 1
            and is_scalar(token_id)
            and is_scalar(ending[0])
            and any(self._begins_with(ending[1:], text) for text in _BEHIND_NUMBERS)
        )

    def _begins_with(self, ending: Ending, text: bytes) -> bool:
        """Blanks left out."""
        begun = b"".join(map(self.tokens.bytes_of, ending[:_MOST_MERGED]))
        return begun.lstrip().startswith(text)

    def keep(self, matcher: Scout, ending: Ending, token_id: int) -> Ending | None:
        """The ending, or what is left of it, behind a token that the matcher has just taken.

        None where that does not end the text.
        """
        if (left := self.keep_exactly(ending, [token_id], by_bytes=False)) is not None:
            return left
        rest = self.tokens.left_of(ending, self.tokens.bytes_of(token_id))
        if rest is not None and self._ends(matcher, rest):
            return rest
        # behind more digits the one that it begins with need not come, or this was in its place
        if ending and self._ends(matcher, ending[1:]):
            return ending[1:]
        return ending if self._ends(matcher, ending) else None

    def _ends(self, matcher: Scout, rest: Ending) -> bool:
        """Whether tokens end the text, and the first is how it is spelled where text is forced.

        It is behind the last digit that fits, for instance. Behind it all is as it was.
        """
        if rest:
            is_taken = matcher.accept(rest[0])
            matcher.rollback(is_taken)
            if not is_taken:
                return False
        return matcher.ends_with(rest)

    def goes_on(self, ending: Ending, token_id: int) -> bool:
        """Whether a token is text of the string, or digits of the number, that an ending closes."""
        if not self.tokens.plain[token_id]:
            return False
        first = self.tokens.bytes_of(ending[0])[:1]
        if first == b'"':
            return not self.closes_a_key(ending)
        return first in _BEHIND_NUMBERS and self.tokens.bytes_of(token_id).isdigit()

    def closes_a_string(self, ending: Ending) -> bool:
        """Whether an ending begins with a quote."""
        return bool(ending) and self.tokens.bytes_of(ending[0])[:1] == b'"'

    def closes_a_key(self, ending: Ending) -> bool:
        """Whether the string that an ending closes is a key: what follows hangs on what it says."""
        text = b"".join(map(self.tokens.bytes_of, ending[:_MOST_FORCED]))
        return text.partition(b'"')[2].lstrip().startswith(b":")

    def last_byte(self, token_ids: Sequence[int], before: bytes) -> bytes:
        """The last byte of a text that ends with these tokens, blanks left out."""
        return last_byte(self.tokens, token_ids, before)

    def is_free(self, matcher: Scout) -> bool:
        """Whether it stands in text where brackets and letters are all the same."""
        return is_free(self.tokens, matcher)

    def _walk(
        self,
        way: Way,
        matcher: Scout,
        limit: int,
        tails: Mapping[bytes, Sequence[Ending]],
        effort: Effort,
    ) -> tuple[Ending, Ending] | None:
        """The tokens of a way, which are taken back, and those of the ending before behind them."""
        path = way.path
        try:
            while not way.may_end:
                effort.num_steps -= 1
                if effort.num_steps < 0 or not way.go_on(limit - len(path)) or len(path) > limit:
                    return None
                for tail in tails.get(way.last, ()):
                    if matcher.ends_with(tail):
                        return tuple(path), tail
            return tuple(path), ()
        except MatcherFailed:
            return None
        finally:
            matcher.rollback(len(path))

    def _tails(self, before: Ending, num_skipped: int) -> dict[bytes, list[Ending]]:
        """The ending before a token, and what of it is behind its first values, by what ends them.

        A way that ends another value goes on as it does.
        """
        tails: dict[bytes, list[Ending]] = {last: [before] for last in _CLOSED}
        for place, token_id in enumerate(before[: _MOST_SKIPPED + num_skipped], 1):
            last = self.tokens.bytes_of(token_id)[-1:]
            if last in tails and place < len(before):
                tails[last].append(before[place:])
        return tails

    def _merged(self, matcher: Scout, ending: Ending, behind: Ending) -> Ending:
        """The same text in longer tokens, where the matcher takes them; special ones stay."""
        path: list[int] = []
        rest = ending
        try:
            while rest:
                longer = self._longest(matcher, rest)
                if longer is None and not matcher.accept(rest[0]):
                    return ending
                token_id, rest = longer or (rest[0], rest[1:])
                path.append(token_id)
            return tuple(path) if matcher.ends_with(behind) else ending
        finally:
            matcher.rollback(len(path))

    def _longest(self, matcher: Scout, ending: Ending) -> tuple[int, Ending] | None:
        """A token that spells several of these, the most that one does, and those behind them."""
        text, ways = b"", []
        for place, token_id in enumerate(ending[:_MOST_MERGED]):
            part = self.tokens.bytes_of(token_id)
            if not part:
                break
            text += part
            if place:
                ways += [(longer, place + 1) for longer in self.tokens.ids(text)]
        for longer, num_spelled in reversed(ways):
            if matcher.accept(longer):
                return longer, ending[num_spelled:]
        return None


def _ends_with(ending: Ending, rest: Ending) -> bool:
    return ending[len(ending) - len(rest) :] == rest
