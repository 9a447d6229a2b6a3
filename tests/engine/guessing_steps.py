"""Steps of requests whose texts are known beforehand: real lookups, by a clock of ours."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from structspec.config import SpeculativeConfig
from structspec.drafters.base import Glimpse
from structspec.drafters.ngram import NgramDrafter
from structspec.engine.batch import Batch, Drafting, SamplerOutput, ScheduledRequest
from structspec.engine.outlook import Outlook
from structspec.request import Request, SamplingParams

MOST_GUESSES = 15


@dataclass(frozen=True)
class Costs:
    """Seconds of a step launched ahead, of one that was not, of one with guesses, of a look.

    Drafts are of matches of `least_match` tokens, and of at most `most` tokens.
    """

    ahead: float
    fresh: float
    guessing: float
    look: float = 0.0
    least_match: int = 1
    most: int = MOST_GUESSES


class Steps:
    """Requests that write texts known beforehand, all for ever, one behind the other."""

    def __init__(self, texts: Sequence[Callable[[], list[int]]], costs: Costs) -> None:
        self.now, self.num_tokens, self.num_guessing, self.looking = 0.0, 0, 0, 0.0
        self.costs = costs
        self.drafter = NgramDrafter(SpeculativeConfig())
        self.outlook = Outlook(self.glimpse, MOST_GUESSES, lambda: self.now)
        self.texts = texts
        self.num_requests = 0
        self.running = [self.start(text) for text in texts]
        self.in_flight: Batch | None = None
        self.was_ahead = False

    def glimpse(self, requests: Sequence[Request], limit: int) -> Sequence[Glimpse]:
        self.now += self.costs.look
        self.looking += self.costs.look
        return self.drafter.glimpse(requests, limit)

    def start(self, text: Callable[[], list[int]]) -> tuple[Request, list[int]]:
        self.num_requests += 1
        written = text()
        return Request(self.num_requests, [0], SamplingParams(), len(written)), written

    def run(self, num_tokens: int, policy: Drafting | None = None) -> float:
        """Tokens a second of so many tokens; without a policy the outlook chooses."""
        before, start = self.num_tokens, self.now
        while self.num_tokens - before < num_tokens:
            self.step(policy)
        return (self.num_tokens - before) / (self.now - start)

    def step(self, policy: Drafting | None) -> None:
        is_ahead = self.in_flight is not None
        drafting = policy
        if drafting is None:
            drafting = self.outlook.choose(self.requests, is_ahead=is_ahead)
        if drafting is Drafting.GUESSES:
            self.land()
            self.num_guessing += 1
            batch = self.batch(allows_guesses=True)
            self.now += self.costs.guessing
            found = self.drafter.glimpse(self.requests, self.costs.most)
            least = self.costs.least_match
            drafts = [one.token_ids if one.kind[1] >= least else () for one in found]
            self.outlook.launched(guesses=any(drafts))
            self.write(batch, drafts, was_ahead=False)
        else:
            batch, self.in_flight = self.in_flight, self.batch(allows_guesses=False)
            if batch is not None:
                self.read(batch)
            self.was_ahead = batch is not None

    def land(self) -> None:
        batch, self.in_flight = self.in_flight, None
        if batch is not None:
            self.read(batch)

    def read(self, batch: Batch) -> None:
        self.now += self.costs.ahead if self.was_ahead else self.costs.fresh
        self.write(batch, [()] * len(batch.requests), was_ahead=self.was_ahead)

    def write(self, batch: Batch, drafts: Sequence[Sequence[int]], *, was_ahead: bool) -> None:
        accepted = []
        for index, draft in enumerate(drafts):
            request, text = self.running[index]
            rest = text[request.num_output_tokens :]
            num_held = 0
            while num_held < min(len(draft), len(rest) - 1) and draft[num_held] == rest[num_held]:
                num_held += 1
            request.token_ids += rest[: num_held + 1]
            accepted.append(num_held)
            self.num_tokens += num_held + 1
            if request.num_output_tokens == len(text):
                self.running[index] = self.start(self.texts[index])
        output = SamplerOutput([()] * len(drafts), accepted)
        self.outlook.landed(batch, output, guesses=any(drafts), was_ahead=was_ahead)

    @property
    def requests(self) -> list[Request]:
        return [request for request, _ in self.running]

    def batch(self, *, allows_guesses: bool) -> Batch:
        return Batch(
            [
                ScheduledRequest(request, 1, 0, True, allows_guesses=allows_guesses)
                for request in self.requests
            ]
        )


def text_with_repeats(source: random.Random, share: float) -> Callable[[], list[int]]:
    """Texts of which about so much goes on as it did before, in runs."""

    def make() -> list[int]:
        text = [source.randrange(10_000) for _ in range(12)]
        while len(text) < 160:
            if source.random() < share:
                start = source.randrange(len(text))
                text += text[start : start + source.randrange(2, 40)]
            else:
                words = [source.randrange(8), source.randrange(10_000)]
                text += [source.choice(words) for _ in range(source.randrange(2, 12))]
        return text[:160]

    return make
