"""What openai's own client does against a running server; run with its own environment.

    python openai_client.py BASE_URL

Every check is a function; the first that fails ends the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import openai
from pydantic import BaseModel

MODEL = "smollm2-135m"
ASK = [{"role": "user", "content": "Ada Lovelace was born in 1815 in London."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CHECKS: list[Callable[[openai.OpenAI], None]] = []


class Person(BaseModel):
    name: str
    born: int


def check(function: Callable[[openai.OpenAI], None]) -> Callable[[openai.OpenAI], None]:
    CHECKS.append(function)
    return function


@check
def chat_parse_gives_the_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=ASK, response_format=Person, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, Person)
    assert answer.choices[0].finish_reason == "stop" and answer.usage.total_tokens > 0


@check
def chat_stream_gives_the_same_model(client: openai.OpenAI) -> None:
    whole = client.chat.completions.parse(
        model=MODEL, messages=ASK, response_format=Person, temperature=0
    )
    options = {"stream_options": {"include_usage": True}}
    with client.chat.completions.stream(
        model=MODEL, messages=ASK, response_format=Person, temperature=0, **options
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed
    assert final.usage.completion_tokens == whole.usage.completion_tokens


@check
def chat_calls_the_tool_that_is_named(client: openai.OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, tools=[WEATHER], tool_choice=choice
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather" and set(json.loads(call.function.arguments)) == {
        "city"
    }
    assert answer.choices[0].finish_reason == "tool_calls"


@check
def streamed_calls_are_the_same_calls(client: openai.OpenAI) -> None:
    asked = {
        "messages": ASK,
        "tools": [WEATHER],
        "tool_choice": "required",
        "temperature": 0,
        "parallel_tool_calls": False,
    }
    whole = client.chat.completions.create(model=MODEL, **asked)
    with client.chat.completions.stream(model=MODEL, **asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    calls = [choice.message.tool_calls for choice in (whole.choices[0], final.choices[0])]
    told = [[(one.function.name, one.function.arguments) for one in some] for some in calls]
    assert told[0] == told[1]
    assert all(call.function.parsed_arguments for call in calls[1])


@check
def tools_and_a_schema_together_give_a_call_or_the_schema(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=ASK, tools=[WEATHER], response_format=Person
    )
    message = answer.choices[0].message
    assert bool(message.tool_calls) != bool(message.parsed)


@check
def several_choices_stream_in_order(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=ASK, response_format=Person, n=3, seed=1, temperature=1
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1, 2]
    assert all(isinstance(choice.message.parsed, Person) for choice in final.choices)


@check
def responses_parse_gives_the_model(client: openai.OpenAI) -> None:
    response = client.responses.parse(
        model=MODEL, input=ASK[0]["content"], text_format=Person, temperature=0
    )
    assert isinstance(response.output_parsed, Person) and response.status == "completed"


@check
def responses_stream_gives_the_same_model(client: openai.OpenAI) -> None:
    whole = client.responses.parse(
        model=MODEL, input=ASK[0]["content"], text_format=Person, temperature=0
    )
    with client.responses.stream(
        model=MODEL, input=ASK[0]["content"], text_format=Person, temperature=0
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert final.output_parsed == whole.output_parsed


@check
def responses_go_on_from_one_before(client: openai.OpenAI) -> None:
    tool = {"type": "function", **WEATHER["function"]}
    first = client.responses.create(
        model=MODEL,
        input="Weather in Rome?",
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    calls = [item for item in first.output if item.type == "function_call"]
    answers = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        for call in calls
    ]
    second = client.responses.create(
        model=MODEL, input=answers, previous_response_id=first.id, max_output_tokens=8
    )
    assert second.status in ("completed", "incomplete") and second.output_text


@check
def streamed_calls_of_responses_come_with_their_events(client: openai.OpenAI) -> None:
    tool = {"type": "function", **WEATHER["function"]}
    with client.responses.stream(
        model=MODEL,
        input="Weather in Rome?",
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    assert all(item.type == "function_call" for item in final.output)


@check
def completions_write_on(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["1, 2, 3,", "a, b,"], max_tokens=5)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.text for choice in answer.choices)
    pieces = client.completions.create(model=MODEL, prompt="1, 2,", max_tokens=5, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces)


@check
def a_bad_schema_is_a_bad_request_with_its_place(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "nonsense"}}}
    form = {"type": "json_schema", "json_schema": {"name": "X", "schema": schema}}
    try:
        client.chat.completions.create(model=MODEL, messages=ASK, response_format=form)
    except openai.BadRequestError as error:
        assert error.param.startswith("response_format.json_schema.schema.properties.x")
        assert "Invalid schema for response_format 'X'" in str(error) and error.request_id
    else:
        raise AssertionError("it was taken")


@check
def other_faults_have_their_classes(client: openai.OpenAI) -> None:
    for kind, options in (
        (openai.NotFoundError, {"model": "other", "messages": ASK}),
        (openai.BadRequestError, {"model": MODEL, "messages": []}),
        (openai.BadRequestError, {"model": MODEL, "messages": ASK, "temperature": -1}),
        (
            openai.BadRequestError,
            {"model": MODEL, "messages": ASK, "extra_body": {"guided_something": 1}},
        ),
        (openai.BadRequestError, {"model": MODEL, "messages": ASK * 3000}),
    ):
        try:
            client.chat.completions.create(**options)
        except kind as error:
            assert error.code and error.body["message"]
        else:
            raise AssertionError(f"{options} were taken")


@check
def a_text_cut_short_says_so(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    try:
        client.chat.completions.parse(
            model=MODEL, messages=ASK, response_format=Person, max_tokens=2
        )
    except (openai.LengthFinishReasonError, openai.BadRequestError):
        return
    raise AssertionError("two tokens were enough")


def main() -> None:
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=300)
    for function in CHECKS:
        function(client)
        print(f"ok   {function.__name__}", flush=True)
    print(f"{len(CHECKS)} checks passed with openai {openai.__version__}")


if __name__ == "__main__":
    main()
