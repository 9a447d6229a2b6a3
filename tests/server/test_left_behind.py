"""What requests leave behind them: nothing of their own, whatever became of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
from starlette.testclient import TestClient

from structspec import LLM, Choice, GrammarCompiler, Vocabulary
from structspec.options import resolve_options
from structspec.request import Request
from structspec.server.app import make_app
from structspec.server.runs import read_all
from structspec.server.settings import ServerSettings
from structspec.service import Service
from tests.server.conftest import json_schema
from tests.server.toy import save_toy

NUM_LATEST = 8  # the drafter and the engine look at their last step's until there is another


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(save_toy(tmp_path_factory.mktemp("toy")), device="cpu") as llm:
        yield llm


def alive(kind: type) -> list[Any]:
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is kind]


def ask(client: TestClient, number: int, *, is_streamed: bool) -> None:
    """A request that is answered, refused or fails, each number another."""
    fields: dict[str, Any] = [
        {"response_format": json_schema({"enum": [number, number + 1]})},
        {"regex": f"[ab]{{{1 + number % 7}}}"},
        {"structured_outputs": {"choice": ["yes", f"no {number}"]}},
        {"ignore_eos": True},
        {"regex": "("},
        {"response_format": json_schema({"type": "nonsense"})},
    ][number % 6]
    body = {"messages": [{"role": "user", "content": f"{number}?"}], "max_tokens": 12, **fields}
    answer = client.post("/v1/chat/completions", json={**body, "stream": is_streamed})
    assert answer.status_code == (400 if number % 6 >= 4 else 200), answer.text


def test_requests_are_gone_once_they_are_answered(toy: LLM):
    before = len(alive(Request))
    with TestClient(make_app(toy._service, ServerSettings("toy"))) as client:
        for number in range(24):
            ask(client, number, is_streamed=number % 2 == 0)
    assert len(alive(Request)) <= before + NUM_LATEST


async def leave_all(service: Service, num_requests: int) -> None:
    """As many streams as that; each is left behind its first piece."""
    task = resolve_options({"max_tokens": 1500, "ignore_eos": True})
    begun = asyncio.Barrier(num_requests)

    async def stream(number: int) -> None:
        prepared = [service.prepare(f"{number}?", task)]
        async with aclosing(read_all(service, prepared)) as pieces:
            await anext(pieces)
            await begun.wait()

    await asyncio.gather(*(stream(number) for number in range(num_requests)))


def test_whoever_leaves_gives_back_all_blocks_in_the_next_step(toy: LLM):
    service = toy._service
    before = len(alive(Request))
    asyncio.run(leave_all(service, 8))
    toy.generate("A step.", max_tokens=1)
    assert service.metrics().kv_cache_usage_perc == 0
    assert len(alive(Request)) <= before + NUM_LATEST


def test_grammars_that_nobody_uses_go_when_others_come():
    with GrammarCompiler(Vocabulary.bytes(), cache_size=4, num_threads=2) as compiler:
        kind = type(compiler.submit(Choice(("yes", "no"))).result())
        others = len(alive(kind))
        for number in range(30):
            compiler.submit(Choice((str(number), "no"))).result()
        assert len(alive(kind)) <= others + 4 + 2  # each thread may still have its last one
