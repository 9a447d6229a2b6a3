"""Calls from threads to an event loop: all of them, in order, with few wake-ups."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

from structspec.event_loop import handed_over_together, in_event_loop


def test_every_call_of_every_thread_is_made_in_its_order() -> None:
    heard: list[tuple[int, int]] = []

    async def listen() -> None:
        tell = in_event_loop(heard.append)
        threads = [
            threading.Thread(target=lambda i=i: [tell((i, j)) for j in range(500)])
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for _ in range(2000):
            if len(heard) == 2000:
                break
            await asyncio.sleep(0.005)

    asyncio.run(listen())
    for i in range(4):
        assert [j for thread, j in heard if thread == i] == list(range(500))


def test_calls_that_come_together_wake_the_loop_once() -> None:
    heard: list[int] = []

    async def listen() -> int:
        loop = asyncio.get_running_loop()
        wake, wakes = loop.call_soon_threadsafe, []
        loop.call_soon_threadsafe = lambda *call: wakes.append(wake(*call))  # type: ignore
        tells = [in_event_loop(heard.append) for _ in range(50)]
        for index, tell in enumerate(tells):  # as the engine's thread does within a step
            tell(index)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(wakes)

    assert asyncio.run(listen()) == 1
    assert heard == list(range(50))


def test_one_call_that_raises_costs_the_others_nothing() -> None:
    heard: list[int] = []

    def fail(value: int) -> None:
        raise ValueError(value)

    async def listen() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        for call in (heard.append, fail, heard.append):
            in_event_loop(call)(1)
        await asyncio.sleep(0.01)

    asyncio.run(listen())
    assert heard == [1, 1]


def test_a_loop_that_is_gone_is_told_nothing_and_not_kept() -> None:
    async def make() -> tuple[Callable[[int], None], weakref.ref]:
        return in_event_loop(print), weakref.ref(asyncio.get_running_loop())

    tell, loop = asyncio.run(make())
    gc.collect()
    tell(3)
    tell(4)
    assert loop() is None


def test_a_loop_is_woken_when_all_that_belongs_together_was_told() -> None:
    heard: list[int] = []
    wakes_within: list[int] = []

    async def listen() -> int:
        loop = asyncio.get_running_loop()
        wake, wakes = loop.call_soon_threadsafe, []
        loop.call_soon_threadsafe = lambda *call: wakes.append(wake(*call))  # type: ignore
        tells = [in_event_loop(heard.append) for _ in range(3)]

        def tell_all() -> None:
            with handed_over_together():
                for index, tell in enumerate(tells):
                    tell(index)
                    wakes_within.append(len(wakes))

        thread = threading.Thread(target=tell_all)
        thread.start()
        thread.join()
        wakes_for_news = len(wakes)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return wakes_for_news

    assert asyncio.run(listen()) == 1
    assert wakes_within == [0, 0, 0]
    assert heard == [0, 1, 2]
