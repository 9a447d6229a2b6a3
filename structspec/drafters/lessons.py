"""What the next step of a request teaches about the spelling of the draft before it."""

from __future__ import annotations

from collections.abc import Mapping

from structspec.drafters.habits import Habits, Opening
from structspec.request import Request


class Lessons:
    """Drafts whose outcome is still to be seen; each is looked at once, at the next step."""

    def __init__(self, habits: Habits) -> None:
        self._habits = habits
        self._drafts: list[tuple[Request, int, Mapping[int, Opening]]] = []

    def expect(self, request: Request, openings: Mapping[int, Opening]) -> None:
        """Remember what the draft that goes on from here had to spell."""
        if openings:
            self._drafts.append((request, len(request.token_ids), openings))

    def learn(self) -> None:
        """Compare all of them with what was written since: the accepted tokens and one more."""
        for request, start, openings in self._drafts:
            for index, written in enumerate(request.token_ids[start:]):
                if index in openings:
                    self._habits.learn(openings[index], written)
        self._drafts.clear()
