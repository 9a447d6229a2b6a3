"""The engine: one step is seven calls, and the next one may be launched before it is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from structspec.drafters.base import Drafter
from structspec.drafters.faults import FaultTolerantDrafter
from structspec.engine.batch import (
    Batch,
    Draft,
    Drafting,
    Mask,
    Parked,
    Sampled,
    SamplerOutput,
    no_draft,
    no_mask,
)
from structspec.engine.late_wrapping import wrap_late
from structspec.engine.logprobs import guess_certain
from structspec.engine.outlook import Outlook
from structspec.engine.pace import Pace
from structspec.engine.scheduler import Scheduler
from structspec.errors import EngineError
from structspec.models.out_of_memory import is_out_of_memory
from structspec.request import Request

logger = logging.getLogger("structspec")


class Runner(Protocol):
    """Computes the target model's logits for a step."""

    def forward(self, batch: Batch, draft: Draft, last_token_ids: Tensor | None = None) -> Tensor:
        """What the sampler draws from: 1 + guesses rows of logits for each sampled request.

        `last_token_ids` are those of the step before, for requests with a `last_index`. On a GPU
        this only launches the work.
        """


class Masker(Protocol):
    """Keeps the matchers in step with the tokens, and turns them into bitmask rows."""

    def fill(self, batch: Batch, draft: Draft, is_masked: Sequence[bool]) -> Mask:
        """The rows of these requests, their matchers moved behind certain tokens."""

    def take_back(self, batch: Batch, draft: Draft, is_masked: Sequence[bool]) -> None:
        """Move matchers back before the certain tokens that `fill` has moved them behind."""

    def advance(
        self, batch: Batch, draft: Draft, mask: Mask, output: SamplerOutput
    ) -> SamplerOutput:
        """Move each matcher over its request's new tokens; the output with what stands of them."""


Sampler = Callable[[Tensor, Batch, Draft, Mask], Sampled]


@dataclass(slots=True)
class _Flight:
    """A step that was launched."""

    batch: Batch
    draft: Draft
    logits: Tensor
    is_masked: Sequence[bool]  # before its sampling, per request
    mask: Mask | None = None
    sampled: Sampled | None = None  # None until its sampling is launched
    was_ahead: bool = False  # launched while another ran
    is_foreseen: bool = False  # `Outlook` has said what it may draft

    @property
    def waits(self) -> bool:
        """Whether its masks or penalties need the tokens of the step before."""
        return any(
            scheduled.last_index >= 0 and (is_masked or scheduled.request.is_penalized)
            for is_masked, scheduled in zip(self.is_masked, self.batch.requests, strict=True)
        )

    @property
    def counts_tokens(self) -> bool:
        """Whether its penalties need them, so that they must have been taken in."""
        return any(
            scheduled.last_index >= 0 and scheduled.request.is_penalized
            for scheduled in self.batch.requests
        )


class Engine:
    """Generates tokens for many requests at once; used by one thread.

    With `runs_ahead` a step's forward pass is launched before the step before it is read. Where its
    constrained rows are to be masked, that one's tokens move the matchers while it runs, and these
    fill the rows that the new step is then sampled with.

    Else (`Pace` says when) it is sampled without them, and its matchers are asked once it is read.
    A token that is allowed is the one that a mask would have left: the draw is an argmax of scores
    of which a mask only takes some away. One that is not is replaced by the best that is, if the
    sampler says which come next, or else computed again, with a mask. So no request waits for
    another's mask.

    Where no request has a grammar, `Outlook` says whether guesses pay, if there is one.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        drafter: Drafter,
        runner: Runner,
        masker: Masker,
        sampler: Sampler,
        *,
        runs_ahead: bool = False,
        pace: Pace | None = None,
        outlook: Outlook | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._drafter: Drafter = FaultTolerantDrafter(drafter, scheduler.recorder.drafter_failed)
        self._runner = runner
        self._masker = masker
        self._sampler = sampler
        self._runs_ahead = runs_ahead
        self._pace = pace or Pace()
        self._outlook = outlook
        self._flight: _Flight | None = None
        self._is_idle = True

    @property
    def is_idle(self) -> bool:
        """Whether the last step found nothing to do: no requests, or all wait for their grammar."""
        return self._is_idle

    def step(self) -> list[Request]:
        """Advance every schedulable request; returns those with news, which may be none.

        A fault inside a step fails the requests that took part and leaves the others alone. Those
        of a step for which the device's memory did not suffice are computed again in smaller ones.
        """
        if parked := self.scheduler.take_compiled():
            self._judge(parked)
        flight, self._flight = self._flight, None
        was_running = flight is not None
        if flight is not None and self._must_wait(flight):
            self._land(flight)
            flight = None
        foreseen = self._foresee(is_ahead=flight is not None)
        if flight is not None and foreseen is Drafting.GUESSES:
            self._land(flight)
            flight = None
        drafting = self._pace.drafting if self._runs_ahead else Drafting.GUESSES
        batch = self.scheduler.schedule(drafting=drafting if foreseen is None else foreseen)
        self._is_idle = not batch.requests and not was_running
        if self._is_idle:
            self._pace.paused()
            if self._outlook is not None:
                self._outlook.paused()
        ahead = self._launch(batch, flight) if batch.requests else None
        if ahead is not None:
            ahead.was_ahead, ahead.is_foreseen = flight is not None, foreseen is not None
            if self._outlook is not None and foreseen is Drafting.GUESSES:
                self._outlook.launched(guesses=ahead.draft.num_guessing > 0)
        waits = ahead is not None and flight is not None and ahead.waits
        if ahead is not None and not waits:
            self._sample(ahead)
        if flight is not None:
            self._land(flight, ahead if waits else None)
        if ahead is not None and ahead.sampled is not None:
            if self._runs_ahead:
                self._flight = ahead
            else:
                self._land(ahead)
        return self.scheduler.take_news()

    def _must_wait(self, flight: _Flight) -> bool:
        """Whether a step should be read before the next one is planned."""
        if flight.is_foreseen:  # what it guesses was to pay for all of them together
            return flight.draft.num_guessing > 0
        return self._pace.must_wait(flight.batch, flight.draft)

    def _foresee(self, *, is_ahead: bool) -> Drafting | None:
        """What the next step may draft by what its texts go on like; None: by `Pace`."""
        if self._outlook is None or not self._runs_ahead or self._pace.is_told:
            return None
        return self._outlook.choose(self.scheduler.running, is_ahead=is_ahead)

    def _launch(self, batch: Batch, flight: _Flight | None) -> _Flight | None:
        """Start a step's forward pass behind that of `flight`; None where that fails."""
        draft = None
        try:
            wrap_late(batch)
            last = flight.sampled.last_token_ids if flight is not None and flight.sampled else None
            draft = guess_certain(batch, self._drafter.propose(batch))
            self.scheduler.launched(batch, draft)
            logits = self._runner.forward(batch, draft, last)
            return _Flight(batch, draft, logits, self._choose_masked(batch, draft))
        except Exception as error:
            self._shrink_or_fail(batch, draft, error)
            return None

    def _choose_masked(self, batch: Batch, draft: Draft) -> list[bool]:
        """Which requests' rows are masked before they are sampled."""
        masks_all = self._pace.masks_first or any(q is not None for q in draft.probs)
        return [
            request.matcher is not None
            and scheduled.is_sampled
            and (masks_all or request.needs_mask or request.params.is_masked_first)
            for scheduled in batch.requests
            for request in (scheduled.request,)
        ]

    def _sample(self, flight: _Flight) -> None:
        batch, draft = flight.batch, flight.draft
        try:
            flight.mask = self._masker.fill(batch, draft, flight.is_masked)
            flight.sampled = self._sampler(flight.logits, batch, draft, flight.mask)
            self.scheduler.had_room(batch)
        except Exception as error:
            if is_out_of_memory(error):
                self._masker.take_back(batch, draft, flight.is_masked)
            self._shrink_or_fail(batch, draft, error)

    def _land(self, flight: _Flight, ahead: _Flight | None = None) -> None:
        """Read a step and take in its tokens; start the sampling of one that waited for them."""
        assert flight.sampled is not None and flight.mask is not None
        output: SamplerOutput | None
        try:
            drawn = flight.sampled.read()
            output = self._masker.advance(flight.batch, flight.draft, flight.mask, drawn)
        except Exception as error:
            output = None
            self._fail(flight.batch, error)
        is_next = ahead is not None and ahead.counts_tokens  # what this one has written
        if ahead is not None and not is_next:
            self._sample(ahead)
        if output is not None:
            num_valid = _count_valid(flight.mask.num_valid, drawn, output)
            self.scheduler.update(flight.batch, flight.draft, output, num_valid)
            self._measure(flight, output)
        if ahead is not None and is_next:
            self._sample(ahead)

    def _measure(self, flight: _Flight, output: SamplerOutput) -> None:
        """Learn from a step that was read, by what has chosen its way."""
        if self._outlook is not None and flight.is_foreseen:
            self._outlook.landed(
                flight.batch,
                output,
                guesses=flight.draft.num_guessing > 0,
                was_ahead=flight.was_ahead,
            )
            self._pace.paused()
        else:
            self._pace.landed(flight.batch, flight.draft, output)

    def _judge(self, parked: Sequence[Parked]) -> None:
        """Take in what was drawn before its grammar was ready."""
        batch, draft = Batch([one.scheduled for one in parked]), no_draft(len(parked))
        outputs = [one.output for one in parked]
        output = SamplerOutput(
            [output.token_ids[0] for output in outputs],
            [0] * len(parked),
            [output.runners_up[0] if output.runners_up else () for output in outputs],
        )
        try:
            # not by `fill`: the step that runs still needs the rows it was given
            mask = no_mask(0, [0] * len(parked))
            output = self._masker.advance(batch, draft, mask, output)
            self.scheduler.update(batch, draft, output)
        except Exception as error:
            self._fail(batch, error)

    def _shrink_or_fail(self, batch: Batch, draft: Draft | None, error: Exception) -> None:
        """Have a step that ran out of memory computed in smaller ones; other faults end it."""
        if is_out_of_memory(error) and self.scheduler.take_back(batch, draft):
            logger.warning("memory ran out in a step of %d requests", len(batch.requests))
        else:
            self._fail(batch, error)

    def _fail(self, batch: Batch, error: Exception) -> None:
        logger.error(
            "an engine step failed; its %d requests end here", len(batch.requests), exc_info=error
        )
        for scheduled in batch.requests:
            self.scheduler.fail(scheduled.request, EngineError(f"the engine failed: {error!r}"))


def _count_valid(
    num_valid: Sequence[int], drawn: SamplerOutput, output: SamplerOutput
) -> Sequence[int]:
    """How many guesses each grammar takes: by its masks, or where it was asked afterwards."""
    if not output.diverged:
        return num_valid
    return [
        stand if stand < accepted else count
        for count, accepted, stand in zip(
            num_valid, drawn.num_accepted, output.num_accepted, strict=True
        )
    ]
