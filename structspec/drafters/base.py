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
    params = scheduled.request.params
    if not (scheduled.is_sampled and params.speculative):
        return 0
    wanted = params.speculation.num_speculative_tokens
    return scheduled.num_draft_slots if wanted is None else min(wanted, scheduled.num_draft_slots)
