"""Free text is guessed where it goes on as it did before: real lookups, by a clock of ours."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Sequence

import pytest

from structspec.config import SpeculativeConfig
from structspec.drafters.base import Glimpse
from structspec.drafters.ngram import NgramDrafter
from structspec.engine.batch import Batch, Drafting, SamplerOutput, ScheduledRequest
from structspec.engine.outlook import Outlook
from structspec.request import Request, SamplingParams
from structspec.speculation import Speculation
from tests.drafters.toy import TextsMatcher
from tests.engine.guessing_steps import MOST_GUESSES, Costs, Steps, text_with_repeats
from tests.engine.toy import VOCABULARY

COSTS = {
    "one request on a fast device": Costs(0.51, 0.85, 0.9),
    "guesses cost much": Costs(0.66, 1.0, 1.5),
    "guesses cost little": Costs(1.0, 1.05, 1.1),
    "drafts do not look as far": Costs(0.66, 1.0, 1.5, least_match=3, most=4),
    "guesses cost more than they can bring": Costs(1.0, 1.5, 16.0),
}


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.9])
@pytest.mark.parametrize("num_requests", [1, 3, 20])
def test_neither_to_guess_always_nor_never_is_three_percent_better(
    costs: Costs, share: float, num_requests: int
) -> None:
    rates = []
    for policy in (None, Drafting.GUESSES, Drafting.NOTHING):
        source = random.Random(num_requests)
        texts = [text_with_repeats(source, share) for _ in range(num_requests)]
        steps = Steps(texts, costs)
        steps.run(200 * num_requests, policy)
        rates.append(steps.run(2000 * num_requests, policy))
    assert rates[0] >= 0.97 * max(rates)


@pytest.mark.parametrize("seed", [*range(12), 177])
def test_neither_is_much_better_whatever_steps_cost_and_texts_are_like(seed: int) -> None:
    chosen = random.Random(seed)
    num_requests, ahead = chosen.choice([1, 2, 5, 12, 33]), chosen.uniform(0.2, 1)
    fresh = ahead * chosen.uniform(1, 2.5)
    guessing = min(16 * ahead, fresh * chosen.uniform(1, 1.8) * chosen.choice([1, 1, 1, 3, 12]))
    least_match, most = chosen.choice([1, 1, 3]), chosen.choice([15, 15, 4])
    costs = Costs(ahead, fresh, guessing, least_match=least_match, most=most)
    shares = [chosen.choice([0, 0.1, 0.3, 0.6, 0.9, 1.0]) for _ in range(3)]
    rates = []
    for policy in (None, Drafting.GUESSES, Drafting.NOTHING):
        source = random.Random(seed)
        texts = [text_with_repeats(source, source.choice(shares)) for _ in range(num_requests)]
        steps = Steps(texts, costs)
        steps.run(200 * num_requests, policy)
        rates.append(steps.run(2000 * num_requests, policy))
    assert rates[0] >= 0.97 * max(rates)


def test_a_text_that_repeats_itself_in_its_second_half_is_faster_than_either() -> None:
    """What measurements of a text's beginning, or of all of it, cannot find."""

    def make() -> list[int]:
        start = [source.randrange(10_000) for _ in range(60)]
        return [*start, *start[-20:] * 5]

    rates = []
    for policy in (None, Drafting.GUESSES, Drafting.NOTHING):
        source = random.Random(1)
        steps = Steps([make], COSTS["one request on a fast device"])
        steps.run(400, policy)
        rates.append(steps.run(8000, policy))
    assert rates[0] > 1.2 * max(rates[1:])


def test_one_text_that_repeats_itself_among_many_does_not_keep_the_others_waiting() -> None:
    source = random.Random(2)
    texts = [text_with_repeats(source, 0.0) for _ in range(16)]
    steps = Steps([*texts, text_with_repeats(source, 1.0)], COSTS["guesses cost much"])
    steps.run(4000)
    before, start = steps.num_guessing, steps.num_tokens
    steps.run(8000)
    assert steps.num_guessing - before < 0.05 * (steps.num_tokens - start) / 17


@pytest.mark.parametrize("look", [0.001, 0.1, 5.0])
@pytest.mark.parametrize(("num_requests", "share"), [(1, 0.08), (4, 0.02), (16, 0.01)])
def test_looks_take_a_small_share_of_the_time(look: float, num_requests: int, share: float) -> None:
    source = random.Random(3)
    texts = [text_with_repeats(source, 0.3) for _ in range(num_requests)]
    steps = Steps(texts, Costs(0.51, 0.85, 0.9, look))
    steps.run(3000 * num_requests)
    assert steps.looking < 1.1 * share * steps.now + 6 * look  # until it is known


def test_of_many_requests_some_are_asked_in_turn() -> None:
    asked: list[list[Request]] = []

    def glimpse(requests: Sequence[Request], limit: int) -> list[Glimpse]:
        asked.append(list(requests))
        return [Glimpse(("", 0), ())] * len(requests)

    outlook = Outlook(glimpse, MOST_GUESSES)
    requests = [Request(i, [0], SamplingParams(), 100) for i in range(40)]
    for request in requests:
        request.token_ids.append(1)
    for _ in range(200):
        outlook._looked_at = float("-inf")
        outlook.choose(requests, is_ahead=True)
    assert max(map(len, asked)) <= 16
    assert {one.request_id for some in asked for one in some} == set(range(40))


def test_what_was_foreseen_of_other_texts_says_nothing_of_new_ones() -> None:
    source = random.Random(5)
    steps = Steps([text_with_repeats(source, 1.0) for _ in range(4)], Costs(0.5, 0.8, 0.9))
    steps.run(2000)
    steps.texts = [text_with_repeats(source, 0.0)] * 4
    steps.running = [steps.start(text) for text in steps.texts]
    steps.land()
    assert steps.outlook.choose(steps.requests, is_ahead=False) is Drafting.NOTHING


def test_finished_requests_are_let_go_of() -> None:
    source = random.Random(6)
    steps = Steps([text_with_repeats(source, 0.5) for _ in range(4)], Costs(0.5, 0.8, 0.9))
    steps.run(2000)
    known = {id(request) for request in steps.requests}
    assert known & set(map(id, gc.get_objects()))
    steps.running.clear()
    steps.in_flight = None
    steps.drafter = NgramDrafter(SpeculativeConfig())
    steps.outlook.choose([], is_ahead=False)
    gc.collect()
    assert not known & {id(one) for one in gc.get_objects() if type(one) is Request}


def test_a_first_look_that_takes_in_long_texts_does_not_put_off_the_next() -> None:
    source = random.Random(7)
    steps = Steps([text_with_repeats(source, 0.9) for _ in range(4)], Costs(0.5, 0.8, 0.9, 10.0))
    steps.run(50)
    steps.costs = Costs(0.5, 0.8, 0.9, 0.001)
    steps.run(4000)
    before, start = steps.num_guessing, steps.now
    steps.run(2000)
    assert (steps.num_guessing - before) * 0.9 > 0.5 * (steps.now - start)


def test_a_request_that_has_written_nothing_is_not_asked_about() -> None:
    """Its prompt may not be computed yet, and would be taken in at once."""
    asked: list[Request] = []

    def glimpse(requests: Sequence[Request], limit: int) -> list[Glimpse]:
        asked.extend(requests)
        return [Glimpse(("", 0), ())] * len(requests)

    outlook = Outlook(glimpse, 5, lambda: 0.0)
    new, begun = (Request(i, [0], SamplingParams(), 100) for i in range(2))
    begun.token_ids.append(1)
    outlook.choose([new], is_ahead=True)
    outlook.choose([new, begun], is_ahead=True)
    assert asked == [begun]


def test_it_has_nothing_to_say_where_a_grammar_may_be_drafted_from_or_nobody_may() -> None:
    outlook = Outlook(lambda requests, limit: [Glimpse(("ngram", 5), [1])] * len(requests), 5)
    free, constrained = (Request(i, [0], SamplingParams(), 100) for i in range(2))
    constrained.matcher = TextsMatcher(VOCABULARY, [b"a"])
    other = Request(2, [0], SamplingParams(speculative=False), 100)
    beside = Request(3, [0], SamplingParams(speculative=False), 100)
    beside.matcher = constrained.matcher
    assert outlook.choose([free, other], is_ahead=True) is not None
    for requests in ([], [constrained], [free, constrained], [free, beside], [other], [beside]):
        assert outlook.choose(requests, is_ahead=True) is None


def test_a_request_is_hoped_no_more_for_than_it_may_be_guessed() -> None:
    """Its own limit, and the end of its text: a step is not waited for in vain."""
    glimpses: list[Glimpse] = []
    outlook = Outlook(lambda requests, limit: glimpses, MOST_GUESSES)
    guessed_nothing = SamplingParams(speculation=Speculation(num_speculative_tokens=0))
    ending, forbidden = Request(0, [0], SamplingParams(), 2), Request(1, [0], guessed_nothing, 100)
    for request in (ending, forbidden):
        request.token_ids.append(1)
    glimpses[:] = [Glimpse(("ngram", 5), [1, 2, 3])] * 2
    assert outlook.choose([ending, forbidden], is_ahead=False) is Drafting.NOTHING


def test_a_drafter_that_cannot_look_ahead_rests_and_others_decide(
    caplog: pytest.LogCaptureFixture,
) -> None:
    num_asked = num_faults = 0

    def fail(requests: Sequence[Request], limit: int) -> Sequence[Glimpse]:
        nonlocal num_asked
        num_asked += 1
        raise ZeroDivisionError

    def count() -> None:
        nonlocal num_faults
        num_faults += 1

    outlook = Outlook(fail, 5, on_fault=count)
    request = Request(0, [0], SamplingParams(), 100)
    request.token_ids.append(1)
    with caplog.at_level(logging.ERROR, logger="structspec"):
        for _ in range(3000):
            outlook._looked_at = float("-inf")
            outlook.choose([request], is_ahead=True)
    assert num_asked == num_faults == 3
    assert len(caplog.records) == 1


def known_requests() -> int:
    gc.collect()
    return sum(type(one) is Request for one in gc.get_objects())


def test_one_that_rests_holds_no_finished_requests() -> None:
    num_before, num_looks = known_requests(), 0

    def glimpse(requests: Sequence[Request], limit: int) -> list[Glimpse]:
        nonlocal num_looks
        num_looks += 1
        if num_looks > 1:
            raise ZeroDivisionError
        return [Glimpse(("ngram", 5), [1] * 5)] * len(requests)

    outlook = Outlook(glimpse, 5)
    outlook._has_logged = True  # what is logged holds the frames of the fault
    request = Request(0, [0], SamplingParams(), 100)
    request.token_ids.append(1)
    for _ in range(3):
        outlook._looked_at = float("-inf")
        outlook.choose([request], is_ahead=True)
    assert num_looks == 2
    del request
    outlook.choose([], is_ahead=False)
    assert known_requests() == num_before


def test_what_guesses_gained_before_others_decided_says_nothing_of_later_steps() -> None:
    glimpses = [Glimpse(("ngram", 5), [1] * 5)]
    outlook = Outlook(lambda requests, limit: glimpses * len(requests), 5)
    free, constrained = (Request(i, [0], SamplingParams(), 100) for i in range(2))
    free.token_ids.append(1)
    constrained.matcher = TextsMatcher(VOCABULARY, [b"a"])
    assert outlook.choose([free], is_ahead=False) is Drafting.GUESSES
    batch = Batch([ScheduledRequest(free, 1, 5, True)])
    outlook.landed(batch, SamplerOutput([[1] * 6], [5]), guesses=True, was_ahead=False)
    assert outlook.choose([free, constrained], is_ahead=False) is None
    glimpses[:] = [Glimpse(("", 0), ())]
    assert outlook.choose([free], is_ahead=False) is Drafting.NOTHING


def test_guesses_that_were_not_found_are_charged_to_what_foresaw_them() -> None:
    outlook = Outlook(lambda requests, limit: [Glimpse(("ngram", 5), [1] * 5)], 5, lambda: 0.0)
    request = Request(0, [0], SamplingParams(), 100)
    request.token_ids.append(1)
    assert outlook.choose([request], is_ahead=True) is Drafting.GUESSES
    before = [trust.share for trust in outlook._trust]
    outlook.launched(guesses=False)
    batch = Batch([ScheduledRequest(request, 1, 0, True)])
    after = [trust.share for trust in outlook._trust]
    outlook.landed(batch, SamplerOutput([[1]], [0]), guesses=False, was_ahead=False)
    assert after[0] < before[0] and after[1:] == before[1:]
