"""Run tokens through a ModelRunner, cut into steps as one likes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from structspec.engine.batch import Batch, ScheduledRequest, guessed
from structspec.engine.model_runner import ModelRunner
from structspec.request import Request, SamplingParams


def make_request(token_ids: Sequence[int], block_table: Sequence[int]) -> Request:
    request = Request(0, token_ids, SamplingParams(), max_tokens=1)
    request.block_table = list(block_table)
    return request


def run_step(runner: ModelRunner, *shares: tuple[Request, int, int]) -> list[torch.Tensor]:
    """One step over several requests, each with (request, known tokens, drafts behind them).

    Drafts are the request's own next tokens, so every row is one of its positions. Returns each
    request's logits, of the last known token and all drafts, and counts all as computed.
    """
    scheduled, drafts = [], []
    for request, num_known, num_drafts in shares:
        end = request.num_computed_tokens + num_known
        drafts.append(request.token_ids[end : end + num_drafts])
        first = request.num_computed_tokens
        preempted = request.stats.num_preemptions
        scheduled.append(
            ScheduledRequest(request, num_known, num_drafts, True, first, num_preemptions=preempted)
        )
    logits = runner.forward(Batch(scheduled), guessed(drafts))
    assert len(logits) == sum(1 + len(draft) for draft in drafts)
    for request, num_known, num_drafts in shares:
        request.num_computed_tokens += num_known + num_drafts
    return list(logits.split([1 + len(draft) for draft in drafts]))


def feed(runner: ModelRunner, request: Request, sizes: Sequence[int]) -> torch.Tensor:
    """Logits of every position, in steps of the given sizes: one known token, the rest drafts."""
    assert sum(sizes) == len(request.token_ids) - request.num_computed_tokens
    return torch.cat([run_step(runner, (request, 1, size - 1))[0] for size in sizes])
