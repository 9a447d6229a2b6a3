"""Which way of stepping is chosen: the one that writes more tokens a second, by a clock of ours."""

import gc
from collections.abc import Sequence

import pytest

from structspec.engine.batch import (
    Batch,
    Draft,
    Drafting,
    SamplerOutput,
    ScheduledRequest,
    no_draft,
)
from structspec.engine.pace import Pace
from structspec.engine.ways import Way
from structspec.request import Request, SamplingParams
from tests.drafters.toy import TextsMatcher
from tests.engine.toy import VOCABULARY


class Simulation:
    """Steps of requests that gain `tokens` with guesses in `seconds`, and one in 1 s without."""

    def __init__(self, tokens: int, seconds: float, *, speculative: bool = True) -> None:
        self.now = 0.0
        self.tokens, self.seconds = tokens, seconds
        self.params = SamplingParams(speculative=speculative)
        self.pace = Pace(clock=lambda: self.now)

    def share_with_guesses(self, num_steps: int, num_requests: int = 4) -> float:
        requests = [Request(i, [0], self.params, 100) for i in range(num_requests)]
        batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
        num_guessing = 0
        for _ in range(num_steps):
            guesses = self.pace.drafting is Drafting.GUESSES
            num_guessing += guesses
            self.now += self.seconds if guesses else 1.0
            new = [[0] * (self.tokens if guesses else 1)] * num_requests
            self.pace.landed(batch, no_draft(num_requests), SamplerOutput(new, [0] * num_requests))
        return num_guessing / num_steps


@pytest.mark.parametrize(("tokens", "seconds", "guesses"), [(3, 2, True), (2, 3, False)])
def test_the_way_that_writes_more_is_taken_nearly_always_and_the_other_tried_at_times(
    tokens: int, seconds: float, guesses: bool
) -> None:
    simulation = Simulation(tokens, seconds)
    simulation.share_with_guesses(100)
    share = simulation.share_with_guesses(5000)
    assert 0.9 < (share if guesses else 1 - share) < 1.0


def test_when_the_better_way_becomes_the_worse_it_is_left() -> None:
    simulation = Simulation(3, 2)
    simulation.share_with_guesses(1000)
    simulation.tokens, simulation.seconds = 1, 2
    simulation.share_with_guesses(500)
    assert simulation.share_with_guesses(1000) < 0.2


def test_work_that_may_not_draft_says_nothing_of_work_that_may() -> None:
    """All of its steps are of the way that guesses, and bring one token each."""
    simulation = Simulation(3, 2)
    simulation.share_with_guesses(1000)
    drafting, simulation.params = simulation.params, SamplingParams(speculative=False)
    simulation.tokens, simulation.seconds = 1, 2
    simulation.share_with_guesses(200)
    simulation.params, simulation.tokens = drafting, 3
    assert simulation.share_with_guesses(100) > 0.8


def test_another_number_of_requests_is_measured_afresh() -> None:
    simulation = Simulation(2, 3)
    simulation.share_with_guesses(1000)
    assert simulation.pace.drafting is not Drafting.GUESSES
    simulation.share_with_guesses(1, num_requests=12)
    assert simulation.pace.drafting is Drafting.GUESSES


def test_steps_that_bring_nothing_for_long_are_measured_too() -> None:
    """Where every token was refused, say: no rate is divided by."""
    simulation = Simulation(0, 1)
    requests = [Request(i, [0], simulation.params, 100) for i in range(4)]
    batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
    for _ in range(1000):
        simulation.now += 1.0
        simulation.pace.landed(batch, no_draft(4), SamplerOutput([[]] * 4, [0] * 4))
    simulation.tokens, simulation.seconds = 3, 2
    simulation.share_with_guesses(1000)
    assert simulation.share_with_guesses(1000) > 0.8


def test_requests_without_drafts_are_nothing_to_measure() -> None:
    simulation = Simulation(2, 3, speculative=False)
    assert simulation.share_with_guesses(500) == 1.0


def test_what_was_measured_at_a_number_of_requests_is_remembered() -> None:
    simulation = Simulation(2, 3)
    simulation.share_with_guesses(1000)
    simulation.share_with_guesses(1, num_requests=12)
    simulation.share_with_guesses(1)
    assert simulation.pace.drafting is not Drafting.GUESSES


def test_guesses_that_hold_only_further_on_in_a_text_are_found_there() -> None:
    simulation = Simulation(1, 1.5)
    simulation.share_with_guesses(60)
    simulation.tokens = 6
    simulation.share_with_guesses(1500)
    assert simulation.share_with_guesses(300) > 0.9


class Ways:
    """Each way of stepping writes its own number of tokens in its own time, for 32 requests."""

    def __init__(self, rates: dict[Way, tuple[float, float]]) -> None:
        self.now = self.num_tokens = 0.0
        self.rates = rates
        self.pace = Pace(clock=lambda: self.now, is_optimistic=True)
        requests = [Request(i, [0], SamplingParams(), 100) for i in range(32)]
        for request in requests:
            request.matcher = TextsMatcher(VOCABULARY, [b"a"])
        self.batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])

    def run(self, num_steps: int, speeds: Sequence[float] = (1.0,), spell: float = 1.0) -> float:
        """The tokens a second of so many steps, of the best way's.

        The machine has these speeds, one after the other, each for `spell` seconds.
        """
        num_tokens, best_tokens = 0.0, 0.0
        best = max(32 * tokens / seconds for tokens, seconds in self.rates.values())
        for _ in range(num_steps):
            tokens, seconds = self.rates[Way(self.pace.drafting, self.pace.masks_first)]
            speed = speeds[int(self.now / spell) % len(speeds)]
            best_tokens += best * seconds
            self.now += seconds / speed
            num_tokens += 32 * tokens
            new = round(32 * tokens)
            output = SamplerOutput([[0] * new, *[()] * 31], [0] * 32)
            self.pace.landed(self.batch, no_draft(32), output)
        return num_tokens / best_tokens


# tokens and milliseconds of a step, drawn without masks: with guesses, certain drafts, and none;
# masks take 40 % longer and nothing is refused
STEPS = {
    "drafts wait for the host": ((1.4, 2.88), (1.2, 1.6), (1.0, 1.23)),
    "guesses pay": ((3.0, 2.0), (1.4, 1.4), (1.0, 1.2)),
    "certain ones pay": ((1.8, 2.4), (1.7, 1.5), (1.0, 1.2)),
    "all are close": ((1.50, 1.52), (1.25, 1.26), (1.0, 1.0)),
    "guesses are hopeless": ((1.0, 9.0), (1.0, 1.5), (1.0, 1.0)),
}


def ways_of(steps: tuple[tuple[float, float], ...], masked: float) -> Ways:
    return Ways(
        {
            Way(drafting, masks_first): (tokens, seconds * (masked if masks_first else 1))
            for drafting, (tokens, seconds) in zip(
                sorted(Drafting, reverse=True), steps, strict=True
            )
            for masks_first in (False, True)
        }
    )


def test_a_machine_that_is_not_always_as_fast_costs_little() -> None:
    """A way is not taken for a better one because it was measured in a fast moment."""
    steps = (3.3, 4.6), (1.63, 2.0), (1.0, 1.0)
    speeds = [1.0, 0.5, 0.8, 0.6, 1.0, 0.7]
    shares = []
    for spell in (70.0, 150.0, 220.0, 300.0, 500.0):
        for first in range(4):
            ways, own = ways_of(steps, 1.4), speeds[first:] + speeds[:first]
            ways.run(1000, own, spell)
            shares.append(ways.run(5000, own, spell))
    assert min(shares) > 0.95


@pytest.mark.parametrize("num_cold", [8, 24, 60])
@pytest.mark.parametrize("masked", [1.15, 0.8])
def test_what_was_measured_while_all_was_new_is_measured_again(
    num_cold: int, masked: float
) -> None:
    """Else the first way, which suffers most, would be thought to be slow for long."""
    warm = ways_of(((10.0, 1.4), (1.1, 0.8), (1.0, 0.6)), masked)
    ways = ways_of(((10.0, 1.4), (1.1, 0.8), (1.0, 0.6)), masked)
    ways.rates = {
        way: (0.8 * tokens, 1.3 * seconds) for way, (tokens, seconds) in warm.rates.items()
    }
    ways.run(num_cold)
    ways.rates = warm.rates
    ways.run(600)
    assert ways.run(3000) > 0.97


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("masked", [1.4, 0.6])
def test_what_is_tried_costs_less_than_three_percent_and_little_before_it_is_known(
    steps: tuple[tuple[float, float], ...], masked: float
) -> None:
    ways = ways_of(steps, masked)
    assert ways.run(256) > 0.5  # one output's length
    assert ways.run(256) > 0.9
    assert ways.run(20_000) > 0.97


def test_an_engine_that_is_told_how_much_to_guess_tries_nothing_else() -> None:
    ways = Ways({Way(Drafting.GUESSES, False): (1.0, 9.0), Way(Drafting.GUESSES, True): (1.0, 9.0)})
    ways.pace = Pace(clock=lambda: ways.now, is_optimistic=True, is_told=True)
    assert ways.run(2000) == 1.0


class Masking:
    """Steps that take `masked` seconds with masks first, else 1 s in which `kept` tokens stand."""

    def __init__(self, masked: float, kept: float, *, is_optimistic: bool = True) -> None:
        self.now = 0.0
        self.masked, self.kept = masked, kept
        self.pace = Pace(clock=lambda: self.now, is_optimistic=is_optimistic)

    def share_masked(self, num_steps: int, num_constrained: int = 4, **params: float) -> float:
        sampling = SamplingParams(speculative=False, **params)
        requests = [Request(i, [0], sampling, 100) for i in range(4)]
        for request in requests[:num_constrained]:
            request.matcher = TextsMatcher(VOCABULARY, [b"a"])
        batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
        num_masked = num_tokens = 0
        for _ in range(num_steps):
            masks_first = self.pace.masks_first
            num_masked += masks_first
            self.now += self.masked if masks_first else 1.0
            num_tokens += 4 if masks_first else 4 * self.kept
            new, num_tokens = int(num_tokens), num_tokens - int(num_tokens)
            output = SamplerOutput([[0] * new, (), (), ()], [0] * 4)
            self.pace.landed(batch, no_draft(4), output)
        return num_masked / num_steps


@pytest.mark.parametrize(("masked", "kept", "is_masked"), [(1.4, 0.9, False), (1.1, 0.7, True)])
def test_masks_come_first_where_that_writes_more(
    masked: float, kept: float, is_masked: bool
) -> None:
    masking = Masking(masked, kept)
    masking.share_masked(100)
    share = masking.share_masked(5000)
    assert 0.95 < (share if is_masked else 1 - share) < 1.0


def test_what_went_on_from_a_refused_token_is_not_counted_as_written() -> None:
    """Unmasked steps take 1 s, and every other one is dropped; masked ones take 1.5 s."""
    masking = Masking(1.5, 1.0)
    request = Request(0, [0], SamplingParams(speculative=False), 100)
    request.matcher = TextsMatcher(VOCABULARY, [b"a"])
    num_masked = 0
    for step in range(1000):
        masks_first = masking.pace.masks_first
        num_masked += masks_first
        masking.now += 1.5 if masks_first else 1.0
        is_stale = not masks_first and step % 2 == 0
        share = ScheduledRequest(request, 1, 0, True, num_divergences=-1 if is_stale else 0)
        masking.pace.landed(Batch([share]), no_draft(1), SamplerOutput([[0]], [0]))
    assert num_masked > 800


def test_a_difference_that_a_hiccup_may_have_made_does_not_bring_masks_first() -> None:
    masking = Masking(1.0, 0.95)
    masking.share_masked(100)
    assert masking.share_masked(2000) < 0.1


def test_a_hopeless_way_is_left_at_once_and_tried_seldom_but_not_never() -> None:
    masking = Masking(4, 0.9)
    masking.share_masked(100)
    assert masking.share_masked(1500) == 0.0
    assert 0.0 < masking.share_masked(10_000) < 0.01


def test_masks_always_come_first_without_optimism_and_never_where_nothing_is_constrained() -> None:
    assert Masking(3, 1, is_optimistic=False).share_masked(200) == 1.0
    assert Masking(3, 1).share_masked(200, num_constrained=0) == 0.0


def test_time_without_work_counts_for_no_way() -> None:
    simulation = Simulation(3, 2)
    simulation.share_with_guesses(100)
    for _ in range(50):
        simulation.now += 1000
        simulation.pace.paused()
        simulation.share_with_guesses(40)
    assert simulation.share_with_guesses(1000) > 0.8


def test_a_step_is_waited_for_where_many_of_its_requests_guess() -> None:
    requests = [Request(i, [0], SamplingParams(), 100) for i in range(8)]
    batch = Batch([ScheduledRequest(request, 1, 1, True) for request in requests])

    def draft(num_guessing: int) -> Draft:
        token_ids = [[5]] * num_guessing + [[]] * (8 - num_guessing)
        return Draft(token_ids, [None] * 8, [[False]] * 8, [0] * 8)

    assert [Pace().must_wait(batch, draft(n)) for n in (0, 1, 2, 3, 8)] == [
        False,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("num_steps", [3, 12])
def test_requests_too_short_for_a_measurement_are_measured_together(num_steps: int) -> None:
    simulation = Simulation(2, 3)
    shares = []
    for _ in range(1200 // num_steps):
        simulation.now += 1000
        simulation.pace.paused()
        shares.append(simulation.share_with_guesses(num_steps))
    assert sum(shares[len(shares) // 2 :]) < 0.2 * len(shares)


@pytest.mark.parametrize("num_steps", [1, 3, 12])
def test_kinds_of_work_that_take_turns_are_measured_all_the_same(num_steps: int) -> None:
    masking = Masking(1.1, 0.7)
    for _ in range(600 // num_steps):
        masking.share_masked(num_steps)
        masking.share_masked(num_steps, num_constrained=2)
    shares = [masking.share_masked(num_steps, num_constrained=n) for n in [4, 2] * 100]
    assert sum(shares) / len(shares) > 0.7


def test_a_hiccup_while_a_way_is_measured_does_not_put_off_its_next_try() -> None:
    simulation = Simulation(2, 3)
    while simulation.pace.drafting is Drafting.GUESSES:
        simulation.share_with_guesses(1)
    simulation.share_with_guesses(200)
    while simulation.pace.drafting is not Drafting.GUESSES:
        simulation.share_with_guesses(1)
    simulation.share_with_guesses(10)
    simulation.now += 10_000
    simulation.share_with_guesses(100)
    simulation.tokens, simulation.seconds = 6, 1
    simulation.share_with_guesses(3000)
    assert simulation.share_with_guesses(300) > 0.9


def test_two_hiccups_while_a_way_is_tried_do_not_put_off_its_next_try() -> None:
    ways = ways_of(((2.0, 2.5), (1.0, 1.0), (1.0, 1.0)), 1.0)

    def wait_for(drafting: Drafting) -> int:
        num_steps = 0
        while ways.pace.drafting is not drafting:
            ways.run(1)
            num_steps += 1
        return num_steps

    ways.run(2000)
    wait_for(Drafting.GUESSES)
    ways.run(6)  # in which it settles, and two that are counted
    for _ in range(2):
        ways.now += 10_000
        ways.run(1)
    wait_for(Drafting.CERTAIN)
    assert wait_for(Drafting.GUESSES) < 5000


@pytest.mark.parametrize("pattern", ["X", "X-", "XX-", "X--", "XXX-X-", "X-X-X--", "X---", "-" * 9])
def test_requests_that_begin_and_end_in_any_turns_leave_steps_to_measure(pattern: str) -> None:
    """An X is a step of which one request is another than in the step before."""
    simulation = Simulation(2, 3)
    requests = [Request(i, [0], simulation.params, 100) for i in range(4)]
    num_guessing, num_steps = 0, 3000
    for step in range(num_steps):
        if pattern[step % len(pattern)] == "X":
            requests = [*requests[1:], Request(step, [0], simulation.params, 100)]
        batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
        guesses = simulation.pace.drafting is Drafting.GUESSES
        num_guessing += guesses
        simulation.now += 3.0 if guesses else 1.0
        new = [[0] * (2 if guesses else 1)] * 4
        simulation.pace.landed(batch, no_draft(4), SamplerOutput(new, [0] * 4))
    assert num_guessing < 0.15 * num_steps


def test_a_grammar_that_is_there_later_is_seen_within_eight_steps() -> None:
    pace = Pace(is_optimistic=True)
    requests = [Request(i, [0], SamplingParams(), 100) for i in range(4)]
    batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
    for num_before in range(10):
        for request in requests:
            request.matcher = None
        for _ in range(20 + num_before):
            pace.landed(batch, no_draft(4), SamplerOutput([[0]] * 4, [0] * 4))
        ways, _ = pace._last_look
        assert {way.masks_first for way in ways} == {False}
        for request in requests:
            request.matcher = TextsMatcher(VOCABULARY, [b"a"])
        for _ in range(8):
            pace.landed(batch, no_draft(4), SamplerOutput([[0]] * 4, [0] * 4))
        ways, kind = pace._last_look
        assert {way.masks_first for way in ways} == {False, True} and kind[0] == 2


def known_requests() -> int:
    gc.collect()
    return sum(type(one) is Request for one in gc.get_objects())


def test_no_request_is_held_once_there_is_nothing_to_do_or_others_are_there() -> None:
    simulation, before = Simulation(3, 2), known_requests()
    for num_requests in (4, 2, 3):
        simulation.share_with_guesses(200, num_requests)
        assert known_requests() - before == num_requests
    simulation.pace.paused()
    assert known_requests() == before


def test_steps_that_all_ways_take_alike_do_not_undo_a_choice() -> None:
    simulation = Simulation(2, 3)
    simulation.share_with_guesses(300)
    while simulation.pace.drafting is Drafting.GUESSES:
        simulation.share_with_guesses(1)
    chosen = simulation.pace.drafting
    plain = Request(0, [0], SamplingParams(speculative=False), 100)
    batch = Batch([ScheduledRequest(plain, 1, 0, True)] * 4)
    output = SamplerOutput([[0]] * 4, [0] * 4)
    for _ in range(50):
        simulation.now += 1
        simulation.pace.landed(batch, no_draft(4), output)
        assert simulation.pace.drafting is chosen


def test_what_could_not_win_even_without_the_host_is_never_tried() -> None:
    simulation = Simulation(9, 2)
    simulation.pace = Pace(clock=lambda: simulation.now, fastest=lambda num_rows: 0.9)
    assert simulation.share_with_guesses(300) == 1.0
    simulation.tokens = 1  # guesses that bring nothing are left all the same
    simulation.share_with_guesses(500)
    assert simulation.share_with_guesses(1000) < 0.2
