"""A short way to the end of a text, found by asking its matcher and nobody else.

forced      what the grammar leaves no choice about is taken
in a string the quote that closes it, as soon as it may stand; else more text
elsewhere   what closes, before what is short, before what opens

It need not be the shortest way there is, but it is one: its tokens were all taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.ending_tokens import EndingTokens
from structspec.grammars.base import Matcher, MatcherFailed

Ending = tuple[int, ...]  # tokens, without the stop token behind them

_CLOSERS = (b"}", b"]")
_SCALARS = (b"null", b"n", b"0", b"1", b"true", b"t", b"false", b"f", b"-")
_OPENERS = (b"[", b"{")
_AT_A_VALUE = (*_CLOSERS, *_SCALARS, b'"', *_OPENERS)
_ELSEWHERE = (*_CLOSERS, b'"', b",", b":", *_OPENERS)
_LETTERS = b"ZqKx"  # no structure of JSON has any of them
# What a pattern may wait for is tried before what it may go on with for ever.
_PRINTABLE = (
    b"@-/:._+=#%&;!?$*~^|<>()'`, 0123456789TZabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSUVWXY"
)
_PRINTABLE += b"\n}]{[\\"
_DIGITS = (b"9", b"5", b"1", b"0")
_EAGER = {b")": 8, b">": 4}  # what closes in grammars other than JSON's may stand several times
_MOST_FORCED = 32
_MOST_MERGED = 8  # tokens that one may spell


@dataclass(slots=True)
class Closers:
    """Endings behind tokens that close one JSON string, as far as they are known.

    What comes behind hangs on nothing in the string, so its places share them. Once `most` is
    known every token that was allowed leaves an ending of so many tokens at most.
    """

    endings: dict[int, Ending | None] = field(default_factory=dict)
    most: int | None = None


class Place(NamedTuple):
    """What is known of the end at one place of a text."""

    ending: Ending | None
    last: bytes  # of the text, blanks left out; empty where that is not known
    closers: Closers


class EndingSearch:
    """Finds ends for matchers of one vocabulary; a matcher is left where it was."""

    def __init__(self, tokens: EndingTokens, words: Sequence[bytes] = ()) -> None:
        """Of several strings those that begin as these `words` are tried first: required keys."""
        self.tokens = tokens
        self._words = words
        self._stops = tokens.vocabulary.stop_token_ids

    def find(self, matcher: Matcher, limit: int, last: bytes = b"") -> Ending | None:
        """Tokens that end the text, at most `limit`; None where none such were found.

        What its `last` byte is that is no blank, if that is known, may make for a shorter way.
        """
        found = self._find(matcher, _MOST_MERGED + 2 * limit, last)  # merged it is shorter
        if found is None:
            return None
        shorter = self._merged(matcher, found)
        return shorter if len(shorter) <= limit else None

    def holds(self, matcher: Matcher, ending: Sequence[int]) -> bool:
        """Whether these tokens end the text here."""
        num_taken = 0
        try:
            for token_id in ending:
                if not matcher.accept(token_id):
                    return False
                num_taken += 1
            return self._may_end(matcher)
        finally:
            matcher.rollback(num_taken)

    def keep(self, matcher: Matcher, ending: Ending, token_id: int) -> Ending | None:
        """The ending, or what is left of it, behind a token that the matcher has just taken.

        None where that does not end the text.
        """
        if ending[:1] == (token_id,):
            return ending[1:]
        if token_id in self._stops:
            return ()
        rest = self._behind(ending, self.tokens.bytes_of(token_id))
        if rest is not None and self.holds(matcher, rest):
            return rest
        return ending if self.holds(matcher, ending) else None

    def last_byte(self, token_ids: Sequence[int], before: bytes) -> bytes:
        """The last byte of a text that ends with these tokens, blanks left out."""
        return b"".join(map(self.tokens.bytes_of, token_ids)).strip()[-1:] or before

    def _find(self, matcher: Matcher, limit: int, last: bytes) -> Ending | None:
        path: list[int] = []
        uses: Counter[bytes] = Counter()
        try:
            while not self._may_end(matcher):
                new = self._next(matcher, path, last, uses, limit - len(path))
                path += new
                if not new or len(path) > limit:
                    return None
                last = self.last_byte(new, last)
            return tuple(path)
        except MatcherFailed:
            return None
        finally:
            matcher.rollback(len(path))

    def _merged(self, matcher: Matcher, ending: Ending) -> Ending:
        """The same text in longer tokens, where the matcher takes them; special ones stay."""
        path: list[int] = []
        rest = ending
        while rest:
            longer = self._longest(matcher, rest)
            if longer is None and not matcher.accept(rest[0]):
                break
            token_id, rest = longer or (rest[0], rest[1:])
            path.append(token_id)
        is_whole = not rest and self._may_end(matcher)
        matcher.rollback(len(path))
        return tuple(path) if is_whole else ending

    def _longest(self, matcher: Matcher, ending: Ending) -> tuple[int, Ending] | None:
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

    def _behind(self, ending: Ending, text: bytes) -> Ending | None:
        """The tokens behind those of an ending that spell a text, if some do."""
        for place, token_id in enumerate(ending):
            part = self.tokens.bytes_of(token_id)
            if not part or not text.startswith(part):
                return None
            text = text[len(part) :]
            if not text:
                return ending[place + 1 :]
        return None

    def is_free(self, matcher: Matcher) -> bool:
        """Whether it stands in text where brackets and letters are all the same."""
        letters = [bytes([letter]) for letter in _LETTERS if self.tokens.ids(bytes([letter]))]
        wanted = [*letters[:2], *_CLOSERS[:1]]
        return bool(letters) and all(self._takes(matcher, text) for text in wanted)

    def _next(
        self,
        matcher: Matcher,
        path: Sequence[int],
        last: bytes,
        uses: Counter[bytes],
        limit: int,
    ) -> list[int]:
        """The next tokens of a way, which the matcher has taken; none where there is no way on."""
        forced = matcher.forced_tokens(min(limit + 1, _MOST_FORCED))
        taken = []
        for token_id in forced:
            if token_id in self._stops or not matcher.accept(token_id):
                break
            taken.append(token_id)
        if taken:
            return taken
        if self.is_free(matcher):
            order: Iterable[bytes] = (b'"',)
        else:
            order = _AT_A_VALUE if last in (b":", b"[", b",") else _ELSEWHERE
        for text in order:
            if (found := self._take(matcher, text)) is not None:
                return [found]
        return self._any(matcher, path, uses)

    def _any(self, matcher: Matcher, path: Sequence[int], uses: Counter[bytes]) -> list[int]:
        """One of the tokens that its mask allows.

        One that goes on with a word, or a character seldom used, or the shortest.
        """
        bitmask = allocate_bitmask(1, self.tokens.vocab_size)
        matcher.fill(bitmask, 0)
        allowed = unpack_row(bitmask[0], self.tokens.vocab_size)
        allowed[[*self._stops]] = False
        for rest in self._rests(path):
            for length in range(min(len(rest), _MOST_MERGED), 0, -1):
                for token_id in self.tokens.ids(rest[:length]):
                    if allowed[token_id] and matcher.accept(token_id):
                        return [token_id]
        singles = sorted(_SINGLES, key=lambda text: uses[text] - _EAGER.get(text, 0))
        if self._is_number(allowed):  # one that is too small yet
            singles = [*_DIGITS, *singles]
        for text in singles:
            for token_id in self.tokens.ids(text):
                if allowed[token_id] and matcher.accept(token_id):
                    uses[text] += 1
                    return [token_id]
        found = np.flatnonzero(allowed).tolist()
        if not found:
            return []
        shortest = min(found, key=lambda token_id: (len(self.tokens.bytes_of(token_id)), token_id))
        return [shortest] if matcher.accept(shortest) else []

    def _is_number(self, allowed: NDArray[np.bool_]) -> bool:
        """Whether what is allowed goes on with a number."""
        in_number, others = (
            any(allowed[token_id] for token_id in self.tokens.ids(text)) for text in (b"e", b"z")
        )
        return in_number and not others

    def _rests(self, path: Sequence[int]) -> Iterable[bytes]:
        """What is left of words that begin as the text behind the last quote does."""
        _, quote, begun = b"".join(map(self.tokens.bytes_of, path)).rpartition(b'"')
        if quote:
            length = len(begun)
            return [word[length:] for word in self._words if word.startswith(begun)]
        return []

    def _take(self, matcher: Matcher, text: bytes) -> int | None:
        """Move by a token that spells this text."""
        return next((i for i in self.tokens.ids(text) if matcher.accept(i)), None)

    def _takes(self, matcher: Matcher, text: bytes) -> bool:
        if self._take(matcher, text) is None:
            return False
        matcher.rollback(1)
        return True

    def _may_end(self, matcher: Matcher) -> bool:
        for token_id in self._stops:
            if matcher.accept(token_id):
                matcher.rollback(1)
                return True
        return False


_SINGLES = tuple(bytes([byte]) for byte in _PRINTABLE)
