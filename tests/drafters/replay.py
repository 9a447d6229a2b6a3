"""Steps of an engine whose model writes a known output: every draft is verified against it."""

from dataclasses import dataclass

from tests.drafters.toy import batch_of, write


@dataclass(frozen=True)
class Step:
    """What was drafted, and how much of it stood."""

    token_ids: list[int]
    is_forced: list[bool]
    num_accepted: int


def replay(drafter, request, output_token_ids, num_draft_slots=15):
    """The steps in which a request writes this output: accepted drafts and one token more."""
    steps = []
    while output_token_ids:
        num_left = request.max_tokens - request.num_output_tokens - 1
        batch = batch_of(request, num_draft_slots=min(num_draft_slots, num_left))
        draft = drafter.propose(batch)
        token_ids = list(draft.token_ids[0])
        num_accepted = 0
        for drafted, written in zip(token_ids, output_token_ids[:-1], strict=False):
            if drafted != written:
                break
            num_accepted += 1
        write(request, output_token_ids[: num_accepted + 1])
        output_token_ids = output_token_ids[num_accepted + 1 :]
        steps.append(Step(token_ids, list(draft.is_forced[0]), num_accepted))
    return steps
