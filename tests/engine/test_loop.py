"""The engine's thread: whoever waits for it hears from it, whatever happens to it."""

import gc
import queue
import weakref
from concurrent.futures import Future

import pytest

from structspec.config import EngineConfig
from structspec.engine.engine import Engine
from structspec.engine.loop import EngineLoop, News
from structspec.errors import Cancelled, EngineError
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from tests.engine.toy import VOCABULARY, RandomDrafter, ToyEngine, greedy_alone
from tests.engine.toy_grammar import ToyGrammar


@pytest.fixture
def toy() -> ToyEngine:
    return ToyEngine(EngineConfig(block_size=2, num_blocks=40), RandomDrafter(0))


def request_for(prompt: list[int], request_id: int = 0) -> Request:
    return Request(request_id, prompt, SamplingParams(), max_tokens=6)


def test_news_joins_to_the_text_and_ends_with_the_finished_request(toy: ToyEngine):
    loop = EngineLoop(lambda: toy.engine)
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    request = request_for([0, 1])
    loop.submit(request, news.put)
    items = [news.get(timeout=10)]
    while items[-1].finished is None:
        items.append(news.get(timeout=10))
    loop.close()
    assert items[-1].finished is request
    assert "".join(item.text for item in items) == request.text.text
    assert request.output_token_ids == greedy_alone([0, 1], 6)


def test_a_closed_loop_takes_no_requests_and_closing_twice_is_fine(toy: ToyEngine):
    loop = EngineLoop(lambda: toy.engine)
    loop.close()
    loop.close()
    with pytest.raises(Cancelled, match="closed"):
        loop.submit(request_for([0]), lambda news: None)
    loop.cancel(request_for([0]))


def test_cancelling_what_was_never_submitted_or_has_finished_disturbs_nobody(toy: ToyEngine):
    loop = EngineLoop(lambda: toy.engine)
    loop.cancel(request_for([0], 7))
    for _ in range(2):
        news: queue.SimpleQueue[News] = queue.SimpleQueue()
        request = request_for([0, 1])
        loop.submit(request, news.put)
        while news.get(timeout=10).finished is None:
            pass
        loop.cancel(request)
        assert request.error is None
    loop.close()


def test_a_grammar_that_is_ready_right_behind_a_step_is_not_slept_over():
    config = EngineConfig(block_size=2, num_blocks=40)
    toy = ToyEngine(config, RandomDrafter(0), masker=Masker(VOCABULARY))
    request = Request(0, [0, 1], SamplingParams(), 6, compiled=Future())
    loop = EngineLoop(lambda: toy.engine)
    sleeps: list[bool] = []  # for each, whether there was something to do
    step, wait = toy.engine.step, loop._wake.wait

    def step_then_compiled() -> list[Request]:
        news = step()
        if toy.engine.is_idle and toy.scheduler.running and not request.compiled.done():
            request.compiled.set_result(ToyGrammar(("cbc",)))
        return news

    def watched_wait(timeout: float | None) -> bool:
        sleeps.append(request.compiled.done() and not request.is_finished)
        return wait(timeout)

    toy.engine.step, loop._wake.wait = step_then_compiled, watched_wait
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    loop.submit(request, news.put)
    while news.get(timeout=10).finished is None:
        pass
    loop.close()
    assert request.text.text == "cbc" and not any(sleeps)


class Panic(BaseException):
    """As Rust libraries raise, past every `except Exception`."""


@pytest.mark.parametrize("kind", [RuntimeError, Panic])
def test_when_the_thread_fails_everybody_is_told_what_happened(
    toy: ToyEngine, kind: type[BaseException], caplog
):
    def explode(**_: bool) -> None:
        raise kind("no more memory")

    toy.scheduler.schedule = explode  # type: ignore[method-assign, assignment]
    loop = EngineLoop(lambda: toy.engine)
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    try:
        loop.submit(request_for([0]), news.put)
        error = news.get(timeout=10).finished.error  # type: ignore[union-attr]
    except EngineError as caught:  # the thread was quicker
        error = caught
    assert isinstance(error, EngineError) and "no more memory" in str(error)
    loop.close()
    with pytest.raises(EngineError, match="no more memory"):
        loop.submit(request_for([0], 1), news.put)


@pytest.mark.parametrize("is_closed", [False, True], ids=["running", "closing"])
def test_a_listener_that_fails_keeps_no_news_from_the_others(toy: ToyEngine, is_closed, caplog):
    def deaf(news: News) -> None:
        raise RuntimeError("who listens?")

    loop = EngineLoop(lambda: toy.engine)
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    requests = [request_for([0, 1], index) for index in range(2)]
    for request, listener in zip(requests, (deaf, news.put), strict=True):
        loop.submit(request, listener)
    if is_closed:
        loop.close()
    while news.get(timeout=10).finished is None:
        pass
    loop.close()
    assert all(request.is_finished for request in requests)
    assert "who listens?" in caplog.text


def test_what_goes_wrong_while_the_engine_is_built_is_raised_to_who_asked_for_it():
    def build() -> Engine:
        raise FileNotFoundError("weights")

    with pytest.raises(FileNotFoundError, match="weights"):
        EngineLoop(build)


def test_a_closed_loop_keeps_no_engine_alive():
    config = EngineConfig(block_size=2, num_blocks=40)
    engines = [ToyEngine(config, RandomDrafter(0)).engine]
    alive = weakref.ref(engines[0])
    loop = EngineLoop(engines.pop)
    loop.submit(request_for([0, 1]), lambda news: None)
    loop.close()
    gc.collect()
    assert alive() is None
