"""What the model is told about the form of its answer."""

from __future__ import annotations

import copy
import json
from enum import Enum
from typing import Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from structspec.prompting import describe_schema, show_schema
from structspec.schema import resolve_schema

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


def describe(schema: Any) -> str:
    return describe_schema(resolve_schema(schema).json_schema)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            Bike,
            "Answer in JSON with keys name (As painted on the frame), wheels (list of objects with"
            ' keys inches, color (one of "red", "green")), owner (optional).',
        ),
        (
            list[Wheel],
            'Answer in JSON: list of objects with keys inches, color (one of "red", "green").',
        ),
        (list[int], "Answer in JSON: list."),
        (list[Color], 'Answer in JSON: list, each one of "red", "green".'),
        (tuple[int, str], "Answer in JSON: list of integer, string."),
        (Color, 'Answer in JSON: one of "red", "green".'),
        (Color | None, 'Answer in JSON: one of "red", "green".'),
        (Literal[1, True], "Answer in JSON: one of 1, true."),
        (bool, "Answer in JSON."),
        ({"type": ["string", "null"]}, "Answer in JSON."),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_small_schema_is_told_in_words(schema: Any, text: str) -> None:
    assert describe(schema) == text


@pytest.mark.parametrize(
    "schema",
    [
        Node,
        {"not": {"type": "null"}},
        {"enum": list(range(100))},
        {"$ref": "#/$defs/missing"},
        {"properties": {f"property_{i}": {"type": "string"} for i in range(100)}},
    ],
)
def test_schema_that_is_no_sentence_is_told_as_json(schema: Any) -> None:
    resolved = schema if isinstance(schema, dict) else resolve_schema(schema).json_schema
    text = describe_schema(resolved)
    assert json.loads(text[text.index("{") :]) == resolved


def test_text_goes_to_the_end_of_the_last_user_message() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "A number?"},
    ]
    shown = show_schema(messages, resolve_schema(int))
    assert shown[:3] == messages[:3]
    assert shown[3]["content"] == "A number?\nAnswer in JSON."


def test_without_a_user_message_a_system_message_tells_it() -> None:
    shown = show_schema([{"role": "assistant", "content": "x"}], resolve_schema(int))
    assert [message["role"] for message in shown] == ["system", "assistant"]


def test_content_made_of_parts_gains_a_part() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "A number?"}]}]
    parts = show_schema(messages, resolve_schema(int))[0]["content"]
    assert [part["text"] for part in parts] == ["A number?", "Answer in JSON."]


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
