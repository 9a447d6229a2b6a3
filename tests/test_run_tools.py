"""Python functions as tools: told as JSON schemas, called with typed values, errors told back."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field

from structspec import (
    LLM,
    AsyncLLM,
    EngineConfig,
    GenerationError,
    GrammarError,
    InvalidRequest,
    OutputInvalid,
    ToolCall,
)
from structspec.request import Usage
from structspec.results import Result
from structspec.tool_answer import ToolAnswer, read_answer
from structspec.tool_conversation import ToolConversation, ToolRun
from structspec.tool_functions import to_tool
from tests.models.reference import save_tiny_model

HERMES = "{{ tools }} <tool_call>"


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(BaseModel):
    city: str


def weather(
    place: Place,
    day: Annotated[dt.date, Field(description="in the local calendar")],
    unit: Unit = Unit.C,
) -> dict[str, Any]:
    """The weather of a day.

    Only of the past.
    """
    return {"place": place.city, "year": day.year, "unit": unit, "is_unit": isinstance(unit, Unit)}


def add(a: int, b: int = 1) -> int:
    return a + b


def odd(n: Annotated[int, AfterValidator(lambda n: n // (n % 2))]) -> str:
    """Takes odd numbers only."""
    return str(n)


async def later(seconds: float) -> float:
    await asyncio.sleep(0)
    return seconds


class Greeter:
    def __call__(self, name: str) -> str:
        return f"Hello {name}"

    def leave(self, name: str) -> str:
        return f"Bye {name}"


def test_a_signature_and_its_docstring_are_what_the_model_is_told() -> None:
    function = to_tool(weather).spec["function"]
    assert function["name"] == "weather"
    assert function["description"] == "The weather of a day.\n\nOnly of the past."
    parameters = function["parameters"]
    assert parameters["required"] == ["place", "day"]
    assert list(parameters["properties"]) == ["place", "day", "unit"]
    assert parameters["properties"]["day"]["description"] == "in the local calendar"
    assert "title" not in parameters and "title" not in parameters["properties"]["day"]


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        (
            weather,
            '{"place": {"city": "Ur"}, "day": "2020-01-02"}',
            '{"place":"Ur","year":2020,"unit":"celsius","is_unit":true}',
        ),
        (add, '{"a": 2}', "3"),
        (add, '{"a": 2, "b": 5}', "7"),
        (Greeter(), '{"name": "Ada"}', "Hello Ada"),
        (Greeter().leave, '{"name": "Ada"}', "Bye Ada"),
        (later, '{"seconds": 1.5}', "1.5"),
        (lambda: None, "{}", "null"),
        (lambda: object, "{}", "<class 'object'>"),
        (lambda: 1 // 0, "{}", "Error: ZeroDivisionError: integer division or modulo by zero"),
        (
            add,
            '{"a": "2"}',
            "Error: the arguments are not valid: #/a: '2' is not of type 'integer'",
        ),
        (odd, '{"n": 4}', "Error: ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_arguments_arrive_typed_and_results_and_errors_are_text(
    function: Callable[..., Any], arguments: str, result: str
) -> None:
    tool = to_tool(function)
    assert tool.run(arguments).strip('"') == result
    assert asyncio.run(tool.run_async(arguments)).strip('"') == result


def test_a_coroutine_is_run_where_an_event_loop_runs_already() -> None:
    async def main() -> str:
        return to_tool(later).run('{"seconds": 2}')

    assert asyncio.run(main()) == "2.0"


def test_plain_functions_do_not_keep_the_event_loop_busy() -> None:
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert asyncio.run(to_tool(where).run_async("{}")) == "false"


def nowhere(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def by_place(x: int, /) -> None: ...


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([], "at least one"),
        ([3], "callable"),
        (weather, "list"),
        ([nowhere], "'Missing' is not defined"),
        ([by_place], "by its place"),
        ([lambda x: x], "no name for a tool"),
        ([add, functools.wraps(add)(lambda a: a)], "one name"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(functions: Any, words: str) -> None:
    with pytest.raises((InvalidRequest, GrammarError), match=words):
        talk(functions=functions)


def talk(
    functions: Any = (add, weather), template: str | None = None, **options: Any
) -> ToolConversation:
    rounds, choice = options.pop("max_rounds", 8), options.pop("tool_choice", "auto")
    return ToolConversation("Hi", functions, template, options, rounds, choice)


def says(value: Any) -> Result:
    return SimpleNamespace(value=value, usage=Usage(10, 2))  # type: ignore[return-value]


CALL = ToolCall("add", {"a": 1}, '{"a": 1}')


def test_calls_and_results_stand_in_the_messages_until_there_is_an_answer() -> None:
    talking = talk(template=HERMES)
    [first, second] = talking.take(says([CALL, ToolCall("add", {"a": 2}, '{"a": 2}')]))
    assert not talking.is_over
    talking.answer(first, "2")
    talking.answer(second, "3")
    shown, specs = talking.prompt
    assert [message["role"] for message in shown] == ["user", "assistant", "tool", "tool"]
    assert [one["function"]["name"] for one in specs or ()] == ["add", "weather"]
    ids = [call["id"] for call in shown[1]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in shown[2:]]
    assert len(set(ids)) == 2 and all(len(one) == 9 and one.isalnum() for one in ids)
    assert talking.take(says("It is 2 and 3.")) == []
    assert talking.is_over
    result = talking.result
    assert result.messages == [*shown, {"role": "assistant", "content": "It is 2 and 3."}]
    assert (result.answer, result.usage, result.num_rounds) == ("It is 2 and 3.", Usage(20, 4), 2)


def test_a_model_without_tools_of_its_own_is_told_of_them_in_words() -> None:
    talking = talk()
    [call] = talking.take(says([CALL]))
    talking.answer(call, "2")
    shown, specs = talking.prompt
    assert specs is None and [one["role"] for one in shown] == [
        *("system", "user", "assistant", "user")
    ]
    assert "weather" in shown[0]["content"] and shown[3]["content"] == "The tool returned: 2"
    assert [one["role"] for one in talking.result.messages] == ["user", "assistant", "tool"]


def test_after_so_many_rounds_of_calls_there_must_be_an_answer() -> None:
    talking = talk(max_rounds=2, tool_choice="add")
    choices = []
    for value in ([CALL], [CALL], "done"):
        choices.append(talking.task.constraint.choice)  # type: ignore[union-attr]
        talking.take(says(value))
    assert choices == ["add", "auto", "none"] and talking.is_over


def test_an_answer_is_held_to_its_schema_and_becomes_its_type() -> None:
    talking = talk(schema=Place, style="compact")
    assert talking.task.constraint.response.style == "compact"  # type: ignore[union-attr]
    assert "city" in talking.prompt[0][-1]["content"]  # the schema is shown
    answer = read_answer('{"city":"Ur"}', talking.task)
    assert answer == ToolAnswer('{"city":"Ur"}', Place(city="Ur"))
    talking.take(says(answer))
    assert talking.result.messages[-1] == {"role": "assistant", "content": '{"city":"Ur"}'}
    assert talking.result.answer == Place(city="Ur")
    assert talking.result.messages[0] == {"role": "user", "content": "Hi"}


def test_errors_carry_what_all_rounds_used() -> None:
    talking = talk()
    talking.take(says([CALL]))
    with pytest.raises(GenerationError) as caught:
        talking.take(GenerationError("cut", usage=Usage(5, 1)))
    assert caught.value.usage == Usage(15, 3)


def test_an_answer_that_only_python_refuses_is_drawn_again(tmp_path: Path) -> None:
    seen: list[str] = []

    def refuse_first(text: str) -> str:
        seen.append(text)
        if len(seen) < 2:
            raise ValueError("not yet")
        return text

    def later(n: Annotated[int, Field(ge=0, le=9)]) -> int:
        return n + 1

    class Late(BaseModel):
        city: Annotated[str, Field(max_length=3), AfterValidator(refuse_first)]

    save_tiny_model(tmp_path, "llama", max_position_embeddings=1024)
    with LLM(tmp_path, config=EngineConfig(block_size=4)) as tiny:
        tools = {"schema": Late, "max_rounds": 1, "parallel": False}
        run = tiny.run_tools("Hi", [later], **tools)
        assert run.answer.city == seen[-1] and len(seen) == 2
        with pytest.raises(OutputInvalid, match="not yet") as caught:
            seen.clear()
            tiny.run_tools("Hi", [later], max_attempts=1, **tools)
    assert caught.value.usage is not None and caught.value.usage.completion_tokens > 2


@pytest.mark.parametrize(
    "options",
    [{"regex": "a"}, {"grammar": "start: /a/"}, {"max_rounds": 0}, {"tool_choice": "sub"}],
)
def test_what_contradicts_tools_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        talk(**options)


QUESTION = "What is 17 plus 25? Use the tool add."


def check_run(run: ToolRun, arguments: list[int]) -> None:
    assert isinstance(run.answer, str) and run.messages[-1]["content"] == run.answer
    made = [message for message in run.messages if message["role"] == "tool"]
    assert [int(message["content"]) for message in made] == arguments
    assert run.num_rounds >= 1 and run.usage.completion_tokens > 0


def test_a_real_model_calls_a_function_and_answers(llm: LLM) -> None:
    made: list[int] = []

    def add(a: Annotated[int, Field(ge=0, le=99)], b: Annotated[int, Field(ge=0, le=99)]) -> int:
        """The sum of two numbers."""
        assert type(a) is int and type(b) is int
        made.append(a + b)
        return a + b

    check_run(llm.run_tools(QUESTION, [add], tool_choice="add", max_rounds=2, max_tokens=99), made)
    assert made


def test_it_can_be_awaited() -> None:
    made: list[int] = []

    async def add(a: Annotated[int, Field(ge=0, le=99)], b: Annotated[int, Field(le=99)]) -> int:
        """The sum of two numbers."""
        made.append(a + b)
        return a + b

    async def main() -> ToolRun:
        async with AsyncLLM("smollm2-135m", config=EngineConfig(max_model_len=1024)) as twin:
            return await twin.run_tools(
                QUESTION, [add], tool_choice="required", max_rounds=1, max_tokens=99
            )

    check_run(asyncio.run(main()), made)
    assert made
