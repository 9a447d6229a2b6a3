"""ChatStructSpec as a Runnable: chains, batches, events, callbacks, caches, copies, threads."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from pydantic import BaseModel, Field

from structspec import LLM, AsyncLLM
from structspec.errors import InvalidRequest, Truncated
from structspec.hooks import HookEvent
from structspec.integrations.langchain import ChatStructSpec


class City(BaseModel):
    city: str = Field(max_length=12)


class InFlight:
    """Hooks that know how many requests there were at most at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def begun(self, event: HookEvent) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def done(self, event: HookEvent) -> None:
        self.now -= 1


IN_FLIGHT = InFlight()


@pytest.fixture(scope="module")
def engine() -> Iterator[AsyncLLM]:
    llm = AsyncLLM("smollm2-135m", hooks={"request": IN_FLIGHT.begun, "done": IN_FLIGHT.done})
    yield llm
    llm.close()


@pytest.fixture
def long(engine: AsyncLLM) -> ChatStructSpec:
    """Answers of 24 tokens, so that the first is not done before the last is asked for."""
    IN_FLIGHT.most = 0
    return ChatStructSpec(engine=engine, temperature=0, min_tokens=24, max_tokens=24)


PROMPTS = [f"Say something about the number {number}." for number in range(12)]


def test_a_batch_is_in_the_engine_together_and_answers_in_order(long: ChatStructSpec) -> None:
    chain = ChatPromptTemplate.from_template("{about}") | long | StrOutputParser()
    texts = chain.batch([{"about": prompt} for prompt in PROMPTS])
    assert IN_FLIGHT.most > 10
    assert texts[3] == long.invoke(PROMPTS[3]).text
    assert len({*texts}) > 6


async def test_an_asynchronous_batch_is_too(long: ChatStructSpec) -> None:
    messages = await long.abatch(PROMPTS)
    assert IN_FLIGHT.most > 10
    assert [one.usage_metadata["output_tokens"] for one in messages] == [24] * len(PROMPTS)


def test_max_concurrency_is_kept(long: ChatStructSpec) -> None:
    long.batch(PROMPTS[:6], {"max_concurrency": 2})
    assert IN_FLIGHT.most == 2


def test_an_error_of_a_batch_takes_its_own_place_alone(model: ChatStructSpec) -> None:
    asked = model.with_structured_output(City)
    good, bad, fine = asked.batch(["Paris", [], "Rome"], return_exceptions=True)
    assert isinstance(bad, InvalidRequest)
    assert isinstance(good, City) and isinstance(fine, City)


def test_a_chain_gives_values(model: ChatStructSpec) -> None:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You know geography."), ("human", "What is the capital of {country}?")]
    )
    chain = prompt | model.with_structured_output(City) | (lambda city: city.city.upper())
    assert chain.invoke({"country": "France"}).isupper()


async def test_events_tell_of_the_message_and_the_value(model: ChatStructSpec) -> None:
    asked = model.with_structured_output(City)
    events = [event async for event in asked.astream_events("Paris", version="v2")]
    texts = [e["data"]["chunk"].text for e in events if e["event"] == "on_chat_model_stream"]
    [end] = [e for e in events if e["event"] == "on_chat_model_end"]
    assert "".join(texts) == end["data"]["output"].text
    assert City.model_validate_json("".join(texts)) == events[-1]["data"]["output"]
    assert end["metadata"]["ls_provider"] == "structspec"
    assert end["metadata"]["ls_model_name"] == "smollm2-135m"


class Told(BaseCallbackHandler):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.errors: list[BaseException] = []

    def on_llm_new_token(self, token: str, **kwargs: Any) -> None:
        self.tokens.append(token)

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.errors.append(error)


def test_callbacks_hear_of_text_usage_and_errors(model: ChatStructSpec) -> None:
    told, usage = Told(), UsageMetadataCallbackHandler()
    streamed = [*model.stream("Hello", config={"callbacks": [told, usage]})]
    assert "".join(told.tokens) == "".join(chunk.text for chunk in streamed)
    assert usage.usage_metadata["smollm2-135m"]["output_tokens"] > 0
    with pytest.raises(InvalidRequest):
        model.invoke("Hello", config={"callbacks": [told]}, temperature=-1)
    assert isinstance(told.errors[0], InvalidRequest)


def test_a_cache_knows_a_call_again_by_all_that_its_answer_hangs_on(llm: LLM) -> None:
    cache = InMemoryCache()
    model = ChatStructSpec(engine=llm, cache=cache, temperature=0, max_tokens=4)
    first = model.invoke("Hello")
    before = llm.metrics().generation_tokens
    assert model.invoke("Hello").content == first.content
    assert llm.metrics().generation_tokens == before
    model.invoke("Hello", seed=7)
    model.with_structured_output(City).bind(max_tokens=20).invoke("Hello")
    ChatStructSpec(engine=llm, cache=cache, temperature=0, max_tokens=5).invoke("Hello")
    assert len(cache._cache) == 4


def test_what_fails_may_be_tried_again_or_elsewhere(model: ChatStructSpec) -> None:
    short = model.bind(max_tokens=1, response_format=City)
    with pytest.raises(Truncated):
        short.with_retry(stop_after_attempt=2, wait_exponential_jitter=False).invoke("Paris")
    other = RunnableLambda(lambda _: AIMessage("from elsewhere"))
    assert short.with_fallbacks([other]).invoke("Paris").text == "from elsewhere"


def test_options_are_of_the_model_of_a_binding_or_of_a_call(model: ChatStructSpec) -> None:
    assert model.bind(choices=["yes", "no"]).invoke("Yes or no?").text in ("yes", "no")
    assert model.invoke("A digit.", regex="[0-9]").text.isdigit()
    assert model.invoke("hi", max_tokens=2).usage_metadata["output_tokens"] == 2
    settable = model.configurable_fields(max_tokens=ConfigurableField("length"))
    message = settable.with_config(configurable={"length": 3}).invoke("hi")
    assert message.usage_metadata["output_tokens"] == 3


def test_stop_strings_of_the_model_and_of_a_call_both_stop(model: ChatStructSpec) -> None:
    counting = model.model_copy(update={"stop": "4"})
    ask = "Count: 1, 2, 3, 4, 5, 6, 7. Again:"
    assert "4" not in counting.invoke(ask).text
    text = counting.invoke(ask, stop=["2"]).text
    assert "4" not in text and "2" not in text
    assert model.bind(stop=", 4").invoke(ask).text == counting.invoke(ask, stop=[", 4"]).text


def test_logprobs_are_told_in_openais_form(model: ChatStructSpec) -> None:
    message = model.invoke("hi", logprobs=2, max_tokens=3)
    entries = message.response_metadata["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == message.text
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 2, 2]


def test_tokens_are_counted_as_the_model_reads_them(model: ChatStructSpec) -> None:
    messages = [SystemMessage("Be brief."), HumanMessage("Hello")]
    counted = model.get_num_tokens_from_messages(messages)
    assert counted == model.invoke(messages).usage_metadata["input_tokens"]
    assert model.get_num_tokens("Hello there") == len(model.get_token_ids("Hello there")) == 2

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with_tools = model.bind_tools([add]).invoke(messages)
    counted = model.get_num_tokens_from_messages(messages, tools=[add])
    assert counted == with_tools.usage_metadata["input_tokens"]


def test_models_of_one_name_share_an_engine(llm: LLM) -> None:
    before = llm.metrics().generation_tokens
    hot, cold = (ChatStructSpec(model="smollm2-135m", temperature=t, max_tokens=3) for t in (1, 0))
    hot.invoke("hi")
    cold.invoke("hi")
    assert 2 <= llm.metrics().generation_tokens - before <= 6


def test_a_copy_by_pickle_asks_the_same_model(model: ChatStructSpec) -> None:
    text = model.invoke("Hello").text
    copied = pickle.loads(pickle.dumps(model))
    assert copied.model_dump() == model.model_dump()
    assert copied.invoke("Hello").text == text


def test_a_copy_shares_an_engine_that_was_given_and_a_pickle_says_it_cannot(llm: LLM) -> None:
    model = ChatStructSpec(engine=llm, temperature=0, max_tokens=3)
    for copied in (copy.copy(model), copy.deepcopy(model), model.model_copy(deep=True)):
        assert copied.engine is llm
        assert copied.invoke("Hello").text == model.invoke("Hello").text
    with pytest.raises(InvalidRequest, match="leave engine= out"):
        pickle.dumps(model)


@pytest.mark.parametrize("include_raw", [True, False])
@pytest.mark.parametrize("schema", [City, City.model_json_schema()], ids=["model", "dict"])
def test_what_asks_for_values_can_be_pickled_too(
    model: ChatStructSpec, schema: Any, include_raw: bool
) -> None:
    asked = model.with_structured_output(schema, include_raw=include_raw)
    said, same = pickle.loads(pickle.dumps(asked)).invoke("Paris"), asked.invoke("Paris")
    if include_raw:
        said, same = said["parsed"], same["parsed"]
    assert said == same


def test_threads_may_share_a_model(model: ChatStructSpec) -> None:
    alone = [model.invoke(prompt, max_tokens=8).text for prompt in PROMPTS]
    with ThreadPoolExecutor(12) as threads:
        together = threads.map(lambda prompt: model.invoke(prompt, max_tokens=8).text, PROMPTS)
        assert [*together] == alone


def test_the_profile_tells_what_the_model_can(model: ChatStructSpec, llm: LLM) -> None:
    assert model.profile is not None and model.profile["structured_output"]
    given = ChatStructSpec(engine=llm)
    assert given.profile is not None
    assert given.profile["name"] == given.model == "smollm2-135m"
    assert given.profile["max_input_tokens"] == 8192
    model.invoke("hi", max_tokens=1)
    assert model.profile["max_input_tokens"] == 8192


def test_fields_that_make_no_sense_are_refused(llm: LLM) -> None:
    with pytest.raises(ValueError, match="no field 'temprature'; did you mean temperature=?"):
        ChatStructSpec(model="smollm2-135m", temprature=0)
    with pytest.raises(ValueError, match="engine= and base_url= contradict"):
        ChatStructSpec(engine=llm, base_url="http://localhost")
    with pytest.raises(ValueError, match="engine= runs 'smollm2-135m'"):
        ChatStructSpec(engine=llm, model="another")
    with pytest.raises(InvalidRequest, match="needs model="):
        ChatStructSpec().invoke("hi")
    with pytest.raises(InvalidRequest, match="leave engine= out"):
        ChatStructSpec(engine=llm).invoke("hi", model="another")
