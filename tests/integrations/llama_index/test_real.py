"""On SmolLM2: agents in their loops, and a query engine whose answers are objects."""

import re
from typing import Annotated, Any

import pytest
from llama_index.core import Settings
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel, Field

from structspec.integrations.llama_index import StructSpec
from structspec.integrations.llama_index_react import react_options
from tests.integrations.llama_index.running import run
from tests.integrations.llama_index.test_agents import events_of
from tests.integrations.llama_index.toy_index import index_of

Small = Annotated[int, Field(ge=0, le=99)]


class Numbers(BaseModel):
    a: Small
    b: Small


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = FunctionTool.from_defaults(add, fn_schema=Numbers)
TEXTS = (
    "Mount Elbert is a mountain in Colorado. It is 4401 metres high.",
    "The river Elbe is 1094 kilometres long and flows into the North Sea.",
    "A common swift weighs about 40 grams and sleeps in the air.",
)


def test_a_function_agent_goes_round_its_loop(real: StructSpec) -> None:
    agent = FunctionAgent(
        tools=[ADD], llm=real, initial_tool_choice="add", early_stopping_method="generate"
    )
    output, results = run(events_of(agent, ToolCallResult, max_iterations=3))
    first, *_ = results
    assert (first.tool_name, first.tool_kwargs) == ("add", {"a": 3, "b": 4})
    assert all(one.tool_output.raw_output == sum(one.tool_kwargs.values()) for one in results)
    assert output.response.content


def test_a_react_agent_goes_round_its_loop_and_is_always_understood(real: StructSpec) -> None:
    options = react_options([ADD], max_thought=40, max_answer=60)
    llm = StructSpec(engine=real._engine, temperature=0, additional_kwargs=options)
    agent = ReActAgent(tools=[ADD], llm=llm, early_stopping_method="generate")
    output, results = run(events_of(agent, ToolCallResult, max_iterations=3))
    assert results or output.response.content
    assert all(one.tool_output.raw_output == sum(one.tool_kwargs.values()) for one in results)
    assert output.retry_messages == []


class Answer(BaseModel):
    """What a text says of a thing."""

    thing: Annotated[str, Field(max_length=30)]
    number: int = Field(ge=0, le=9999)
    unit: Annotated[str, Field(max_length=15)]


@pytest.fixture
def index() -> Any:
    return index_of(TEXTS)


@pytest.mark.parametrize("way", ["output_cls", "as_structured_llm", "tree_summarize"])
def test_a_query_engine_answers_with_objects(real: StructSpec, index: Any, way: str) -> None:
    options: dict[str, Any] = {"llm": real, "output_cls": Answer}
    if way == "as_structured_llm":
        options = {"llm": real.as_structured_llm(Answer)}
    elif way == "tree_summarize":
        options["response_mode"] = "tree_summarize"
    engine = index.as_query_engine(similarity_top_k=1, **options)
    response = engine.query("How high is Mount Elbert?")
    assert [node.text for node in response.source_nodes] == [TEXTS[0]]
    assert isinstance(response.response, Answer) and response.response.number == 4401


def test_a_query_engine_answers_in_words(real: StructSpec, index: Any) -> None:
    engine = index.as_query_engine(llm=real, similarity_top_k=1, streaming=True)
    text = "".join(engine.query("How high is Mount Elbert, in metres?").response_gen)
    assert re.search(r"4,?401", text)


def test_the_tokenizer_counts_for_llama_index(real: StructSpec) -> None:
    before = Settings.tokenizer
    try:
        Settings.tokenizer = real.tokenizer
        assert len(Settings.tokenizer("Mount Elbert")) == len(real.tokenizer("Mount Elbert")) > 1
    finally:
        Settings.tokenizer = before
