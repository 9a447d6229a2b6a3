"""What goes wrong while steps run ahead ends its own requests, once, and nobody else."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from structspec.config import SpeculativeConfig
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch
from structspec.engine.loop import EngineLoop, News
from structspec.errors import EngineError, GrammarError
from structspec.grammars.base import MatcherFailed
from structspec.request import Request
from tests.engine.recorder import GuessFor, Plain, Recorder
from tests.engine.toy import VOCABULARY, RandomDrafter, ToyEngine
from tests.engine.toy_grammar import CertainMatcher, RestlessDrafter, ToyGrammar, ready
from tests.engine.watched import ALONG, ALWAYS_WAITS, LONG, NEVER_WAITS, Ask, Watched, make_config


def test_a_grammar_that_fails_in_the_step_that_reads_the_prompt_is_told_once():
    for pace in (ALWAYS_WAITS, NEVER_WAITS):  # the first reads a step before it plans the next
        watched = Watched(pace=pace)
        request = watched.start(Ask([0] * 9, ("c",)), Future())
        watched.step()
        request.compiled.set_exception(GrammarError("no"))
        assert watched.step() == [request] == watched.told
        for _ in range(3):
            assert watched.step() == []


def test_a_grammar_that_gives_no_matcher_fails_its_own_request(caplog):
    class Empty(ToyGrammar):
        def matcher(self):
            raise RuntimeError("no matchers left")

    watched = Watched()
    bad = watched.start(Ask([0, 1], ("c",)), ready(Empty(("c",))))
    good = watched.start(LONG)
    watched.run()
    assert isinstance(bad.error, EngineError) and "no matchers left" in str(bad.error)
    LONG.check(good)
    assert "got no matcher" in caplog.text


def failing_after(num_calls: int) -> type[CertainMatcher]:
    """A matcher that gives up when it was asked so often, and is of no use from then on."""

    class Failing(CertainMatcher):
        num_left = num_calls

        def __getattribute__(self, name):
            if name in ("accept", "fill", "forced_tokens", "forced", "rollback"):
                self.num_left -= 1
                if self.num_left < 0:
                    raise MatcherFailed("limit reached")
            return super().__getattribute__(name)

    return Failing


@pytest.mark.parametrize(
    "make_drafter",
    [
        lambda: ForcedDrafter(VOCABULARY),
        lambda: HybridDrafter(VOCABULARY, SpeculativeConfig()),
        lambda: RestlessDrafter(0),
    ],
    ids=["forced", "hybrid", "restless"],
)
def test_a_matcher_that_fails_while_a_step_runs_fails_its_request_alone(make_drafter, caplog):
    texts = ("c" * 12, "cb" * 6)
    healthy = Ask((1, 2), (ALONG, "cbb"))
    for num_calls in itertools.count():
        watched = Watched(drafter=make_drafter(), pace=NEVER_WAITS)
        bad = watched.start(Ask(texts=texts), ready(ToyGrammar(texts, failing_after(num_calls))))
        good, free = watched.start(healthy), watched.start(LONG)
        watched.run()
        healthy.check(good)
        LONG.check(free)
        if bad.error is None:  # it came to its end before
            break
        assert isinstance(bad.error, EngineError)
        assert str(bad.error) == "the grammar failed: limit reached"
    assert num_calls > 20


@pytest.mark.parametrize(
    ("what", "step", "unharmed"),
    [
        ("forward", 1, 0),  # the step of the second, launched while that of the first runs
        ("sample", 1, 0),
        ("read", 0, 1),
        ("read", 1, 0),
    ],
)
def test_a_fault_in_one_of_two_steps_leaves_those_of_the_other_alone(what, step, unharmed, caplog):
    # Step 0 is the first's alone; it guesses, so it is held; step 1 is the second's alone.
    watched = Watched(drafter=GuessFor(0), pace=NEVER_WAITS)
    recorder = Recorder(watched.toy)
    recorder.faults[step] = what
    asks = [LONG, Ask((2, 1), max_tokens=6, ignore_eos=True)]
    requests = [watched.start(asks[0])]
    watched.step()
    requests.append(watched.start(asks[1]))
    watched.run()
    assert recorder.of("forward")[:2] == [[0], [1]]
    asks[unharmed].check(requests[unharmed])
    error = requests[1 - unharmed].error
    assert isinstance(error, EngineError) and f"{what} of step {step}" in str(error)


@pytest.mark.parametrize("pace", [ALWAYS_WAITS, NEVER_WAITS], ids=["waits", "runs-ahead"])
@pytest.mark.parametrize("what", ["forward", "sample", "read"])
def test_after_a_fault_everybody_in_that_step_is_told_once_and_the_engine_goes_on(
    pace, what, caplog
):
    for step in range(4):
        watched = Watched(drafter=ForcedDrafter(VOCABULARY), pace=pace)
        recorder = Recorder(watched.toy)
        recorder.faults[step] = what
        requests = [watched.start(LONG), watched.start(Ask(texts=("cb" * 20,), max_tokens=20))]
        watched.run()
        assert all(f"{what} of step {step}" in str(request.error) for request in requests)
        after = watched.start(LONG)
        watched.run()
        LONG.check(after)
        assert watched.toy.block_manager.num_free_blocks == watched.toy.block_manager.num_blocks


def listened(loop: EngineLoop, requests: Sequence[Request]) -> list[queue.SimpleQueue[News]]:
    queues: list[queue.SimpleQueue[News]] = [queue.SimpleQueue() for _ in requests]
    for request, news in zip(requests, queues, strict=True):
        loop.submit(request, news.put)
    return queues


def last_news(news: queue.SimpleQueue[News]) -> Request:
    while (item := news.get(timeout=10)).finished is None:
        pass
    assert news.empty()
    return item.finished


@pytest.mark.parametrize("by", ["closing", "cancelling"])
def test_ending_everything_with_a_step_in_flight_tells_everybody_once(by):
    watched = Watched(make_config(num_blocks=2000), RestlessDrafter(0))
    loop = EngineLoop(lambda: watched.toy.engine)
    params = LONG.start(ToyEngine(make_config(), RandomDrafter(0))).params
    requests = [Request(i, [i % 4], params, max_tokens=10**6) for i in range(4)]
    queues = listened(loop, requests)
    for news in queues:
        news.get(timeout=10)
    if by == "cancelling":
        for request in requests:
            loop.cancel(request)
        assert [last_news(news) for news in queues] == requests
    loop.close()
    if by == "closing":
        assert [last_news(news) for news in queues] == requests
    assert all(request.finish_reason == "cancelled" for request in requests)
    assert watched.toy.block_manager.num_free_blocks == 2000


def test_a_fault_behind_a_step_that_was_waited_for_does_not_end_the_loop(caplog):
    watched = Watched(drafter=Plain(), pace=ALWAYS_WAITS)
    Recorder(watched.toy).faults[2] = "forward"
    loop = EngineLoop(lambda: watched.toy.engine)
    params = LONG.start(ToyEngine(make_config(), RandomDrafter(0))).params
    for request_id in range(2):
        (news,) = listened(loop, [Request(request_id, [0, 1], params, max_tokens=6)])
        error = last_news(news).error
        assert (error is None) == (request_id == 1)
    loop.close()


def test_what_finished_in_a_step_that_then_breaks_the_engine_is_told_all_the_same(caplog):
    watched = Watched(drafter=Plain(), pace=ALWAYS_WAITS)
    schedule = watched.toy.scheduler.schedule
    loop = EngineLoop(lambda: watched.toy.engine)

    def explode(**_: bool) -> Batch:
        batch = schedule()
        if not batch.requests and request.num_output_tokens:
            raise RuntimeError("no more memory")
        return batch

    watched.toy.scheduler.schedule = explode
    params = LONG.start(ToyEngine(make_config(), RandomDrafter(0))).params
    request = Request(0, [0, 1], params, max_tokens=2)
    (news,) = listened(loop, [request])
    assert last_news(news).finish_reason == "length"
    loop.close()
