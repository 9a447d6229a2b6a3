"""One way to the end of a text, token by token, as its matcher takes them.

forced        what the grammar leaves no choice about is taken
in a string   the quote that closes it, as soon as it may stand; else more text
in free text  a text of which it is known that it ends some
elsewhere     what closes, before what is short, before what opens
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.ending_hints import Hints
from structspec.ending_tokens import EndingTokens
from structspec.grammars.scouts import Scout

CLOSERS = (b"}", b"]")
EAGER = {b")": 8, b">": 4}  # what closes in grammars other than JSON's may stand several times
_SCALARS = (b"null", b"n", b"0", b"1", b"true", b"t", b"false", b"f", b"-")
_OPENERS = (b"[", b"{")
_AT_A_VALUE = (*CLOSERS, *_SCALARS, b'"', *_OPENERS, b" ")
_ELSEWHERE = (*CLOSERS, b'"', b",", b":", *_OPENERS)
_LETTERS = b"ZqKx"  # no structure of JSON has any of them
# What a pattern may wait for is tried before what it may go on with for ever.
_PRINTABLE = (
    b"@-/:._+=#%&;!?$*~^|>)'`, 0123456789TZ(<abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSUVWXY"
)
_PRINTABLE += b"\n}]{[\\"
_SINGLES = tuple(bytes([byte]) for byte in _PRINTABLE)
_DIGITS = tuple(bytes([byte]) for byte in b"9510234678")
_MOST_FORCED = 32
_MOST_SPELLED = 8  # tokens or bytes that one token may spell
_MOST_LETTERS = 256  # tokens whose text is looked at behind its last quote


@dataclass(slots=True)
class Effort:
    """How often a search may go on; a count, so that what is found is the same on any machine."""

    num_steps: int


class Way:
    """Tokens that a matcher has taken; whoever walks on takes them back.

    It `is_bold` where what is known to stand somewhere is written before what closes.
    """

    def __init__(
        self,
        tokens: EndingTokens,
        hints: Hints,
        matcher: Scout,
        last: bytes,
        uses: Counter[bytes],
        *,
        is_bold: bool = False,
    ) -> None:
        """`last` is the text's last byte that is no blank; `uses` of characters are counted on."""
        self.path: list[int] = []
        self.last = last
        self.uses = uses
        self._tokens = tokens
        self._stop_token_ids = tokens.vocabulary.stop_token_ids
        self._hints = hints
        self._matcher = matcher
        self._is_bold = is_bold
        self._before = last
        self._num_vain = 0  # quotes in a row that ended nothing

    @property
    def may_end(self) -> bool:
        """Whether the text may end here."""
        return _takes_one(self._matcher, self._stop_token_ids)

    def go_on(self, limit: int) -> bool:
        """Take the next tokens, of those that are forced `limit` + 1 at most; False if none can."""
        num_before = len(self.path)
        self.path += self._matcher.take_forced(min(limit + 1, _MOST_FORCED))
        if len(self.path) == num_before:
            self._choose()
        else:
            self._num_vain = 0
        self.last = last_byte(self._tokens, self.path[num_before:], self.last)
        return len(self.path) > num_before

    def _choose(self) -> None:
        """Take one of several tokens, or what spells a text that is known."""
        if is_free(self._tokens, self._matcher):
            if self._is_bold and self._take_rest():
                return
            # a mark is more than a quote, but where nothing is JSON
            ways = (self._take_quote, self._take_mark)
            if any(take() for take in (ways[::-1] if self._hints.literals else ways)):
                return
        else:
            self._num_vain = 0
            # a colon in a string is not one in front of a value
            if self._take_rest(is_begun=True) or any(map(self._take, self._order())):
                return
        if not self._take_rest():
            self._take_any()

    def _order(self) -> Iterator[bytes]:
        if self._is_bold and self._hints.literals:
            yield from CLOSERS
            return
        if self.last in (b":", b"[", b","):
            yield from _AT_A_VALUE
            return
        for text in _ELSEWHERE:
            if text == b"," and self._is_laid_out:
                yield b"\n"  # in front of a bracket
            yield text

    @property
    def _is_laid_out(self) -> bool:
        """Whether lines are broken here where no blank may stand."""
        found = [_takes_one(self._matcher, self._tokens.ids(text)) for text in (b"\n", b",", b" ")]
        return found == [True, True, False]

    def _take_quote(self) -> bool:
        """A quote, unless one did not close anything just now."""
        if self._num_vain or not self._take(b'"'):
            return False
        self._num_vain += 1
        return True

    def _take_mark(self) -> bool:
        """A text that is known, if it leads out of free text."""
        for mark in (*self._hints.marks, *self._hints.literals):
            num_before = len(self.path)
            if not self._spell(mark):
                continue
            is_out = not is_free(self._tokens, self._matcher)
            if is_out or self.may_end or (not self._num_vain and self._may_take(b'"')):
                return True
            self._take_back(num_before)
        return False

    def _take_rest(self, *, is_begun: bool = False) -> bool:
        """What is left of a word that begins as the text behind the last quote does."""
        _, quote, begun = self._text().rpartition(b'"')
        if is_begun and not begun:
            return False
        words = [word for word in self._hints.words if quote and word.startswith(begun)]
        if self._is_bold:
            words.sort(key=self.uses.__getitem__)
            return any(self._spell(word[len(begun) :], word) for word in words)
        for word in words:
            rest = word[len(begun) :]
            if any(self._take(rest[:length]) for length in _lengths(rest)):
                return True
        return False

    def _take_any(self) -> bool:
        """A character or a literal that was seldom taken, or the shortest token there is."""
        texts = [*self._hints.literals, *_SINGLES] if self._is_bold else [*_SINGLES]
        texts.sort(key=lambda text: self.uses[text] - EAGER.get(text, 0))
        if self._may_take(b"e") and not self._may_take(b"z"):  # a number that is too small yet
            texts = [*_DIGITS, *texts]
        return any(map(self._spell, texts)) or self._take_shortest()

    def _take_shortest(self) -> bool:
        bitmask = allocate_bitmask(1, self._tokens.vocab_size)
        self._matcher.fill(bitmask, 0)
        allowed = unpack_row(bitmask[0], self._tokens.vocab_size)
        allowed[[*self._stop_token_ids]] = False
        found, bytes_of = np.flatnonzero(allowed).tolist(), self._tokens.bytes_of
        found.sort(key=lambda token_id: (len(bytes_of(token_id)), token_id))
        return any(map(self._accept, found[:1]))

    def _text(self) -> bytes:
        """The end of what was written, as far as words may reach."""
        before = self._before if len(self.path) < _MOST_LETTERS else b""
        return before + b"".join(map(self._tokens.bytes_of, self.path[-_MOST_LETTERS:]))

    def _spell(self, text: bytes, use: bytes | None = None) -> bool:
        """Take all of a text, in tokens as long as may be, or nothing."""
        num_before, rest = len(self.path), text
        while rest:
            length = next((n for n in _lengths(rest) if self._take(rest[:n])), 0)
            if not length:
                self._take_back(num_before)
                return False
            rest = rest[length:]
        self.uses[use or text] += 1
        return True

    def _take_back(self, num_kept: int) -> None:
        self._matcher.rollback(len(self.path) - num_kept)
        del self.path[num_kept:]

    def _take(self, text: bytes) -> bool:
        """Take a token that spells this text."""
        return any(map(self._accept, self._tokens.ids(text)))

    def _may_take(self, text: bytes) -> bool:
        return _takes_one(self._matcher, self._tokens.ids(text))

    def _accept(self, token_id: int) -> bool:
        is_taken = self._matcher.accept(token_id)
        if is_taken:
            self.path.append(token_id)
        return is_taken


def is_free(tokens: EndingTokens, matcher: Scout) -> bool:
    """Whether it stands in text where brackets and letters are all the same."""
    letters = [ids for letter in _LETTERS if (ids := tokens.ids(bytes([letter])))]
    wanted = [*letters[:2], tokens.ids(CLOSERS[0])]
    return bool(letters) and all(_takes_one(matcher, ids) for ids in wanted)


def last_byte(tokens: EndingTokens, token_ids: Sequence[int], before: bytes) -> bytes:
    """The last byte of a text that ends with these tokens, blanks left out."""
    return b"".join(map(tokens.bytes_of, token_ids)).strip()[-1:] or before


def _takes_one(matcher: Scout, token_ids: Sequence[int]) -> bool:
    """Whether some of these may stand here."""
    for token_id in token_ids:
        if matcher.accept(token_id):
            matcher.rollback(1)
            return True
    return False


def _lengths(text: bytes) -> range:
    return range(min(len(text), _MOST_SPELLED), 0, -1)
