"""Clients do all that LLM does: partial values, items, batches, tools, choices, hooks."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import httpx2
import pytest
from pydantic import AfterValidator, BaseModel, Field

from structspec import (
    AsyncClient,
    Client,
    HookEvent,
    InvalidRequest,
    OutputInvalid,
    PromptTooLong,
    ServerError,
    Truncated,
    Usage,
)
from tests.client.fakes import Connect, Fake, Lines, completion
from tests.client.test_connection import failing

TOO_LONG = failing(400, code="context_length_exceeded")


class Person(BaseModel):
    name: str
    born: int


ADA = '{"name": "Ada", "born": 1815}'


def test_partial_values_grow_to_the_value(connect: Connect) -> None:
    pieces = Lines("".join(map(_chunk, ('{"name": "Ada",', ' "born": 18', "15}"))) + _END)
    *partial, last = connect(Fake("vllm", pieces)).stream_partial("?", schema=Person)
    assert last == Person(name="Ada", born=1815)
    assert all(type(one).__name__ == "PartialPerson" for one in partial)


def test_items_come_one_by_one_and_errors_say_what_was_there(connect: Connect) -> None:
    schema = Annotated[list[Person], Field(max_length=3)]
    fake = Fake("vllm", f"[{ADA}, {ADA}]")
    assert connect(fake).stream_items("?", schema=schema) == [Person(name="Ada", born=1815)] * 2
    broken = Lines(_chunk(f"[{ADA}, ") + 'data: {"error": {"message": "gone", "code": 500}}\n\n')
    with pytest.raises(ServerError, match="gone") as caught:
        connect(Fake("vllm", broken)).stream_items("?", schema=schema)
    assert caught.value.text == f"[{ADA}, "
    cut = Lines(_chunk(f"[{ADA}, ", "length") + _END)
    with pytest.raises(Truncated) as truncated:
        connect(Fake("vllm", cut)).stream_items("?", schema=schema)
    assert truncated.value.text == f"[{ADA}, " and truncated.value.usage == Usage(7, 3)


def _chunk(text: str, reason: str | None = None) -> str:
    choice = {"delta": {"content": text}, "finish_reason": reason}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return f"data: {json.dumps({'choices': [choice], 'usage': usage})}\n\n"


_END = "data: [DONE]\n\n"


class Echo(Fake):
    """Answers with the prompt's number, later ones sooner; some prompts are too long."""

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return super().answer(request)
        body = json.loads(request.content)
        self.bodies.append(body)
        said = body["messages"][-1]["content"]
        if said.startswith("long"):
            return httpx2.Response(TOO_LONG[0], json=TOO_LONG[1])
        return httpx2.Response(200, json=completion(said))


def test_a_batch_keeps_its_order_and_one_failure_touches_no_other(connect: Connect) -> None:
    told: dict[int, Any] = {}
    most = num_taken = 0

    def prompts() -> Iterator[str]:
        nonlocal num_taken, most
        for index in range(20):
            num_taken += 1
            most = max(most, num_taken - len(told))
            yield "long" if index == 5 else str(index)

    values = connect(Echo("vllm")).generate_batch(
        prompts(),
        max_in_flight=3,
        return_errors=True,
        on_result=lambda index, result: told.update({index: result}),
    )
    assert isinstance(values[5], PromptTooLong)
    assert [values[i] for i in range(20) if i != 5] == [str(i) for i in range(20) if i != 5]
    assert sorted(told) == [*range(20)] and most == 3


def test_the_first_error_ends_a_batch(connect: Connect) -> None:
    fake = Echo("vllm")
    with pytest.raises(PromptTooLong):
        connect(fake).generate_batch((f"long {i}" for i in range(99)), max_in_flight=2)
    assert len(fake.bodies) < 10


def test_a_batch_goes_on_where_it_was_broken_off(connect: Connect) -> None:
    """What `on_result` has stored is not asked for again."""
    stored: dict[int, str] = {}
    prompts = [str(i) for i in range(9)]

    def store(index: int, result: Any) -> None:
        stored[index] = result.value
        if len(stored) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connect(Echo("vllm")).generate_batch(prompts, max_in_flight=2, on_result=store)
    fake = Echo("vllm")
    left = [index for index in range(9) if index not in stored]
    values = connect(fake).generate_batch([prompts[index] for index in left])
    assert len(fake.bodies) == 5
    assert stored | dict(zip(left, values, strict=True)) == dict(enumerate(prompts))


class Waiting(httpx2.AsyncBaseTransport):
    """Tells what it is, and then never answers; knows how many requests wait."""

    def __init__(self) -> None:
        self.num_waiting = 0
        self.num_cancelled = 0
        self.is_reached = threading.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            data = [{"id": "toy", "owned_by": "vllm"}]
            version = {"data": data, "version": "0.33.0"}
            return httpx2.Response(200, json=version)
        self.num_waiting += 1
        self.is_reached.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        raise AssertionError


def test_breaking_off_a_blocking_call_closes_its_connections() -> None:
    waiting = Waiting()

    def prompts() -> Iterator[str]:
        yield from "abc"
        assert waiting.is_reached.wait(30)
        raise KeyboardInterrupt  # as by Ctrl-C

    before = {*threading.enumerate()}
    http = httpx2.AsyncClient(transport=waiting)
    with Client("http://x", http_client=http) as client, pytest.raises(KeyboardInterrupt):
        client.generate_batch(prompts())
    assert waiting.num_waiting == waiting.num_cancelled >= 1
    assert {*threading.enumerate()} <= before


def test_closing_a_client_ends_what_waits() -> None:
    waiting = Waiting()
    client = Client("http://x", http_client=httpx2.AsyncClient(transport=waiting))
    pieces = client.stream("?")
    assert waiting.is_reached.wait(30)
    client.close()
    client.close()
    with pytest.raises(Exception, match="cancelled"):
        next(pieces)
    with pytest.raises(Exception, match="closed"):
        client.generate("?")


def test_cancelling_a_task_closes_its_connections() -> None:
    async def main() -> None:
        waiting = Waiting()
        async with AsyncClient("http://x", http_client=httpx2.AsyncClient(transport=waiting)) as c:
            task = asyncio.create_task(c.generate(["a", "b"]))
            while waiting.num_waiting < 2:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert waiting.num_cancelled == 2

    asyncio.run(main())


def test_a_blocking_http_client_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="AsyncClient"):
        Client("http://x", http_client=httpx2.Client())


def add(a: int, b: int = 1) -> int:
    """The sum."""
    return a + b


def calling(name: str, *arguments: str) -> dict[str, Any]:
    functions = [{"name": name, "arguments": one} for one in arguments]
    calls = [{"id": "x", "type": "function", "function": one} for one in functions]
    return {"content": None, "tool_calls": calls, "finish_reason": "tool_calls"}


def test_tools_are_called_and_their_results_told(connect: Connect) -> None:
    fake = Fake("vllm", calling("add", '{"a": 1}', '{"a": 2, "b": 2}'), "It is 2 and 4.")
    run = connect(fake).run_tools("1 + 1, 2 + 2?", [add], tool_choice="required")
    assert (run.answer, run.num_rounds, run.usage) == ("It is 2 and 4.", 2, Usage(14, 6))
    first, second = fake.bodies
    assert (first["tool_choice"], second["tool_choice"]) == ("required", "auto")
    [tool] = first["tools"]
    assert tool["function"]["description"] == "The sum."
    user, calls, one, two = second["messages"]
    assert [message["role"] for message in (user, calls, one, two)] == [
        *("user", "assistant", "tool", "tool")
    ]
    assert json.loads(calls["tool_calls"][1]["function"]["arguments"]) == {"a": 2, "b": 2}
    assert calls["tool_calls"][0]["id"] == one["tool_call_id"] != two["tool_call_id"]
    assert (one["content"], two["content"]) == ("2", "4")


def test_wrong_arguments_are_never_called_with(connect: Connect) -> None:
    fake = Fake("vllm", calling("add", '{"a": "x"}'), calling("add", '{"a": 5}'), "6")
    assert connect(fake).run_tools("?", [add]).answer == "6"
    assert len(fake.bodies) == 3
    with pytest.raises(OutputInvalid, match="'x' is not of type") as caught:
        connect(Fake("vllm", calling("add", '{"a": "x"}'))).run_tools("?", [add], max_attempts=2)
    assert caught.value.usage == Usage(14, 6)


def test_an_answer_of_a_type_is_asked_for_by_itself_where_free_text_came(connect: Connect) -> None:
    fake = Fake("vllm", calling("add", '{"a": 1}'), "It is Ada.", ADA)
    run = connect(fake).run_tools("?", [add], schema=Person)
    assert run.answer == Person(name="Ada", born=1815)
    assert [body["tool_choice"] for body in fake.bodies] == ["auto", "auto", "none"]
    assert ["response_format" in body for body in fake.bodies] == [False, False, True]
    ours = Fake("structspec", ADA)
    assert connect(ours).run_tools("?", [add], schema=Person).answer.born == 1815
    assert ours.body["response_format"]["type"] == "json_schema"  # it unites the two


def test_errors_between_rounds_carry_what_all_of_them_used(connect: Connect) -> None:
    fake = Fake("vllm", calling("add", '{"a": 1}'), failing(500))
    with pytest.raises(ServerError) as caught:
        connect(fake, max_retries=0).run_tools("?", [add])
    assert caught.value.usage == Usage(7, 3)


class Scoring(Fake):
    """Scores texts, as vLLM does and as our own server does; a token is a character's number."""

    LOGPROBS = {"y": -0.5, "e": -0.25, "s": -0.125, "n": -2.0, "o": -0.0625, "<": -1.0}

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if request.method == "GET":
            return super().answer(request)
        body = json.loads(request.content)
        self.bodies.append(body)
        if path == "/tokenize":
            return httpx2.Response(200, json={"tokens": [*map(ord, self.text_of(body))]})
        if path == "/v1/choose":
            told = [{"text": one, "logprob": self.score(one)} for one in body["choices"]]
            usage = {"prompt_tokens": 9, "completion_tokens": 4}
            return httpx2.Response(200, json={"choices": told, "usage": usage})
        assert path == "/v1/completions" and body["prompt_logprobs"] == 0
        choices = []
        for index, tokens in enumerate(body["prompt"]):
            found = [{str(t): {"logprob": self.LOGPROBS.get(chr(t), -9.0)}} for t in tokens[1:]]
            choices.append({"index": index, "prompt_logprobs": [None, *found]})
        usage = {"prompt_tokens": 9, "completion_tokens": 4}
        return httpx2.Response(200, json={"choices": choices[::-1], "usage": usage})

    def text_of(self, body: dict[str, Any]) -> str:
        if "prompt" in body:
            return str(body["prompt"])
        told = "".join(f"{one['role']}:{one['content']}<" for one in body["messages"])
        return f"{told}assistant:" if body["add_generation_prompt"] else told

    def score(self, text: str) -> float:
        return math.fsum(self.LOGPROBS[character] for character in f"{text}<")


@pytest.mark.parametrize("kind", ["structspec", "vllm"])
def test_answers_are_scored_with_what_ends_them(kind: str, connect: Connect) -> None:
    chosen = connect(Scoring(kind)).choose("Really?", ["no", "yes"])
    yes, no = -0.875 - 1, -2.0625 - 1
    assert chosen.logprobs == pytest.approx({"no": no, "yes": yes})
    assert [*chosen.logprobs] == ["no", "yes"] and chosen.best == "yes"
    assert chosen.probs["yes"] == pytest.approx(1 / (1 + math.exp(no - yes)))
    assert chosen.usage == Usage(9, 4)


def test_our_own_server_is_asked_once(connect: Connect) -> None:
    fake = Scoring("structspec")
    connect(fake).choose("Really?", ["no", "yes"])
    assert len(fake.bodies) == 1


@pytest.mark.parametrize("kind", ["sglang", "llama.cpp", "openai", "other", "old vllm"])
def test_who_cannot_score_a_text_is_not_asked_to(kind: str, connect: Connect) -> None:
    fake = Fake(kind)
    with pytest.raises(InvalidRequest, match=kind):
        connect(fake).choose("Really?", ["no", "yes"])
    assert not fake.bodies


class Another(Scoring):
    """Its template puts something into answers that were given."""

    def text_of(self, body: dict[str, Any]) -> str:
        return super().text_of(body).replace("assistant:y", "assistant:<think>y")


def test_a_template_that_writes_answers_otherwise_is_told(connect: Connect) -> None:
    with pytest.raises(InvalidRequest, match="template"):
        connect(Another("vllm")).choose("Really?", ["yes"])


def test_hooks_hear_of_each_attempt(connect: Connect) -> None:
    told: list[HookEvent] = []
    hooks = dict.fromkeys(("request", "first_token", "step", "done", "retry"), told.append)
    fake = Fake("vllm", "4", "5")

    def odd(number: int) -> int:
        assert number % 2, "even"
        return number

    client = connect(fake, hooks=hooks)
    assert client.generate("?", schema=Annotated[int, AfterValidator(odd)]) == 5
    one = ["request", "first_token", "step", "done"]
    assert [event.kind for event in told] == [*one, "retry", *one]
    assert [event.attempt for event in told] == [1] * 5 + [2] * 4
    assert told[3].usage == Usage(7, 3) and isinstance(told[3].result, OutputInvalid)
    assert all(body["stream"] for body in fake.bodies)  # where somebody listens to text


def test_feedback_without_room_is_left_out(connect: Connect) -> None:
    fake = Fake("vllm", "x", TOO_LONG, "y", "3")
    result = connect(fake).generate_raw("?", schema=int, retry_feedback=True)
    assert (result.value, result.num_attempts) == (3, 3)
    assert [len(body["messages"]) for body in fake.bodies] == [1, 3, 1, 3]


def test_a_server_that_fails_in_between_does_not_hide_what_was_used(connect: Connect) -> None:
    fake = Fake("vllm", "x", failing(500))
    with pytest.raises(ServerError) as caught:
        connect(fake, max_retries=0).generate("?", schema=int)
    assert caught.value.usage == Usage(7, 3)
