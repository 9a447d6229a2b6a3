"""generate_batch: many prompts, few at once, in their order, each with its own result."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from structspec import LLM, AsyncLLM, EngineConfig, Generation, InvalidRequest, PromptTooLong
from tests.models.reference import save_tiny_model

DIGIT = {"regex": "[0-9]{3}", "seed": 3, "temperature": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama")
    return folder


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[LLM]:
    with LLM(folder, config=EngineConfig(block_size=4)) as llm:
        yield llm


def test_values_are_those_of_generate_in_the_order_of_the_prompts(tiny: LLM) -> None:
    prompts = [f"Say {i}." for i in range(40)]
    expected = tiny.generate(prompts, **DIGIT)
    assert tiny.generate_batch(prompts, max_in_flight=7, **DIGIT) == expected
    assert len(set(expected)) > 1


def test_prompts_are_taken_from_a_generator_when_there_is_room(tiny: LLM) -> None:
    num_taken = num_ended = most = 0

    def prompts() -> Iterator[str]:
        nonlocal num_taken, most
        for index in range(30):
            num_taken += 1
            most = max(most, num_taken - num_ended)
            yield f"Say {index}."

    def on_result(index: int, result: object) -> None:
        nonlocal num_ended
        num_ended += 1

    values = tiny.generate_batch(prompts(), max_in_flight=4, on_result=on_result, **DIGIT)
    assert (len(values), num_taken, num_ended) == (30, 30, 30)
    assert most == 4


def test_errors_take_their_prompts_places_where_that_is_asked_for(tiny: LLM) -> None:
    told: dict[int, object] = {}
    values = tiny.generate_batch(
        ["a", "x" * 500, "b", 3, "c"],  # type: ignore[list-item]
        return_errors=True,
        on_result=lambda index, result: told.update({index: result}),
        max_in_flight=1,
        **DIGIT,
    )
    kinds = [type(one) for one in values]
    assert kinds == [str, PromptTooLong, str, InvalidRequest, str]
    assert sorted(told) == [0, 1, 2, 3, 4] and told[1] is values[1]


def test_errors_take_their_prompts_places_in_generate_raw_too(tiny: LLM) -> None:
    prompts = ["a", "x" * 500, "b"]
    results = tiny.generate_raw(prompts, return_errors=True, n=2, **DIGIT)
    assert [[type(one) for one in outputs] for outputs in results] == [
        [Generation] * 2, [PromptTooLong] * 2, [Generation] * 2
    ]  # fmt: skip
    assert isinstance(tiny.generate_raw("x" * 500, return_errors=True), PromptTooLong)
    with pytest.raises(PromptTooLong):
        tiny.generate_raw(prompts, **DIGIT)


def test_the_first_error_ends_the_batch_and_leaves_nothing_running(tiny: LLM) -> None:
    num_taken = 0

    def prompts() -> Iterator[str]:
        nonlocal num_taken
        for index in range(100):
            num_taken += 1
            yield "x" * (500 if index == 5 else 1)

    with pytest.raises(PromptTooLong):
        tiny.generate_batch(prompts(), max_in_flight=2, **DIGIT)
    assert num_taken == 6
    assert tiny.generate("a", **DIGIT)


def test_what_a_listener_raises_ends_the_batch(tiny: LLM) -> None:
    def fail(index: int, result: object) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        tiny.generate_batch(["a"] * 9, max_in_flight=2, on_result=fail, **DIGIT)


def test_a_bar_is_shown_where_it_is_asked_for(
    tiny: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = ["a", "x" * 500]
    tiny.generate_batch(prompts, return_errors=True, **DIGIT)
    assert capsys.readouterr().err == ""
    tiny.generate_batch(prompts, return_errors=True, progress=True, **DIGIT)
    shown = capsys.readouterr()
    assert "2/2" in shown.err and "1 failed" in shown.err and shown.out == ""


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """As on a terminal: what a shell starts in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_a_batch_and_leaves_nothing_running(tiny: LLM) -> None:
    main = threading.get_ident()

    def interrupt_soon() -> Iterator[str]:
        for index in range(1000):
            if index == 3:
                threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
            yield "Say it."

    with pytest.raises(KeyboardInterrupt):
        while True:  # the signal comes while it waits, or soon after
            tiny.generate_batch(interrupt_soon(), max_in_flight=4, **DIGIT)
    deadline = time.monotonic() + 30
    while (now := tiny.metrics()).num_requests_running or now.num_requests_waiting:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert tiny.generate("a", **DIGIT)


def test_a_batch_goes_on_where_it_was_broken_off(tiny: LLM) -> None:
    """What `on_result` has stored is not generated again, and all comes out as in one go."""
    stored: dict[int, str] = {}
    prompts = [f"Say {i}." for i in range(9)]

    def store(index: int, result: object) -> None:
        assert isinstance(result, Generation)
        stored[index] = result.value
        if len(stored) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.generate_batch(prompts, max_in_flight=2, on_result=store, **DIGIT)
    left = [index for index in range(9) if index not in stored]
    assert len(left) == 5
    values = tiny.generate_batch([prompts[index] for index in left], **DIGIT)
    whole = stored | dict(zip(left, values, strict=True))
    assert [whole[index] for index in range(9)] == tiny.generate(prompts, **DIGIT)


@pytest.mark.parametrize(
    ("prompts", "changes"), [("one", {}), (3, {}), (["a"], {"max_in_flight": 0})]
)
def test_what_is_no_batch_is_refused(tiny: LLM, prompts: object, changes: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        tiny.generate_batch(prompts, **changes)  # type: ignore[call-overload]


def test_no_prompts_give_no_values(tiny: LLM) -> None:
    assert tiny.generate_batch([], **DIGIT) == []


def test_it_can_be_awaited_and_cancelled(tiny: LLM, folder: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(folder, config=EngineConfig(block_size=4)) as twin:
            prompts = [f"Say {i}." for i in range(9)]
            values = await twin.generate_batch(prompts, max_in_flight=2, **DIGIT)
            assert values == tiny.generate(prompts, **DIGIT)
            endless = asyncio.create_task(twin.generate_batch("a" for _ in iter(int, 1)))
            await asyncio.sleep(0.1)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless

    asyncio.run(main())
