"""Followers: matchers of llguidance's C interface that are moved and fill rows in parallel.

A follower is shown its request's tokens when something is wanted of it, and not before: so a
step's tokens are taken on the threads that fill.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from structspec.grammars.llguidance_native import NativeMatcher
from structspec.grammars.llguidance_threads import LINE, MAX_LINES, FillThreads

_LOOKS_PER_THREAD = 8  # tokens: to look at one takes 5 to 20 us, to wake a thread about as much


class Follower:
    """A matcher that is moved behind a request's tokens when something is wanted.

    As in `LLGuidanceMatcher`, a mask the library has kept may be taken for that of another branch:
    once the text has left that of the last row and goes on, another one has to take its place.
    """

    __slots__ = (
        "cycles",
        "handle",
        "is_astray",
        "library",
        "num_filled",
        "num_taken",
        "num_undone",
        "num_uses",
    )

    def __init__(self, library: NativeMatcher) -> None:
        self.library = library
        self.handle = library.handle
        self.num_uses = 0
        self.begin()

    def begin(self) -> None:
        """Stand at the start of another text, as the library's matcher does now."""
        self.num_uses += 1
        self.cycles = 0  # that its last row took: the next is often as dear
        self.num_taken = self.num_undone = self.num_filled = 0  # tokens
        self.is_astray = False

    def has_row_at(self, num_tokens: int) -> bool:
        """Whether the last row it filled is that behind so many tokens."""
        return self.num_filled == self.num_taken == num_tokens and not self.is_astray

    def note_rollback(self, num_tokens: int) -> None:
        """The text has been cut to so many tokens."""
        if num_tokens < self.num_taken:
            self.num_undone += self.num_taken - num_tokens
            self.num_taken = num_tokens
        self.is_astray |= num_tokens < self.num_filled


class Work:
    """What followers are to do in one call of the threads; to be done before all else.

    It is written down in numbers, since what an engine's step does for each of its requests in
    Python keeps all of them waiting.
    """

    __slots__ = ("_lines", "_num_looked_at", "_tokens")

    def __init__(self) -> None:
        self._lines: list[int] = []
        self._tokens: list[int] = []
        self._num_looked_at = 0  # tokens

    def add(
        self, follower: Follower, token_ids: list[int], new: Sequence[int] = (), row: int = 0
    ) -> None:
        """Move it behind the text's tokens, look at new ones, and fill the row at this address.

        The new ones count as taken.
        """
        num_tokens, num_new = len(token_ids), len(new)
        num_known = num_tokens - follower.num_taken
        tokens, num_undone = self._tokens, follower.num_undone
        self._lines += follower.handle, row, num_undone, len(tokens), num_known, num_new, 0
        if num_known:
            tokens += token_ids[-num_known:]
        if num_undone:
            follower.num_undone = 0
        tokens += new
        self._num_looked_at += num_new
        follower.num_taken = num_tokens + num_new

    def choose(self, follower: Follower, token_ids: list[int], some: Sequence[int]) -> None:
        """Move it behind the text's tokens, and by one of these, which does not count as taken."""
        self.add(follower, token_ids, some)
        self._lines[-2] = -len(some)
        follower.num_taken = len(token_ids)

    def look(
        self, follower: Follower, token_ids: list[int], guesses: Sequence[int], limit: int
    ) -> None:
        """Move it behind the text's tokens, and look so far ahead from there."""
        self.add(follower, token_ids, guesses)
        self._lines[-1] = limit
        self._num_looked_at += limit - len(guesses)
        follower.num_taken = len(token_ids)

    def do(
        self,
        threads: FillThreads,
        kinds: array[int],
        row_bytes: int = 0,
    ) -> tuple[list[int], list[int]]:
        """Do it; for each what came of its new tokens, and its cycles."""
        lines, tokens = array("q", self._lines), array("i", self._tokens)
        max_woken = self._max_woken(has_rows=row_bytes > 0)
        if len(lines) <= LINE * MAX_LINES:
            return threads.do(lines, tokens, kinds, row_bytes, max_woken)
        taken: list[int] = []
        cycles: list[int] = []
        for start in range(0, len(lines), LINE * MAX_LINES):
            some = lines[start : start + LINE * MAX_LINES]
            more = threads.do(some, tokens, kinds, row_bytes, max_woken)
            taken += more[0]
            cycles += more[1]
        return taken, cycles

    def do_looks(
        self, threads: FillThreads, kinds: array[int]
    ) -> tuple[list[int], list[list[int]]]:
        """Do what only looks ahead; what came of the guesses, and what is certain behind them."""
        tokens = array("i", self._tokens)
        taken: list[int] = []
        certain: list[list[int]] = []
        for start in range(0, len(self._lines), LINE * MAX_LINES):
            lines = array("q", self._lines[start : start + LINE * MAX_LINES])
            more = threads.look(lines, tokens, kinds, self._max_woken())
            taken += more[0]
            certain += more[1]
        return taken, certain

    def _max_woken(self, *, has_rows: bool = False) -> int:
        """How many threads are worth waking: one for each row, or for some tokens to look at."""
        num_others = len(self._lines) // LINE - 1
        if has_rows:
            return num_others
        return min(num_others, max(0, self._num_looked_at - 1) // _LOOKS_PER_THREAD)
