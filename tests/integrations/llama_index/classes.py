"""Classes to be filled, of every shape that users bring; small, so that random text is short."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import BaseModel, Field, RootModel

Short = Annotated[str, Field(max_length=4)]
Digit = Annotated[int, Field(ge=0, le=9)]


class Flat(BaseModel):
    """A person."""

    name: Short
    age: Digit


class Nested(BaseModel):
    title: Short
    author: Flat


class Listed(BaseModel):
    people: Annotated[list[Flat], Field(min_length=1, max_length=2)]


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Chosen(BaseModel):
    mood: Mood
    size: Literal["s", "m", 3]


class Optional(BaseModel):
    name: Short | None = None
    age: Digit | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Digit


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Short


class United(BaseModel):
    pet: Cat | Dog


class Tree(BaseModel):
    value: Digit
    children: Annotated[list[Tree], Field(max_length=1)] = []


class Aliased(BaseModel):
    first_name: Short = Field(alias="firstName")


class Digits(RootModel[list[Digit]]):
    root: Annotated[list[Digit], Field(min_length=1, max_length=3)]


CLASSES = (Flat, Nested, Listed, Chosen, Optional, United, Tree, Aliased, Digits)
