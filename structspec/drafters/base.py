"""What every drafter owes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

from structspec.engine.batch import Batch, Draft, ScheduledRequest, guessed
from structspec.request import Request


class Drafter(Protocol):
    """Guesses the next tokens of many requests; what it may look at is on the batch."""

    def propose(self, batch: Batch) -> Draft:
        """At most `num_draft_slots` tokens per request, none where it has no guess.

        Certain tokens come first; where a request's last token is still on its way, nothing else
        may be drafted. Matchers are left where they were. A wrong guess costs time and never
        changes the output.
        """


class Glimpse(NamedTuple):
    """What would be guessed to follow a request's tokens, its grammar aside."""

    kind: tuple[str, int]  # who would guess it, behind a match of how many tokens (0: untold)
    token_ids: Sequence[int]


@runtime_checkable
class Foresighted(Protocol):
    """A drafter that can tell cheaply what it would guess, also where nothing is guessed."""

    def glimpse(self, requests: Sequence[Request], limit: int) -> Sequence[Glimpse]:
        """At most `limit` tokens for each; a request's last token may not be known yet."""


def count_slots(scheduled: ScheduledRequest) -> int:
    """How many tokens may be drafted for this request in this step."""
    params = scheduled.request.params
    if not (scheduled.is_sampled and params.speculative):
        return 0
    wanted = params.speculation.num_speculative_tokens
    return scheduled.num_draft_slots if wanted is None else min(wanted, scheduled.num_draft_slots)


def count_unseen(scheduled: ScheduledRequest) -> int:
    """How many tokens its matcher has not been moved by, the last ones still on their way."""
    return scheduled.request.num_unseen if scheduled.last_index >= 0 else 0


def count_hopeful(batch: Batch) -> int:
    """How many requests something may be looked up for once their last token is known."""
    if not (batch.requests and batch.requests[0].allows_guesses):  # all of a step are alike in it
        return 0
    return sum(
        scheduled.is_sampled
        and scheduled.max_num_guesses > 0
        and scheduled.request.params.speculative
        for scheduled in batch.requests
    )


def looked_up(token_ids: Sequence[Sequence[int]], hopeful: Batch) -> Draft:
    """Guesses of a drafter that may have more for some requests once their last token is known.

    Without saying so a step that nobody guesses in would be followed by one planned before it is
    read, and so on: nobody would ever guess again.
    """
    return replace(guessed(token_ids), num_hopeful=count_hopeful(hopeful))
