"""A sampler whose draws hang on the token alone, so that a mask only takes some of them away.

score[token] = logit                           if T == 0
               logit / T + noise(seed, place, token)
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from torch import Tensor

from structspec.bitmask import first_logits_rows
from structspec.engine.batch import Batch, Draft, Drafting, Mask, ReadySampled, SamplerOutput
from structspec.engine.outlook import Outlook
from structspec.engine.pace import Pace, Way
from structspec.grammars.drafts import allowed_tokens
from structspec.request import Request
from tests.engine.toy import STOP


def scores(logits: Sequence[float], temperature: float, seed: int, place: int) -> Sequence[float]:
    """What the best allowed token has most of."""
    if temperature == 0:
        return logits
    source = random.Random(f"{seed} {place}")
    return [logit / temperature + source.gauss(0, 1) for logit in logits]


class CoupledSampler:
    """Draws the best of the allowed tokens and tells what comes behind it."""

    def __init__(self, num_runners_up: int) -> None:
        self._num_runners_up = num_runners_up

    def __call__(self, logits: Tensor, batch: Batch, draft: Draft, mask: Mask) -> ReadySampled:
        bitmask = mask.bitmask.numpy()
        allowed = {
            row: [*allowed_tokens(bitmask, place)]
            for row, place in zip(mask.rows.tolist(), mask.places.tolist(), strict=True)
        }
        starts = first_logits_rows(
            [*map(len, draft.guesses)], [scheduled.is_sampled for scheduled in batch.requests]
        )
        tokens: list[list[int]] = []
        runners_up: list[list[int]] = []
        for index, scheduled in enumerate(batch.requests):
            written: list[int] = []
            order: list[int] = []
            guesses, request = draft.guesses[index], scheduled.request
            place = scheduled.first_position + scheduled.num_tokens - request.num_prompt_tokens
            place += draft.num_certain[index]
            while scheduled.is_sampled:
                row = starts[index] + len(written)
                order = self._order(
                    request, logits[row].tolist(), place + len(written), allowed.get(row)
                )
                written.append(order[0])
                at = len(written) - 1
                if at in (len(guesses), mask.num_valid[index]) or guesses[at] != order[0]:
                    break
            tokens.append(written)
            runners_up.append(order[1 : 1 + self._num_runners_up])
        accepted = [max(0, len(written) - 1) for written in tokens]
        return ReadySampled(SamplerOutput(tokens, accepted, runners_up), logits.device)

    def _order(
        self, request: Request, logits: list[float], place: int, allowed: list[int] | None
    ) -> list[int]:
        """Allowed tokens, the best first."""
        params = request.params
        if allowed is None:
            bans_stops = params.ignore_eos and not request.is_judged
            allowed = [t for t in range(len(logits)) if t != STOP or not bans_stops]
        scored = scores(logits, params.temperature, request.seed, place)
        return sorted(allowed, key=scored.__getitem__, reverse=True)


class FicklePace(Pace):
    """Steps in another way each time."""

    def __init__(self, max_share_aside: float, seed: int = 0) -> None:
        self._random = random.Random(seed)
        super().__init__(max_share_aside, is_optimistic=True)

    def landed(self, batch: Batch, draft: Draft, output: SamplerOutput) -> None:
        """Count nothing."""
        self._way = Way(self._random.choice(list(Drafting)), self._random.random() < 0.3)


class HopefulPace(Pace):
    """Never masks first."""

    def __init__(self, max_share_aside: float = 1.0) -> None:
        super().__init__(max_share_aside, is_optimistic=True)

    def landed(self, batch: Batch, draft: Draft, output: SamplerOutput) -> None:
        """Count nothing."""


class FickleOutlook(Outlook):
    """Says something else each time, whoever is asked about."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        super().__init__(lambda requests, limit: [], 1)

    def choose(self, requests: Sequence[Request], *, is_ahead: bool) -> Drafting | None:
        return self._random.choice([None, *Drafting])
