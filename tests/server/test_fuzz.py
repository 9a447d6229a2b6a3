"""Bodies of every kind of nonsense: never a 5xx, always JSON, always OpenAI's form of an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from structspec import LLM
from structspec.server.bodies import ChatBody, CompletionBody, ResponsesBody
from structspec.server.tokens import DetokenizeBody, TokenizeBody
from tests.server.conftest import ASK, PERSON, json_schema, serve

TOOL = {"type": "function", "function": {"name": "f", "parameters": PERSON}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "y"},
        *ASK,
    ],
    "tools": [TOOL],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": json_schema(PERSON),
    "prediction": {"type": "content", "content": "x"},
    "stream_options": {"include_usage": True},
    "max_completion_tokens": 2,
}
COMPLETION: dict[str, Any] = {"prompt": ["x", "y"], "regex": "[ab]{2}", "max_tokens": 2}
TOKENIZE: dict[str, Any] = {"messages": CHAT["messages"], "tools": [TOOL]}
RESPONSE: dict[str, Any] = {
    "input": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "y"},
        *ASK,
    ],
    "tools": [{"type": "function", "name": "f", "parameters": PERSON}],
    "text": {"format": {"type": "json_schema", "name": "p", "schema": PERSON}},
    "reasoning": {"effort": "low"},
    "max_output_tokens": 2,
}
KINDS: dict[str, tuple[dict[str, Any], type]] = {
    "/v1/chat/completions": (CHAT, ChatBody),
    "/v1/completions": (COMPLETION, CompletionBody),
    "/v1/responses": (RESPONSE, ResponsesBody),
    "/tokenize": (TOKENIZE, TokenizeBody),
    "/detokenize": ({"tokens": [1, 2]}, DetokenizeBody),
}
GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # what keeps it short stays

NUMBERS = st.sampled_from(
    [
        0,
        1,
        2,
        -1,
        0.5,
        1.5,
        -0.0,
        3.0,
        2**31,
        2**63,
        2**64,
        10**400,
        1e308,
        float("nan"),
        float("inf"),
    ]
)
TEXTS = st.sampled_from(["", "x", "f", "auto", "\x00", "\ud800", "日", "(", "[[", "{}", "root ::="])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS | st.sampled_from(["type", "name", "function"]), inner, max_size=3)
    ),
    max_leaves=5,
)


OBJECTS = st.dictionaries(
    TEXTS | st.sampled_from(["type", "name", "function", "schema", "json", "text", "effort"]),
    VALUES,
    max_size=3,
)
INTEGERS = NUMBERS.filter(lambda number: isinstance(number, int))
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: INTEGERS,
    float: NUMBERS,
    bool: st.booleans(),
    type(None): st.none(),
    dict: OBJECTS,
}


def fitting(wanted: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as far as it is one that bodies have."""
    kind, parts = get_origin(wanted), get_args(wanted)
    if kind is list:
        return st.lists(fitting(parts[0]), max_size=3)
    if kind is dict:
        values = OBJECTS if parts[1] is Any else fitting(parts[1])
        return (
            values if parts[1] is Any else st.dictionaries(TEXTS | st.just("3"), values, max_size=2)
        )
    if parts:
        return st.one_of([fitting(part) for part in parts])
    return OF_TYPE.get(wanted, VALUES)


def alike(value: Any) -> st.SearchStrategy[Any]:
    """Values of the same type."""
    return st.lists(VALUES, max_size=3) if isinstance(value, list) else OF_TYPE[type(value)]


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a body."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in inside:
        yield (*before, key)
        if isinstance(part, dict | list):
            yield from places(part, (*before, key))


def put(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The body with another value there."""
    key, *rest = place
    copy = body.copy()
    copy[key] = put(copy[key], tuple(rest), value) if rest else value
    return copy


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """A path, and a body for it that was good once."""
    path = draw(st.sampled_from([*sorted(KINDS), *GENERATING]))
    good, model = KINDS[path]
    body = dict(good)
    value = VALUES | st.just(nested(90))
    for place in draw(st.lists(st.sampled_from(sorted(places(good), key=repr)), max_size=2)):
        if place[0] not in LIMITS:
            body = put_if_there(body, place, draw(alike(at(good, place)) | value))
    names = [name for name in model.model_fields if name not in LIMITS]
    for name in draw(st.lists(st.sampled_from([*names, "guided_x", "audio", "?"]), max_size=2)):
        is_known = name in model.model_fields
        fit = fitting(model.model_fields[name].annotation) if is_known else value
        body[name] = draw(fit | value)
    for name in draw(st.lists(st.sampled_from(sorted(good)), max_size=1)):
        if name not in LIMITS:
            body.pop(name, None)
    data = json.dumps(body).encode()
    huge = draw(st.sampled_from([b"1", b"1", b"1", b"1e999", b"-1e400", b"1" * 5000]))
    return path, data.replace(b"1.5", huge)


def put_if_there(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    try:
        return put(body, place, value)
    except (KeyError, IndexError, TypeError, AttributeError):
        return body  # what was there has been replaced


def at(body: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        body = body[key]
    return body


@pytest.fixture(scope="module")
def client(toy: LLM) -> Iterator[TestClient]:
    with serve(toy, max_choices=3) as client:
        yield client


def parse(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def check_error(body: Any) -> None:
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and isinstance(error["message"], str)
    assert isinstance(error["type"], str) and error["type"] != "server_error"
    assert isinstance(error["code"], str)
    assert error["param"] is None or isinstance(error["param"], str)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(case=bodies())
def test_no_body_makes_the_server_fail(case: tuple[str, bytes], client: TestClient) -> None:
    path, data = case
    answer = client.post(path, content=data)
    assert answer.status_code in (200, 400, 404, 422), answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        for line in answer.text.split("\n"):
            if line.startswith("data: {"):
                event = parse(line.removeprefix("data: "))
                if "error" in event and path != "/v1/responses":
                    check_error(event)
                assert event.get("type") != "error" or event["code"] != "internal_error"
        return
    body = parse(answer.text)
    if answer.status_code != 200:
        check_error(body)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(sorted(KINDS)), data=st.data())
def test_what_is_no_body_at_all_is_refused(
    path: str, data: st.DataObject, client: TestClient
) -> None:
    value = data.draw(VALUES)
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    answer = client.post(path, content=data.draw(st.sampled_from([text, text[:cut]])).encode())
    assert answer.status_code in (200, 400, 404)
    if answer.status_code != 200:
        check_error(parse(answer.text))
