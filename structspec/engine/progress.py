"""What new tokens mean to one request: its text, whether it ends, and its statistics."""

from __future__ import annotations

from collections.abc import Sequence

from structspec.request import FinishReason, Request, RequestStats
from structspec.vocabulary import Vocabulary


def append_tokens(
    request: Request, token_ids: Sequence[int], vocabulary: Vocabulary
) -> FinishReason | None:
    """Add tokens one by one until one of them ends the request; those behind it are dropped."""
    known, token_bytes = request.token_ids, vocabulary.token_bytes
    max_num_tokens = request.num_prompt_tokens + request.max_tokens
    for token_id in token_ids:
        known.append(token_id)
        if token_id in vocabulary.stop_token_ids:
            return "stop"
        if request.text.append(token_bytes[token_id] or b""):
            return "stop"
        if len(known) >= max_num_tokens:
            return "length"
    return None


def record_step(
    stats: RequestStats, is_forced: Sequence[bool], num_accepted: int, num_new: int
) -> None:
    """Count one verification step of a request; `is_forced` says it of each draft.

    Of a step whose tokens were all forbidden the drafts alone count.
    """
    stats.num_target_steps += num_new > 0
    num_drafted = len(is_forced)
    if num_drafted == 0:
        return
    stats.num_drafted += num_drafted
    stats.num_accepted += num_accepted
    stats.num_forced_drafted += sum(is_forced)
    stats.num_forced_accepted += sum(is_forced[:num_accepted])
    missing = num_drafted - len(stats.drafted_per_position)
    stats.drafted_per_position.extend([0] * missing)
    stats.accepted_per_position.extend([0] * missing)
    for position in range(num_drafted):
        stats.drafted_per_position[position] += 1
        stats.accepted_per_position[position] += position < num_accepted
