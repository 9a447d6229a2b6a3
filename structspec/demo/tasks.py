"""The demo's tasks: one of each kind of constraint, and free text to compare with."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, TypeAdapter


class Address(BaseModel):
    street: str
    city: str


class Employee(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)
    address: Address
    languages: list[str] = Field(max_length=4)


class Planet(BaseModel):
    name: str
    moons: int


class Mood(Enum):
    POSITIVE = "positive"
    NEUTRAL = "neutral"
    NEGATIVE = "negative"


class GetWeather(BaseModel):
    tool: Literal["get_weather"]
    city: str
    unit: Literal["celsius", "fahrenheit"]


class SendMail(BaseModel):
    tool: Literal["send_mail"]
    to: str
    subject: str


@dataclass
class Movie:
    title: str
    director: str
    year: int


BOOKING = {
    "type": "object",
    "properties": {
        "guest": {"type": "string", "maxLength": 40},
        "city": {"type": "string", "maxLength": 40},
        "arrival": {"type": "string", "format": "date"},
        "nights": {"type": "integer", "minimum": 1},
        "breakfast": {"type": "boolean"},
    },
    "required": ["guest", "city", "arrival", "nights", "breakfast"],
}

DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"

ARITHMETIC = r"""
start: sum
sum: product (" + " product | " - " product)~0..4
product: atom (" * " atom)~0..3
atom: NUMBER | "(" sum ")"
NUMBER: /[1-9][0-9]{0,3}/
"""


@dataclass(frozen=True)
class DemoTask:
    """One prompt, what its output must be, and an independent check that it is."""

    name: str
    prompt: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_valid: Callable[[Any], bool] = lambda value: True

    @property
    def is_free(self) -> bool:
        """Whether this is free text, there for comparison."""
        return not {"schema", "regex", "choices", "grammar"} & set(self.options)


def with_type(name: str, prompt: str, schema: Any) -> DemoTask:
    """A task for a Python type: its value, written and read again, is the same value."""
    adapter: TypeAdapter[Any] = TypeAdapter(schema)

    def is_valid(value: Any) -> bool:
        return bool(adapter.validate_json(adapter.dump_json(value)) == value)

    return DemoTask(name, prompt, {"schema": schema}, is_valid)


def is_arithmetic(text: str) -> bool:
    """Whether Python, too, reads it as numbers and operators."""
    nodes = ast.walk(ast.parse(text, mode="eval").body)
    return all(isinstance(node, ast.BinOp | ast.operator | ast.Constant) for node in nodes)


TOPICS = ("technology", "cooking", "sports")

TASKS = (
    with_type(
        "nested model",
        "Extract the employee: Anna Weber is 34, lives at 12 Garden Street in London and speaks"
        " German, English and Spanish.",
        Employee,
    ),
    with_type(
        "list of records",
        "List the planets in this text: Mars has 2 moons, Earth has 1 moon, Jupiter has 95 moons"
        " and Neptune has 16 moons.",
        Annotated[list[Planet], Field(max_length=5)],
    ),
    with_type(
        "enum",
        "Is this review positive, neutral or negative? Review: I love this phone, the camera is"
        " wonderful and the battery lasts for days.",
        Mood,
    ),
    with_type(
        "tool call",
        "Choose the tool for this request. Tools: get_weather(city, unit), send_mail(to, subject)."
        " Request: What is the weather in Paris in celsius?",
        GetWeather | SendMail,
    ),
    with_type(
        "dataclass",
        "Extract the movie: Jurassic Park was directed by Steven Spielberg and came out in 1993.",
        Movie,
    ),
    DemoTask(
        "JSON schema",
        "Extract the booking: Mr. Smith wants a room in Chicago from 2025-05-14 for 3 nights with"
        " breakfast.",
        {"schema": BOOKING},
        Draft202012Validator(BOOKING).is_valid,
    ),
    DemoTask(
        "regex",
        "What is the date July 20, 1969 in the form YYYY-MM-DD?",
        {"regex": DATE},
        lambda text: re.fullmatch(DATE, text) is not None,
    ),
    DemoTask(
        "grammar",
        "Write as arithmetic: three plus four times five.",
        {"grammar": ARITHMETIC},
        is_arithmetic,
    ),
    DemoTask(
        "choices",
        "Which topic is this, technology or cooking or sports? New computer chip makes laptops"
        " faster.",
        {"choices": TOPICS},
        lambda text: text in TOPICS,
    ),
    DemoTask(
        "free text",
        "Explain in a few sentences why the sky is blue.",
        {"max_tokens": 80},
    ),
    DemoTask(
        "free text",
        "Describe this person in a few sentences: Anna Weber is 34, lives at 12 Garden Street in"
        " London and speaks German, English and Spanish.",
        {"max_tokens": 80},
    ),
)
