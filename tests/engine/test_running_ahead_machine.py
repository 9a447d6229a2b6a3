"""Any order of asking, compiling, cancelling, preempting, failing and stepping keeps the laws."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from structspec.engine.pace import Pace
from structspec.errors import Cancelled, GrammarError
from structspec.request import Request, RequestStatus
from tests.engine.coupled import CoupledSampler, FicklePace
from tests.engine.recorder import Recorder
from tests.engine.test_running_ahead_laws import ASKS, DRAFTERS
from tests.engine.toy_grammar import ToyGrammar
from tests.engine.watched import Ask, Watched, make_config

NUMBERS = st.integers(0, 99)


def chosen(requests: Sequence[Request], number: int) -> Sequence[Request]:
    """One of them, or none where there are none."""
    return [requests[number % len(requests)]] if requests else []


class RunningAhead(RuleBasedStateMachine):
    """Requests in a cache with room for two or three of them."""

    @initialize(
        budget=st.integers(1, 24),
        block_size=st.integers(1, 4),
        share=st.sampled_from([0.0, 0.25, 1.0]),
        kind=st.sampled_from(sorted(DRAFTERS)),
        num_runners_up=st.none() | st.integers(0, 3),
    )
    def build(self, budget, block_size, share, kind, num_runners_up):
        config = make_config(
            block_size=block_size, num_blocks=-(-40 // block_size), max_num_batched_tokens=budget
        )
        self.is_coupled = num_runners_up is not None
        pace = FicklePace(share) if self.is_coupled else Pace(share)
        sampler = CoupledSampler(num_runners_up) if self.is_coupled else None
        self.watched = Watched(
            config, DRAFTERS[kind](0), pace=pace, sampler=sampler, draws_early=self.is_coupled
        )
        self.recorder = Recorder(self.watched.toy)
        self.asks: dict[Request, Ask] = {}

    @property
    def unfinished(self) -> list[Request]:
        return [request for request in self.asks if not request.is_finished]

    @property
    def compiling(self) -> list[Request]:
        return [r for r in self.unfinished if r.compiled is not None and not r.compiled.done()]

    @rule(ask=ASKS, is_compiled=st.booleans())
    def ask(self, ask, is_compiled):
        compiled = Future() if ask.texts is not None and not is_compiled else None
        self.asks[self.watched.start(ask, compiled)] = ask

    @rule(number=NUMBERS)
    def compile(self, number):
        for request in chosen(self.compiling, number):
            request.compiled.set_result(ToyGrammar(self.asks[request].texts))

    @rule(number=NUMBERS)
    def refuse(self, number):
        for request in chosen(self.compiling, number):
            request.compiled.set_exception(GrammarError("no"))

    @rule(number=NUMBERS)
    def cancel(self, number):
        for request in chosen(self.unfinished, number):
            self.watched.toy.scheduler.fail(request, Cancelled("enough"))
        self.watched.check()

    @rule(number=NUMBERS)
    def preempt(self, number):
        running = [r for r in self.asks if r.status is RequestStatus.RUNNING]
        for request in chosen(running, number):
            self.watched.toy.scheduler.preempt(request)
        self.watched.check()

    @rule(what=st.sampled_from(["forward", "sample", "read"]))
    def fail_soon(self, what):
        self.recorder.faults[len(self.recorder.of("forward"))] = what

    @rule(num_steps=st.integers(1, 3))
    def step(self, num_steps):
        for _ in range(num_steps):
            self.watched.step()

    def teardown(self):
        if not hasattr(self, "watched"):
            return
        for request in self.compiling:
            request.compiled.set_result(ToyGrammar(self.asks[request].texts))
        self.watched.run()
        manager = self.watched.toy.block_manager
        assert manager.num_free_blocks == manager.num_blocks
        for request, ask in self.asks.items():
            if request.error is None:
                ask.check(request, is_coupled=self.is_coupled)
                continue
            alone = ask.written_alone(is_coupled=self.is_coupled)
            assert request.output_token_ids == alone[: request.num_output_tokens]
            if not isinstance(request.error, Cancelled | GrammarError):
                assert any(f"of step {step}" in str(request.error) for step in self.recorder.faults)


TestRunningAhead = RunningAhead.TestCase
TestRunningAhead.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
