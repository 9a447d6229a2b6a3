"""Followers: matchers of llguidance's C interface that are moved and fill rows in parallel.

A follower is shown its request's tokens when something is wanted of it, and not before: so a
step's tokens are taken on the threads that fill.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from structspec.grammars.llguidance_native import NativeMatcher
from structspec.grammars.llguidance_threads import (
    CYCLES,
    ENDS,
    LINE,
    MAX_LINES,
    NUM_TAKEN,
    RESULT,
    STATUS,
    FillThreads,
)


class Follower:
    """A copy of a template that is moved behind a request's tokens when something is wanted.

    As in `LLGuidanceMatcher`, a mask the library has kept may be taken for that of another branch:
    once the text has left that of the last row and goes on, a new copy takes its place.
    """

    __slots__ = (
        "_template",
        "cycles",
        "handle",
        "is_astray",
        "library",
        "num_filled",
        "num_taken",
        "num_undone",
    )

    def __init__(self, template: NativeMatcher) -> None:
        self._template = template
        self.cycles = 0  # that its last row took: the next is often as dear
        self.start()

    def start(self) -> None:
        """Begin again with a new copy."""
        self.library = self._template.copy()
        self.handle = self.library.handle
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

    __slots__ = ("_followers", "_lines", "_tokens")

    def __init__(self) -> None:
        self._followers: list[Follower] = []
        self._lines: list[int] = []
        self._tokens: list[int] = []

    def add(
        self, follower: Follower, token_ids: list[int], new: Sequence[int] = (), row: int = 0
    ) -> None:
        """Move it behind the text's tokens, look at new ones, and fill the row at this address."""
        num_known = len(token_ids) - follower.num_taken
        if follower.is_astray and (new or num_known):
            follower.start()
            num_known = len(token_ids)
        tokens = self._tokens
        first = len(tokens)
        if num_known:
            tokens += token_ids[-num_known:]
        tokens += new
        follower.num_taken += num_known
        self._lines += follower.handle, row, follower.num_undone, first, num_known, len(new)
        follower.num_undone = 0
        self._followers.append(follower)

    def look(self, threads: FillThreads, is_text: array[int]) -> tuple[list[int], ...]:
        """Move all; for each its status, how many new tokens it took, and whether the text may end.

        A status other than 0 is a failure. The last is NO_END unless a token is met that is no text
        and so may be a stop token.
        """
        found = self._do(threads, is_text, 0, len(self._followers) // _LOOKS_PER_THREAD)
        taken = found[NUM_TAKEN::RESULT]
        for follower, num_taken in zip(self._followers, taken, strict=True):
            follower.num_taken += num_taken
        return found[STATUS::RESULT], taken, found[ENDS::RESULT]

    def fill(self, threads: FillThreads, is_text: array[int], row_bytes: int) -> list[int]:
        """Fill all rows, of so many bytes each; a status other than 0 is a failure."""
        found = self._do(threads, is_text, row_bytes, len(self._followers) - 1)
        for follower, cycles in zip(self._followers, found[CYCLES::RESULT], strict=True):
            follower.cycles = cycles
            follower.num_filled = follower.num_taken
        return found[STATUS::RESULT]

    def _do(
        self, threads: FillThreads, is_text: array[int], row_bytes: int, max_woken: int
    ) -> list[int]:
        lines, tokens = array("q", self._lines), array("i", self._tokens)
        found: list[int] = []
        for start in range(0, len(lines), LINE * MAX_LINES):
            some = lines[start : start + LINE * MAX_LINES]
            found += threads.do(some, tokens, is_text, row_bytes, max_woken)
        return found


_LOOKS_PER_THREAD = 8  # a look takes some 5 us, waking a thread about as much


def fill_rows(
    rows: Sequence[tuple[Follower, int, list[int]]],  # who fills, at which address, behind what
    threads: FillThreads,
    is_text: array[int],
    row_bytes: int,
) -> list[int]:
    """Fill rows, those that took longest the time before first; which, by index, have failed."""
    cycles = [follower.cycles for follower, _, _ in rows]
    order = sorted(range(len(rows)), key=cycles.__getitem__)
    work = Work()
    for index in order:
        follower, row, token_ids = rows[index]
        work.add(follower, token_ids, (), row)
    statuses = work.fill(threads, is_text, row_bytes)
    if not any(statuses):
        return []
    return [index for index, status in zip(order, statuses, strict=True) if status != 0]
