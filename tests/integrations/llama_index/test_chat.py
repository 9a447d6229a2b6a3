"""Chat and completion, whole and streamed, blocking and awaited, and what is told of them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.callbacks import (
    CallbackManager,
    CBEventType,
    LlamaDebugHandler,
    TokenCountingHandler,
)
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.rate_limiter import TokenBucketRateLimiter

from structspec import InvalidRequest, OutputInvalid, ServerError, Truncated
from structspec.integrations.llama_index import StructSpec
from tests.integrations.llama_index.classes import Flat
from tests.integrations.llama_index.scripted import Scripted, streamed

ASK = [ChatMessage(content="Hi")]
SHORT = {"max_tokens": 12}


def text_of(response: Any) -> str:
    return response.message.content if hasattr(response, "message") else response.text


def whole(llm: StructSpec, **options: Any) -> list[Any]:
    async def both() -> list[Any]:
        return [await llm.achat(ASK, **options), await llm.acomplete("Hi", **options)]

    return [llm.chat(ASK, **options), llm.complete("Hi", **options), *asyncio.run(both())]


def in_pieces(llm: StructSpec, **options: Any) -> list[list[Any]]:
    async def both() -> list[list[Any]]:
        chat = await llm.astream_chat(ASK, **options)
        completion = await llm.astream_complete("Hi", **options)
        return [[one async for one in chat], [one async for one in completion]]

    streams = [[*llm.stream_chat(ASK, **options)], [*llm.stream_complete("Hi", **options)]]
    return [*streams, *asyncio.run(both())]


def test_it_is_an_llm_of_llama_index(toy: StructSpec) -> None:
    assert isinstance(toy, FunctionCallingLLM)
    assert "BaseLLM" in [one.__name__ for one in StructSpec.__mro__]
    assert not StructSpec.__abstractmethods__ and issubclass(StructSpec, BaseLLM)


def test_it_needs_no_other_makers_package() -> None:
    assert importlib.util.find_spec("openai") is None


def test_the_system_prompt_is_in_every_call() -> None:
    prompt = PromptTemplate("Hi")
    ways: list[Callable[[StructSpec], Any]] = [
        lambda llm: llm.chat(ASK),
        lambda llm: llm.complete("Hi"),
        lambda llm: llm.predict(prompt),
        lambda llm: asyncio.run(llm.achat(ASK)),
        lambda llm: asyncio.run(llm.acomplete("Hi")),
        lambda llm: asyncio.run(llm.apredict(prompt)),
        lambda llm: [*llm.stream_chat(ASK)],
        lambda llm: [*llm.stream_complete("Hi")],
        lambda llm: [*llm.stream(prompt)],
    ]
    for way in ways:
        scripted = Scripted("x", system_prompt="Be kind.")
        way(scripted.llm)
        assert scripted.asked == [("system", "Be kind."), ("user", "Hi")]


def test_completion_to_prompt_is_asked_unless_the_prompt_is_formatted() -> None:
    for is_formatted, text in ((False, "Say: Hi"), (True, "Hi")):
        scripted = Scripted("x", completion_to_prompt=lambda said: f"Say: {said}")
        scripted.llm.complete("Hi", formatted=is_formatted)
        assert scripted.asked == [("user", text)]


def test_all_eight_ways_say_the_same(toy: StructSpec) -> None:
    texts = {text_of(response) for response in whole(toy, **SHORT)}
    streams = in_pieces(toy, **SHORT)
    assert {text_of(stream[-1]) for stream in streams} == texts
    assert len(texts) == 1


def test_pieces_add_up_and_each_response_holds_all_before_it(toy: StructSpec) -> None:
    for stream in in_pieces(toy, **SHORT):
        text = ""
        for response in stream:
            text += response.delta
            assert text_of(response) == text
        assert [one.raw is None for one in stream] == [True] * (len(stream) - 1) + [False]


def test_usage_stands_where_llama_index_looks_for_it(toy: StructSpec) -> None:
    lasts = [stream[-1] for stream in in_pieces(toy, **SHORT)]
    for response in (*whole(toy, **SHORT), *lasts):
        usage = response.raw["usage"]
        assert usage["prompt_tokens"] > 2 and usage["completion_tokens"] == 12
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert response.additional_kwargs == {
            name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        }
        assert response.raw["finish_reason"] == "length"
        json.dumps(response.raw)


def test_options_of_the_object_and_of_the_call(toy: StructSpec) -> None:
    made = StructSpec(engine=toy._engine, max_tokens=3, additional_kwargs={"ignore_eos": True})
    assert made.chat(ASK).raw["usage"]["completion_tokens"] == 3
    assert made.chat(ASK, max_tokens=4).raw["usage"]["completion_tokens"] == 4
    assert made.chat(ASK, max_tokens=None).raw["usage"]["completion_tokens"] == 3
    assert made.chat(ASK, choices=["yes", "no"], ignore_eos=False).raw["value"] in ("yes", "no")
    flag = made.chat(ASK, schema=bool, ignore_eos=False, max_tokens=9)
    assert flag.raw["value"] in (True, False)


def test_options_about_constraints_are_for_calls_that_have_one(toy: StructSpec) -> None:
    more = {"seed": 3, "style": "compact", "max_attempts": 2}
    compact = StructSpec(engine=toy._engine, temperature=1, additional_kwargs=more)
    text = compact.chat(ASK, schema={"enum": [[1, 2]]}).message.content
    assert text == "[1,2]"
    assert compact.chat(ASK, **SHORT).message.content == toy.chat(ASK, **SHORT).message.content
    with pytest.raises(InvalidRequest, match="style must be one of"):
        StructSpec(engine=toy._engine, additional_kwargs={"style": "tight"})


def test_logprobs_are_those_of_the_text(toy: StructSpec) -> None:
    response = toy.chat(ASK, max_tokens=5, logprobs=2)
    assert len(response.logprobs) == 5
    for own, *others in response.logprobs:
        assert own.logprob <= 0 and len(others) in (1, 2)
        assert own.bytes not in [one.bytes for one in others]
    assert toy.chat(ASK, max_tokens=5).logprobs is None


def test_thoughts_are_kept_and_told_as_they_come() -> None:
    message = {"content": "Hi.", "reasoning_content": "A greeting."}
    response = Scripted(message).llm.chat(ASK)
    assert [one.block_type for one in response.message.blocks] == ["thinking", "text"]
    assert response.message.blocks[0].content == "A greeting."
    deltas = ({"reasoning_content": "A "}, {"reasoning_content": "greeting."}, {"content": "Hi."})
    *pieces, last = Scripted(streamed(*deltas)).llm.stream_chat(ASK)
    told = [one.additional_kwargs.get("thinking_delta") for one in pieces]
    assert told == ["A ", "greeting.", None]
    assert last.message.blocks[0].content == "A greeting." and last.message.content == "Hi."


# what is wrong


def test_what_there_is_not_is_refused_where_it_is_said(toy: StructSpec) -> None:
    engine = toy._engine
    for fields, told in (
        ({"temperatur": 1}, "did you mean temperature="),
        ({"top_p": 0.5}, "additional_kwargs"),
        ({"additional_kwargs": {"top_q": 1}}, "top_q"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
    ):
        with pytest.raises(InvalidRequest, match=told):
            StructSpec(engine=engine, **fields)
    with pytest.raises(InvalidRequest, match="which model"):
        StructSpec()
    with pytest.raises(InvalidRequest, match="LLM, AsyncLLM or Client"):
        StructSpec(engine="smollm2-135m")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="no model 'other'"):
        StructSpec("other", engine=engine)
    with pytest.raises(InvalidRequest, match="top_q"):
        toy.chat(ASK, top_q=1)


def test_errors_are_typed_and_say_what_there_is(toy: StructSpec) -> None:
    with pytest.raises(Truncated) as cut:
        toy.structured_predict(Flat, PromptTemplate("x"), llm_kwargs={"max_tokens": 3})
    assert cut.value.usage.completion_tokens == 3
    with pytest.raises(Truncated):
        [*toy.stream_structured_predict(Flat, PromptTemplate("x"), llm_kwargs={"max_tokens": 3})]
    with pytest.raises(OutputInvalid) as invalid:
        Scripted('{"name": 1}').llm.structured_predict(Flat, PromptTemplate("x"))
    assert "#/name" in str(invalid.value) and invalid.value.usage.completion_tokens == 9
    refused = (401, {"error": {"message": "no such key"}})
    with pytest.raises(ServerError):
        Scripted(refused).llm.chat(ASK)


# who is told


def test_callbacks_hear_of_every_call_and_count_its_tokens(toy: StructSpec) -> None:
    debug, counter = LlamaDebugHandler(print_trace_on_end=False), TokenCountingHandler()
    llm = StructSpec(
        engine=toy._engine, callback_manager=CallbackManager([debug, counter]), max_tokens=3
    )
    whole(llm)
    in_pieces(llm)
    assert len(debug.get_event_pairs(CBEventType.LLM)) == 8
    assert counter.completion_llm_token_count == 8 * 3
    with pytest.raises(InvalidRequest):
        llm.chat(ASK, top_q=1)
    assert len(debug.get_event_pairs(CBEventType.LLM)) == 9


class Heard(BaseEventHandler):
    names: list[str] = []

    @classmethod
    def class_name(cls) -> str:
        return "Heard"

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.names.append(event.class_name())


@pytest.fixture
def heard() -> Any:
    handler, dispatcher = Heard(), get_dispatcher()
    dispatcher.add_event_handler(handler)
    yield handler
    dispatcher.event_handlers.remove(handler)


@pytest.mark.parametrize("is_async", [False, True])
def test_predictions_are_told_as_llama_index_tells_its_own(heard: Heard, is_async: bool) -> None:
    llm, prompt = Scripted('{"name": "A", "age": 3}').llm, PromptTemplate("x")
    if is_async:
        asyncio.run(llm.astructured_predict(Flat, prompt))
    else:
        llm.structured_predict(Flat, prompt)
    assert heard.names == [
        "LLMStructuredPredictStartEvent",
        "LLMChatStartEvent",
        "LLMChatEndEvent",
        "LLMStructuredPredictEndEvent",
    ]


def test_no_key_is_told_and_no_server_asked_for_it(heard: Heard) -> None:
    scripted = Scripted("x", api_key="secret", base_url="http://somewhere")
    assert "secret" not in str(scripted.llm.to_payload())
    assert scripted._fake.asked == []


def test_a_rate_limiter_is_waited_for() -> None:
    waited: list[str] = []

    class Limiter(TokenBucketRateLimiter):
        def acquire(self, *args: Any, **kwargs: Any) -> None:
            waited.append("here")

    Scripted("x", rate_limiter=Limiter(requests_per_minute=60)).llm.chat(ASK)
    assert waited == ["here"]


# many at once


def test_threads_share_an_object_and_each_has_its_own_answer(toy: StructSpec) -> None:
    alone = [toy.chat(ASK, seed=seed, **SHORT).message.content for seed in range(6)]
    found: dict[int, str | None] = {}

    def ask(seed: int) -> None:
        found[seed] = toy.chat(ASK, seed=seed, **SHORT).message.content

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(6)] == alone


def test_tasks_share_an_object_in_one_event_loop_after_the_other(toy: StructSpec) -> None:
    async def ask() -> list[str | None]:
        responses = await asyncio.gather(*(toy.achat(ASK, seed=s, **SHORT) for s in range(4)))
        return [one.message.content for one in responses]

    assert asyncio.run(ask()) == asyncio.run(ask())


def test_leaving_a_stream_cancels_its_request(toy: StructSpec) -> None:
    endless = {"max_tokens": 1500, "ignore_eos": True}
    stream = toy.stream_chat(ASK, **endless)
    next(stream)
    stream.close()
    toy.stream_chat(ASK, **endless).close()

    async def leave() -> None:
        stream = await toy.astream_chat(ASK, **endless)
        await anext(stream)
        await stream.aclose()

    asyncio.run(leave())
    toy.chat(ASK, max_tokens=1)  # by then the engine has heard of it
    assert toy._engine.metrics().num_requests_running == 0


def test_cancelling_a_task_cancels_its_request(toy: StructSpec) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(toy.achat(ASK, max_tokens=1500, ignore_eos=True))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    toy.chat(ASK, max_tokens=1)
    assert toy._engine.metrics().num_requests_running == 0
