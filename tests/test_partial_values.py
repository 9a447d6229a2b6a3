"""Typed partial values: of every prefix of a valid text, what is closed in it, validated."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import json
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import AliasChoices, BaseModel, Field, RootModel, TypeAdapter, field_validator
from typing_extensions import TypedDict

from structspec.constraint import JsonSchema
from structspec.errors import InvalidRequest, OutputInvalid
from structspec.partial_values import PartialItems, PartialValues


class Mood(Enum):
    GOOD = "good"


class Address(BaseModel):
    street: str
    city: str = "Ur"


class Person(BaseModel):
    name: str
    age: int
    address: Address
    moods: list[Mood] = []


class Point(NamedTuple):
    x: int
    day: dt.date


class Movie(TypedDict):
    title: str
    parts: dict[str, Decimal]


@dataclasses.dataclass
class Book:
    pages: int
    points: list[Point]
    json: int = 1  # a name that pydantic's models have too


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    lives: int


class Tree(BaseModel):
    value: UUID
    below: list[Tree]


class Aliased(BaseModel):
    city: str = Field(alias="town")
    number: int = Field(validation_alias=AliasChoices("the json", "j"))


class Rows(RootModel[list[Point]]):
    pass


PET = Annotated[Cat | Dog, Field(discriminator="kind")]
ID = UUID(int=7)
VALUES: dict[str, tuple[Any, Any]] = {
    "model": (Person, Person(name="Ada", age=36, address=Address(street="x"), moods=[Mood.GOOD])),
    "optional": (Person | None, Person(name="A", age=1, address=Address(street="x"))),
    "named-tuple": (Point, Point(1, dt.date(2020, 1, 2))),
    "typed-dict": (Movie, {"title": "t", "parts": {"a": Decimal("1.5")}}),
    "dataclass": (Book, Book(3, [Point(1, dt.date(2020, 1, 2)), Point(2, dt.date(2021, 1, 2))])),
    "discriminated": (list[PET], [Cat(kind="cat", lives=9), Dog(kind="dog", lives=1)]),
    "union": (Cat | Dog | list[int], Dog(kind="dog", lives=1)),
    "recursive": (Tree, Tree(value=ID, below=[Tree(value=ID, below=[])])),
    "alias": (Aliased, Aliased.model_validate({"town": "Ur", "the json": 3})),
    "root": (Rows, Rows([Point(1, dt.date(2020, 1, 2))])),
    "set": (set[UUID], {ID}),
    "tuple": (tuple[int, dt.time], (3, dt.time(1, 2))),
    "dict-of-int": (dict[int, list[dt.timedelta]], {3: [dt.timedelta(1)], 4: []}),
    "counter": (collections.Counter[str], collections.Counter(a=3)),
    "any": (Any, {"a": [1, None, {"b": "c"}]}),
    "literal": (Literal["a", 1], "a"),
    "int": (int, 123),
}


def prefixes(values: PartialValues, text: str) -> list[Any]:
    """What is given, one character at a time."""
    return [value for character in text for value in values.take(character)]


def is_within(part: Any, whole: Any) -> bool:
    """Whether all that is there of a partial value is as in the whole; None is not there."""
    if part is None or part == whole:
        return True
    if type(part).__name__.startswith("Partial"):
        return all(is_within(getattr(part, k), getattr(whole, k)) for k in part.model_fields_set)
    if isinstance(part, dict):
        return all(key in whole and is_within(part[key], whole[key]) for key in part)
    assert isinstance(part, list)
    whole = whole.root if isinstance(whole, RootModel) else whole
    return len(part) <= len(whole) and all(map(is_within, part, whole))


def size(part: Any) -> int:
    """How many values are there."""
    if type(part).__name__.startswith("Partial"):
        return sum(1 + size(getattr(part, name)) for name in part.model_fields_set)
    if isinstance(part, RootModel):
        return size(part.root)
    if isinstance(part, BaseModel):
        return sum(1 + size(getattr(part, name)) for name in type(part).model_fields)
    if dataclasses.is_dataclass(part):
        return sum(1 + size(getattr(part, one.name)) for one in dataclasses.fields(part))
    if isinstance(part, dict):
        return sum(1 + size(one) for one in part.values())
    return sum(1 + size(one) for one in part) if isinstance(part, list | tuple | set) else 0


@pytest.mark.parametrize("name", VALUES)
def test_partial_values_of_every_prefix_are_parts_of_the_whole_and_grow(name: str) -> None:
    kind, value = VALUES[name]
    dumped = TypeAdapter(kind).dump_json(value, by_alias=True)
    if name == "alias":
        dumped = b'{"town": "Ur", "the json": 3}'
    text = json.dumps(json.loads(dumped))
    parts = prefixes(PartialValues(kind), text[:-1] + " ")  # a blank closes a number too
    assert all(is_within(part, value) for part in parts)
    sizes = [size(part) for part in parts]
    assert sizes == sorted(sizes)
    assert sizes[-1:] == ([] if name in ("literal", "int") else [size(value)])


def test_an_attribute_is_none_until_its_value_is_closed() -> None:
    values = PartialValues(Person)
    seen = [
        (prefixes(values, more) or [None])[-1]
        for more in ('{"name": "A', 'da"', ', "age": 3', "6,", ' "address": {"street": "x"')
    ]
    assert repr(seen[0]) == "PartialPerson(name=None, age=None, address=None, moods=None)"
    assert seen[1].name == "Ada" and seen[1].age is None and seen[1].model_fields_set == {"name"}
    assert seen[2] is None  # nothing new
    assert seen[3].age == 36
    assert seen[4].address.street == "x" and seen[4].address.city is None
    assert not isinstance(seen[4], Person)
    [last] = prefixes(values, "}}")
    assert last.address == Address(street="x")  # closed: its defaults are there


def test_a_partial_model_can_be_dumped() -> None:
    *_, part = prefixes(PartialValues(Person), '{"name": "Ada", "address": {')
    assert part.model_dump(exclude_none=True) == {"name": "Ada", "address": {}}


def test_of_a_union_the_first_is_taken_that_fits_what_is_there() -> None:
    names = [
        type(one).__name__ for one in prefixes(PartialValues(PET), '{"kind": "dog", "lives": ')
    ]
    assert names == ["PartialCat", "PartialDog"]
    *_, neither = prefixes(PartialValues(Cat | Dog), '{"kind": "cow"')
    assert neither == {"kind": "cow"}


def test_what_does_not_pass_by_itself_is_absent_and_nothing_is_raised() -> None:
    class Picky(BaseModel):
        points: list[Annotated[int, Field(lt=5)]]

        @field_validator("points")
        @classmethod
        def fail(cls, points: list[int]) -> list[int]:
            raise RuntimeError("a fault of the caller's own")

    parts = prefixes(PartialValues(Picky), '{"points": [1, 9, 2], "more": []')
    assert [part.points for part in parts[:5]] == [None, [], [1], [1, None], None]


def test_what_is_given_does_not_change_when_more_is_read() -> None:
    values = PartialValues(list[int])
    parts = prefixes(values, "[1, 2, 3]")
    assert parts == [[], [1], [1, 2]]


class CountingAdapter:
    def __init__(self, kind: Any) -> None:
        self.adapter, self.num_calls = TypeAdapter(kind), 0

    def validate_json(self, text: bytes) -> Any:
        self.num_calls += 1
        return self.adapter.validate_json(text)


def test_each_closed_item_of_a_growing_list_is_validated_once() -> None:
    values = PartialValues(list[int])
    counting = CountingAdapter(int)
    values._adapter = lambda kind: counting  # type: ignore[assignment,method-assign,return-value]
    prefixes(values, json.dumps(list(range(100)))[:-1] + ",")
    assert counting.num_calls == 100


def items_of(items: PartialItems, text: str) -> list[Any]:
    return [item for character in text for item in items.take(character)]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (list[Point], [Point(1, dt.date(2020, 1, 2)), Point(2, dt.date(2020, 1, 2))]),
        (tuple[Point, ...], [Point(1, dt.date(2020, 1, 2)), Point(2, dt.date(2020, 1, 2))]),
        (
            {"type": "array", "items": {"$ref": "#/$defs/p"}, "$defs": {"p": {"type": "array"}}},
            [[1, "2020-01-02"], [2, "2020-01-02"]],
        ),
        (JsonSchema({"type": "array", "items": {}}), [[1, "2020-01-02"], [2, "2020-01-02"]]),
    ],
)
def test_an_item_is_there_with_its_closing_bracket(schema: Any, expected: list[Any]) -> None:
    items = PartialItems(schema)
    assert items_of(items, '[[1, "2020-01-02"') == []
    assert items_of(items, "]") == expected[:1]
    assert items_of(items, ', [2, "2020-01-02"]]') == expected[1:]


def test_a_number_is_an_item_once_something_follows_it() -> None:
    items = PartialItems(Annotated[set[int], Field(max_length=3)])
    assert [items_of(items, one) for one in ("[1", "2", ",", " 3", "]")] == [[], [], [12], [], [3]]


def test_an_item_that_does_not_validate_says_where_it_stands() -> None:
    items = PartialItems(list[Annotated[int, Field(le=5)]])
    assert items_of(items, "[1,") == [1]
    with pytest.raises(OutputInvalid, match="item 1 is not a valid") as caught:
        items_of(items, "9]")
    assert caught.value.errors[0].startswith("#/1: ")
    assert caught.value.text == "[1,9]"


@pytest.mark.parametrize("schema", [int, Person, list, tuple[int, str], {"type": "object"}, "true"])
def test_what_has_no_items_of_one_type_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidRequest, match="stream_items takes"):
        PartialItems(schema)
