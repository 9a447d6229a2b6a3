"""What the model is told about the form of its answer."""

from __future__ import annotations

import copy
import json
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Optional

import pytest
from pydantic import BaseModel, Field, HttpUrl

from structspec.json_annotations import without_annotations
from structspec.prompting import describe_schema, show_schema
from structspec.schema import resolve_schema

NUMBER = 'Answer in JSON that conforms to this JSON schema: {"type":"integer"}'
ASK = [{"role": "user", "content": "Who is it?"}]


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Wheel(BaseModel):
    inches: float
    color: Color


class Bike(BaseModel):
    name: str = Field(description="As painted on the frame.")
    wheels: list[Wheel]
    owner: str | None = None


class Node(BaseModel):
    value: int
    next: Optional[Node] = None  # noqa: UP045


def shown_schema(schema: Any) -> Any:
    """The schema that the model is shown."""
    text = describe_schema(resolve_schema(schema).json_schema)
    before, schema_text = text.split(": ", 1)
    assert before == "Answer in JSON that conforms to this JSON schema"
    return json.loads(schema_text)


def test_the_schema_is_told_as_json_without_titles() -> None:
    assert shown_schema(Wheel) == {
        "properties": {
            "inches": {"type": "number"},
            "color": {"enum": ["red", "green"], "type": "string"},
        },
        "required": ["inches", "color"],
        "type": "object",
    }
    assert shown_schema(Bike)["properties"]["name"] == {
        "description": "As painted on the frame.",
        "type": "string",
    }


def test_a_property_called_title_is_no_title() -> None:
    schema = {"properties": {"title": {"type": "string", "title": "Title"}, "format": {}}}
    assert shown_schema(schema) == {"properties": {"title": {"type": "string"}, "format": {}}}


def test_references_are_put_in_place_with_what_stands_beside_them() -> None:
    schema = {
        "$defs": {"a/b": {"type": "object", "properties": {"x": {"$ref": "#/$defs/c"}}}, "c": {}},
        "properties": {"one": {"$ref": "#/$defs/a~1b", "description": "The first."}},
    }
    place = {"type": "object", "properties": {"x": {}}, "description": "The first."}
    assert shown_schema(schema) == {"properties": {"one": place}}


def test_no_pointer_is_left_to_copy_where_references_end() -> None:
    assert "#/" not in describe_schema(resolve_schema(Bike | list[Wheel]).json_schema)


LONG = {"enum": [f"value {number}" for number in range(100)]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"},
        {"$defs": {"e": LONG}, "prefixItems": [{"$ref": "#/$defs/e"}] * 9},
        {"items": {"$ref": "#/properties/x"}, "properties": {"x": {"type": "integer"}}},
    ],
    ids=["recursive", "long", "elsewhere"],
)
def test_references_stay_where_they_would_not_end_or_make_it_long(schema: Any) -> None:
    text = describe_schema(schema)
    assert json.loads(text[text.index("{") :]) == schema


def test_a_property_called_ref_is_no_reference() -> None:
    schema = {"properties": {"$ref": {"type": "string"}}}
    assert shown_schema(schema) == schema


class Times(BaseModel):
    at: datetime
    took: timedelta
    where: HttpUrl


def test_formats_are_told_by_the_names_that_models_know() -> None:
    properties = shown_schema(Times)["properties"]
    assert [one["format"] for one in properties.values()] == ["date-time", "duration", "uri"]


@pytest.mark.parametrize("schema", [Node, {"not": {"type": "null"}}, {"enum": [1, "title", None]}])
def test_what_a_schema_says_is_told_as_it_is(schema: Any) -> None:
    resolved = resolve_schema(schema).json_schema
    assert shown_schema(schema) == without_annotations(resolved, {"title": str})


def test_text_goes_to_the_start_of_the_last_user_message() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "A number?"},
    ]
    shown = show_schema(messages, resolve_schema(int))
    assert shown[:3] == messages[:3]
    assert shown[3]["content"] == NUMBER + "\nA number?"


def test_without_a_user_message_a_system_message_tells_it() -> None:
    shown = show_schema([{"role": "assistant", "content": "x"}], resolve_schema(int))
    assert [message["role"] for message in shown] == ["system", "assistant"]


def test_content_made_of_parts_gains_a_first_part() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "A number?"}]}]
    parts = show_schema(messages, resolve_schema(int))[0]["content"]
    assert [part["text"] for part in parts] == [NUMBER, "A number?"]


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
def test_callers_messages_are_never_changed(mode: Any) -> None:
    messages = copy.deepcopy(ASK)
    show_schema(messages, resolve_schema(Bike), mode)
    assert messages == ASK


@pytest.mark.parametrize(
    "prompt",
    [
        "Answer in JSON with keys inches and color.",
        "Use this schema:\n" + json.dumps(resolve_schema(Wheel).json_schema, indent=4),
    ],
    ids=["keys", "schema"],
)
def test_auto_adds_nothing_to_a_prompt_that_says_it_already(prompt: str) -> None:
    messages = [{"role": "user", "content": prompt}]
    assert show_schema(messages, resolve_schema(Wheel)) == messages
    assert show_schema(messages, resolve_schema(Wheel), "always") != messages


def test_auto_adds_to_a_prompt_that_names_only_some_keys() -> None:
    messages = [{"role": "user", "content": "Answer in JSON with the color."}]
    assert show_schema(messages, resolve_schema(Wheel)) != messages


@pytest.mark.parametrize("schema", [None, True], ids=["no schema", "any JSON"])
def test_nothing_is_said_where_nothing_is_asked(schema: Any) -> None:
    target = None if schema is None else resolve_schema(schema)
    assert show_schema(ASK, target, "always") == ASK


def test_never_means_never() -> None:
    assert show_schema(ASK, resolve_schema(Bike), "never") == ASK
