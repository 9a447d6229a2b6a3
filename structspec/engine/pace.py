"""When to wait for a step rather than to launch the next one before it is read."""

from __future__ import annotations

from structspec.engine.batch import Batch, Draft


class Pace:
    """Running ahead hides the host's work; waiting lets the next step draft from what it knows.

    Where many of a step's requests would have to stand aside for the next one, since how many of
    their guesses hold is not known yet, splitting the batch in two costs more than waiting.
    """

    def __init__(self, max_share_aside: float = 0.25) -> None:
        self._max_share_aside = max_share_aside

    def must_wait(self, batch: Batch, draft: Draft) -> bool:
        """Whether this step should be read before the next one is planned."""
        return draft.num_guessing > self._max_share_aside * len(batch.requests)
