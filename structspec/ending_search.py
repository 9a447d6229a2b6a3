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
from structspec.grammars.base import MatcherFailed
from structspec.grammars.scouts import Scout

Ending = tuple[int, ...]  # tokens, without the stop token behind them

_CLOSERS = (b"}", b"]")
_SCALARS = (b"null", b"n", b"0", b"1", b"true", b"t", b"false", b"f", b"-")
_OPENERS = (b"[", b"{")
_AT_A_VALUE = (*_CLOSERS, *_SCALARS, b'"', *_OPENERS)
_ELSEWHERE = (*_CLOSERS, b'"', b",", b":", *_OPENERS)
_CLOSED = (*_CLOSERS, b'"', b"0", b"l", b"e")  # what values end with
_LETTERS = b"ZqKx"  # no structure of JSON has any of them
# What a pattern may wait for is tried before what it may go on with for ever.
_PRINTABLE = (
    b"@-/:._+=#%&;!?$*~^|>)'`, 0123456789TZ(<abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSUVWXY"
)
_PRINTABLE += b"\n}]{[\\"
_DIGITS = (b"9", b"5", b"1", b"0")
_EAGER = {b")": 8, b">": 4}  # what closes in grammars other than JSON's may stand several times
_MOST_FORCED = 32
_MOST_WAYS = 128  # that are tried where the first fails
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


class EndingSearch:
    """Finds ends for matchers of one vocabulary; a matcher is left where it was."""

    def __init__(self, tokens: EndingTokens, words: Sequence[bytes] = ()) -> None:
        """Of several strings those that begin as one of these `words` are tried first."""
        self.tokens = tokens
        self._words = words
        self.stop_token_ids = tokens.vocabulary.stop_token_ids

    def find(
        self, matcher: Scout, limit: int, last: bytes = b"", before: Ending = ()
    ) -> Ending | None:
        """Tokens that end the text, at most `limit`; None where none such were found.

        What its `last` byte is that is no blank, if that is known, may make for a shorter way. So
        may the ending `before` the last token for a quicker one: the way may lead back to it.
        """
        found = self._find_merged(matcher, limit, last, before)
        if found is None and limit > 1 and self.is_free(matcher):
            # as it stands it may be a key of more than fits: another one
            return self._behind(matcher, self.tokens.ids(_LETTERS[:1])[:1], limit, before)
        return found

    def find_among(self, matcher: Scout, limit: int, last: bytes = b"") -> Ending | None:
        """The same, with more ways tried where the first fails: all that begin where it guessed."""
        found = self.find(matcher, limit, last) or self._find_merged(matcher, limit, last, (), 4)
        if found is not None:
            return found
        sure: list[int] = []
        try:
            for token_id in self._sure(matcher, limit, last):
                if not matcher.accept(token_id):
                    return None
                sure.append(token_id)
            ways = [
                self._behind(matcher, [token_id], limit - len(sure), ())
                for token_id in np.flatnonzero(self._allowed(matcher))[:_MOST_WAYS].tolist()
            ]
        except MatcherFailed:
            return None
        finally:
            matcher.rollback(len(sure))
        shortest = min((way for way in ways if way is not None), key=len, default=None)
        return None if shortest is None else (*sure, *shortest)

    def _sure(self, matcher: Scout, limit: int, last: bytes) -> list[int]:
        """The first tokens of a way, up to where the next was but a guess."""
        path: list[int] = []
        uses: Counter[bytes] = Counter()
        num_sure = 0
        try:
            while len(path) <= limit and not uses and not self._may_end(matcher):
                num_sure = len(path)
                self._go_on(matcher, path, last, uses, limit - num_sure)
                if len(path) == num_sure:
                    break
                last = self.last_byte(path[num_sure:], last)
            return path[:num_sure]
        finally:
            matcher.rollback(len(path))

    def _behind(
        self, matcher: Scout, token_ids: Sequence[int], limit: int, before: Ending
    ) -> Ending | None:
        """A way that begins with these tokens."""
        num_taken = 0
        try:
            for token_id in token_ids:
                if not matcher.accept(token_id):
                    return None
                num_taken += 1
            last = self.last_byte(token_ids, b"")
            rest = self._find_merged(matcher, limit - num_taken, last, before)
            return None if rest is None else (*token_ids, *rest)
        finally:
            matcher.rollback(num_taken)

    def _find_merged(
        self, matcher: Scout, limit: int, last: bytes, before: Ending, num_merged: int = 2
    ) -> Ending | None:
        """A way of at most `limit` tokens, each of them for `num_merged` that are found at most."""
        most = _MOST_MERGED + num_merged * limit
        uses: Counter[bytes] = Counter()
        found = self._find(matcher, most, last, before, uses)
        if found is None and any(uses[text] >= num_eager for text, num_eager in _EAGER.items()):
            uses = Counter({text: -2 * most for text in _EAGER})  # so much has to be closed
            found = self._find(matcher, 2 * most, last, before, uses)
        if found is None:
            return None
        shorter = self._merged(matcher, found)
        return shorter if len(shorter) <= limit else None

    def keep(self, matcher: Scout, ending: Ending, token_id: int) -> Ending | None:
        """The ending, or what is left of it, behind a token that the matcher has just taken.

        None where that does not end the text.
        """
        if ending[:1] == (token_id,):
            return ending[1:]
        if token_id in self.stop_token_ids:
            return ()
        rest = self._left_of(ending, self.tokens.bytes_of(token_id))
        if rest is not None and matcher.ends_with(rest):
            return rest
        if not matcher.ends_with(ending):
            return None
        # behind more digits the one that it begins with need not come
        return ending[1:] if ending and matcher.ends_with(ending[1:]) else ending

    def closes_a_string(self, ending: Ending) -> bool:
        """Whether an ending begins with a quote."""
        return bool(ending) and self.tokens.bytes_of(ending[0])[:1] == b'"'

    def closes_a_key(self, ending: Ending) -> bool:
        """Whether the string that an ending closes is a key: what follows hangs on what it says."""
        text = b"".join(map(self.tokens.bytes_of, ending[:_MOST_FORCED]))
        return text.partition(b'"')[2].lstrip().startswith(b":")

    def last_byte(self, token_ids: Sequence[int], before: bytes) -> bytes:
        """The last byte of a text that ends with these tokens, blanks left out."""
        return b"".join(map(self.tokens.bytes_of, token_ids)).strip()[-1:] or before

    def _find(
        self, matcher: Scout, limit: int, last: bytes, before: Ending, uses: Counter[bytes]
    ) -> Ending | None:
        path: list[int] = []
        try:
            while not self._may_end(matcher):
                num_before = len(path)
                self._go_on(matcher, path, last, uses, limit - num_before)
                if not num_before < len(path) <= limit:
                    return None
                last = self.last_byte(path[num_before:], last)
                if before and last in _CLOSED and matcher.ends_with(before):
                    return (*path, *before)
            return tuple(path)
        except MatcherFailed:
            return None
        finally:
            matcher.rollback(len(path))

    def _merged(self, matcher: Scout, ending: Ending) -> Ending:
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
            return tuple(path) if self._may_end(matcher) else ending
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

    def _left_of(self, ending: Ending, text: bytes) -> Ending | None:
        """The tokens behind those of an ending that spell a text, if some do."""
        for place, token_id in enumerate(ending):
            part = self.tokens.bytes_of(token_id)
            if not part or not text.startswith(part):
                return None
            text = text[len(part) :]
            if not text:
                return ending[place + 1 :]
        return None

    def is_free(self, matcher: Scout) -> bool:
        """Whether it stands in text where brackets and letters are all the same."""
        letters = [bytes([letter]) for letter in _LETTERS if self.tokens.ids(bytes([letter]))]
        wanted = [*letters[:2], *_CLOSERS[:1]]
        return bool(letters) and all(self._takes(matcher, text) for text in wanted)

    def _go_on(
        self,
        matcher: Scout,
        path: list[int],
        last: bytes,
        uses: Counter[bytes],
        limit: int,
    ) -> None:
        """Add the next tokens of a way, which the matcher has taken; none where no way goes on."""
        num_before = len(path)
        for token_id in matcher.forced_tokens(min(limit + 1, _MOST_FORCED)):
            if token_id in self.stop_token_ids or not matcher.accept(token_id):
                break
            path.append(token_id)
        if len(path) == num_before:
            path += self._chosen(matcher, path, last, uses)

    def _chosen(
        self, matcher: Scout, path: Sequence[int], last: bytes, uses: Counter[bytes]
    ) -> list[int]:
        """The one of several tokens that a way goes on with."""
        if self.is_free(matcher):
            order: Iterable[bytes] = (b'"',)
        else:
            order = _AT_A_VALUE if last in (b":", b"[", b",") else _ELSEWHERE
        for text in order:
            if (found := self._take(matcher, text)) is not None:
                return [found]
        for rest in self._rests(path):
            for length in range(min(len(rest), _MOST_MERGED), 0, -1):
                if (found := self._take(matcher, rest[:length])) is not None:
                    return [found]
        return self._any(matcher, uses)

    def _any(self, matcher: Scout, uses: Counter[bytes]) -> list[int]:
        """One of the tokens that its mask allows: a character seldom used, or the shortest."""
        allowed = self._allowed(matcher)
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

    def _allowed(self, matcher: Scout) -> NDArray[np.bool_]:
        """[vocab_size]: the tokens that go on with the text."""
        bitmask = allocate_bitmask(1, self.tokens.vocab_size)
        matcher.fill(bitmask, 0)
        allowed = unpack_row(bitmask[0], self.tokens.vocab_size)
        allowed[[*self.stop_token_ids]] = False
        return allowed

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

    def _take(self, matcher: Scout, text: bytes) -> int | None:
        """Move by a token that spells this text."""
        return next((i for i in self.tokens.ids(text) if matcher.accept(i)), None)

    def _takes(self, matcher: Scout, text: bytes) -> bool:
        if self._take(matcher, text) is None:
            return False
        matcher.rollback(1)
        return True

    def _may_end(self, matcher: Scout) -> bool:
        for token_id in self.stop_token_ids:
            if matcher.accept(token_id):
                matcher.rollback(1)
                return True
        return False


_SINGLES = tuple(bytes([byte]) for byte in _PRINTABLE)
