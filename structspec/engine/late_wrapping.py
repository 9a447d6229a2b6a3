"""Putting the late wrappers of requests around their matchers, in the middle of their texts."""

from __future__ import annotations

from structspec.engine.batch import Batch
from structspec.grammars.wrapping import LateWrapper
from structspec.request import Request


def put_late(request: Request, late: LateWrapper | None) -> None:
    """Give a request that has not started its late wrapper, as one of the others if it is due.

    So it is there before anything is taken, also what was drawn before the grammar was ready.
    """
    if late is None or late.is_hopeless:
        return
    if late.wrap_at:
        request.late_wrapper = late
    else:
        request.wrappers = (*request.wrappers, late)


def wrap_late(batch: Batch) -> None:
    """Wrap those that are about to have written so much; to be called before a step is launched."""
    for scheduled in batch.requests:
        request = scheduled.request
        late = request.late_wrapper
        if late is None or request.matcher is None:
            continue
        if request.num_known_tokens - request.num_prompt_tokens >= late.wrap_at:
            request.matcher = late.behind(request.matcher, _count_taken(request))
            request.wrappers, request.late_wrapper = (*request.wrappers, late), None


def _count_taken(request: Request) -> int:
    """How many tokens of output its matcher has taken, certain ones of a running step too."""
    num_more = request.num_pending - request.num_unseen if request.num_pending else 0
    return request.num_output_tokens + num_more
