"""Prompts with constraints of every kind, for which speculation must not change a single token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # before Python 3.12 pydantic takes no other

from tests.real_requests import Pair

WORKLOAD = json.loads((Path(__file__).parent / "data" / "structured-workload.json").read_text())

ARITHMETIC_LARK = r"""
start: sum
sum: product (("+" | "-") product)*
product: atom (("*" | "/") atom)*
atom: NUMBER | "(" sum ")"
NUMBER: /[0-9]{1,4}/
"""
ARITHMETIC_EBNF = """
root ::= product (("+" | "-") product)*
product ::= atom (("*" | "/") atom)*
atom ::= number | "(" root ")"
number ::= [0-9] [0-9]? [0-9]?
"""
SQL_LARK = r"""
start: "SELECT " columns " FROM " NAME [" WHERE " NAME " = " VALUE] ";"
columns: NAME (", " NAME)*
NAME: /[a-z_]{1,16}/
VALUE: /'[a-zA-Z ]{1,20}'/ | /[0-9]{1,6}/
"""


class Color(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Person(BaseModel):
    name: str
    age: int
    city: str


class Address(BaseModel):
    street: str
    city: str


class Customer(BaseModel):
    name: str
    addresses: list[Address] = Field(max_length=2)
    vip: bool


@dataclass
class Book:
    title: str
    year: int


class Point(TypedDict):
    x: float
    y: float


PYTHON_TYPES: tuple[Any, ...] = (
    Person,
    Customer,
    Book,
    Point,
    Color,
    list[int],
    Literal["yes", "no"],
    int | str,
    dict[str, int],
    list[Person],
)
TEXTS = (
    "Ada Lovelace, 36, lives in London at 12 St James Square.",
    "On 3 May 2021 Otto Fischer bought 4 red lamps for 120 euros in Berlin.",
)
REGEXES = (
    r"\d{4}-\d{2}-\d{2}",
    r"[A-Z]{3}-[0-9]{4}",
    r"(yes|no), because [a-z ]{5,40}\.",
    r"\+?[0-9]{2,3}( [0-9]{2,4}){2,3}",
    r"[a-z]+(, [a-z]+){2}",
)
CHOICES = (
    ["positive", "negative", "neutral"],
    ["yes", "no"],
    ["Berlin", "Berlin Mitte", "Bonn"],
    ['say "hi"', "new\nline", "naïve café"],
)


def lossless_pairs() -> list[Pair]:
    """Over sixty pairs; deterministic."""
    pairs: list[Pair] = []
    for name, schema in WORKLOAD["bounded"].items():
        pairs.append((WORKLOAD["prompts"][name], {"schema": schema}))
    for index, (name, schema) in enumerate(WORKLOAD["unbounded"].items()):
        style = ("compact", "flexible", "spaced")[index % 3]
        pairs.append((WORKLOAD["prompts"][name], {"schema": schema, "style": style}))
    for kind in PYTHON_TYPES:
        pairs += [(f"Extract from this text: {text}", {"schema": kind}) for text in TEXTS]
    for regex in REGEXES:
        pairs.append((f"Give me one example. {TEXTS[1]}", {"regex": regex}))
    for choices in CHOICES:
        pairs.append((f"Choose one for: {TEXTS[0]}", {"choices": choices}))
    pairs += [
        ("What is twelve plus thirty times four, as a formula?", {"grammar": ARITHMETIC_LARK}),
        ("Write a formula for the area of a 3 by 4 room.", {"grammar": ARITHMETIC_EBNF}),
        ("Write SQL that lists the names of users in Lima.", {"grammar": SQL_LARK}),
        ("Extract the person: Nora, 41, Cairo.", {"schema": Person, "backend": "xgrammar"}),
        ("Give a date in 2020.", {"regex": r"2020-[0-9]{2}-[0-9]{2}", "backend": "xgrammar"}),
        (f"Repeat this text word for word: {TEXTS[1]}", {}),
        ("Write three sentences about the sea.", {}),
        ("Count from one to ten in words, twice.", {"stop": ["seven"]}),
    ]
    return pairs
