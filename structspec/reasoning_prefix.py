"""What a family writes before an answer, in front of the matcher that sees the answer alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.grammars.base import Bitmask, Matcher, Row
from structspec.grammars.drafts import fill_stop_row
from structspec.grammars.wrapping import WrappedMatcher


@dataclass(frozen=True, slots=True)
class AnswerPrefix:
    """Puts the same tokens in front of all that a matcher allows."""

    token_ids: Sequence[int]

    def around(self, matcher: Matcher) -> Matcher:
        """A matcher at the start of these tokens."""
        return PrefixedMatcher(matcher, self.token_ids) if self.token_ids else matcher

    def widen(self, row: Row | None) -> Row | None:
        """None: these tokens may be any."""
        return None if self.token_ids else row


class PrefixedMatcher(WrappedMatcher):
    """Allows certain tokens one after the other, then what the matcher inside does."""

    __slots__ = ("_num_inside", "_place", "_token_ids")

    def __init__(self, inner: Matcher, token_ids: Sequence[int]) -> None:
        super().__init__(inner)
        self._token_ids = token_ids
        self._place = 0
        self._num_inside = 0

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        if self._left:
            fill_stop_row(bitmask, row, (self._left[0],))
        else:
            self.inner.fill(bitmask, row, budget)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        if not self._left:
            is_taken = self.inner.accept(token_id)
            self._num_inside += is_taken
            return is_taken
        is_next = token_id == self._left[0]
        self._place += is_next
        return is_next

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        num_inside = min(num_tokens, self._num_inside)
        self.inner.rollback(num_inside)
        self._num_inside -= num_inside
        self._place -= num_tokens - num_inside

    def forced(self, limit: int) -> bytes:
        """The text that every valid continuation starts with; none while a prefix is to come."""
        return b"" if self._left else self.inner.forced(limit)

    def forced_tokens(self, limit: int) -> list[int]:
        """What is left of the prefix, and what the matcher inside forces behind it."""
        left = [*self._left[:limit]]
        num_free = limit - len(left)
        return left + self.inner.forced_tokens(num_free) if num_free else left

    def tokens_to_end(self) -> int | None:
        """The fewest tokens to a valid end, the prefix among them."""
        num_inside = self.inner.tokens_to_end()
        return None if num_inside is None else len(self._left) + num_inside

    @property
    def _left(self) -> Sequence[int]:
        return self._token_ids[self._place :]
