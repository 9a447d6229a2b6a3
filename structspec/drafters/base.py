"""What every drafter owes."""

from __future__ import annotations

from typing import Protocol

from structspec.engine.batch import Batch, Draft, ScheduledRequest


class Drafter(Protocol):
    """Guesses the next tokens of many requests; what it may look at is on the batch."""

    def propose(self, batch: Batch) -> Draft:
        """At most `num_draft_slots` tokens per request, none where it has no guess.

        Certain tokens come first; where a request's last token is still on its way, nothing else
        may be drafted. Matchers are left where they were. A wrong guess costs time and never
        changes the output.
        """


def count_slots(scheduled: ScheduledRequest) -> int:
    """How many tokens may be drafted for this request in this step."""
    is_wanted = scheduled.is_sampled and scheduled.request.params.speculative
    return scheduled.num_draft_slots if is_wanted else 0
