"""schema=: every kind of type, there (a JSON schema) and back (a validated Python value)."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypeVar,
    Union,
)

import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

from structspec.errors import GrammarError, InvalidRequest, OutputInvalid
from structspec.schema import resolve_schema

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    ORIGIN = (0, 0)


class Point(BaseModel):
    x: int
    y: int = 0


class Aliased(BaseModel):
    from_: str = Field(alias="from")


class Computed(BaseModel):
    side: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Node(BaseModel):
    value: int
    next: Optional[Node] = None  # noqa: UP045 - the old spelling is accepted as well


class Page(BaseModel, Generic[T]):
    items: list[T]


class Names(RootModel[list[str]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Even(BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def must_be_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("is odd")
        return number


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    day: dt.date
    tags: tuple[str, ...]


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Book:
    title: str
    pages: int = 100
    authors: list[str] = dataclasses.field(default_factory=list)


UserId = NewType("UserId", int)
UTC = dt.UTC

MATRIX: list[tuple[Any, str, Any]] = [
    (Point, '{"x": 1, "y": 2}', Point(x=1, y=2)),
    (Point, '{"x": 1}', Point(x=1, y=0)),
    (Aliased, '{"from": "a"}', Aliased.model_validate({"from": "a"})),
    (Computed, '{"side": 3}', Computed(side=3)),
    (Node, '{"value": 1, "next": {"value": 2}}', Node(value=1, next=Node(value=2))),
    (Page[int], '{"items": [1, 2]}', Page[int](items=[1, 2])),
    (Names, '["a", "b"]', Names(["a", "b"])),
    (Strict, '{"day": "2024-02-29", "tags": []}', Strict(day=dt.date(2024, 2, 29), tags=())),
    (Book, '{"title": "t", "pages": 3}', Book("t", 3)),
    (Movie, '{"title": "t"}', {"title": "t"}),
    (Pair, '[1, "r"]', Pair(1, "r")),
    (Color, '"red"', Color.RED),
    (Level, "2", Level.HIGH),
    (list[Color], '["green"]', [Color.GREEN]),
    (Literal["a", 1, True], "true", True),
    (Union[Cat, Dog], '{"kind": "dog", "tricks": []}', Dog(kind="dog", tricks=[])),  # noqa: UP007
    (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        '{"kind": "cat", "lives": 9}',
        Cat(kind="cat", lives=9),
    ),
    (int | None, "null", None),
    (Optional[int], "3", 3),  # noqa: UP045
    (UserId, "7", 7),
    (Annotated[int, Field(ge=0)], "0", 0),
    (bool, "false", False),
    (int, "-1", -1),
    (float, "1.5", 1.5),
    (float, "2", 2.0),
    (str, '"\\u00e9\\n"', "é\n"),
    (type(None), "null", None),
    (Any, '{"a": [null]}', {"a": [None]}),
    (list[int], "[1, 2]", [1, 2]),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (tuple[int, ...], "[1, 2, 3]", (1, 2, 3)),
    (set[int], "[1, 1, 2]", {1, 2}),
    (frozenset[str], '["a"]', frozenset({"a"})),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (dict[int, str], '{"1": "a", "-2": "b"}', {1: "a", -2: "b"}),
    (dict[Color, int], '{"red": 1}', {Color.RED: 1}),
    (dict[str, list[Point]], '{"p": [{"x": 1}]}', {"p": [Point(x=1)]}),
    (bytes, '"ab"', b"ab"),
    (Decimal, "1.25", Decimal("1.25")),
    (Annotated[Decimal, Field(max_digits=5, decimal_places=2)], '"123.45"', Decimal("123.45")),
    (dt.date, '"2024-02-29"', dt.date(2024, 2, 29)),
    (dt.time, '"12:30:00Z"', dt.time(12, 30, tzinfo=UTC)),
    (dt.datetime, '"2024-02-29T12:00:00Z"', dt.datetime(2024, 2, 29, 12, tzinfo=UTC)),
    (pydantic.NaiveDatetime, '"2024-02-29T12:00:00"', dt.datetime(2024, 2, 29, 12)),
    (dt.timedelta, '"PT1H30M"', dt.timedelta(hours=1, minutes=30)),
    (uuid.UUID, f'"{uuid.UUID(int=5)}"', uuid.UUID(int=5)),
    (Path, '"a/b"', Path("a/b")),
]


def label(value: Any) -> str:
    return str(getattr(value, "__name__", value))[:40]


@pytest.mark.parametrize(("schema", "text", "value"), MATRIX, ids=label)
def test_type_becomes_a_json_schema_and_its_text_the_right_value(
    schema: Any, text: str, value: Any
) -> None:
    target = resolve_schema(schema)
    jsonschema.Draft202012Validator.check_schema(target.json_schema)
    result = target.validate(text)
    assert result == value
    assert type(result) is type(value)


LOOSE: list[tuple[Any, str]] = [
    (Point, '{"x": "1"}'),  # pydantic alone would convert it; the schema says integer
    (Point, '{"x": 1, "x": 2}'),
    (Point, '{"x": 1'),
    (Point, '{"x": 1} trailing'),
    (Aliased, '{"from_": "a"}'),
    (Strict, '{"day": "2023-02-29", "tags": []}'),
    (Strict, '{"day": "2024-02-29", "tags": [], "more": 1}'),
    (Color, '"RED"'),
    (bool, "1"),
    (int, "1.5"),
    (float, "NaN"),
    (float, "1e999"),
    (tuple[int, str], '[1, "a", 2]'),
    (Annotated[set[int], Field(min_length=2)], "[1, 1]"),
    (dict[int, str], '{"one": "a"}'),
    (Decimal, '"about two"'),
    (Annotated[Decimal, Field(max_digits=5, decimal_places=2)], '"1234.5"'),
    (dt.datetime, '"2024-02-30T12:00:00Z"'),
    (pydantic.NaiveDatetime, '"2024-02-29T12:00:00Z"'),
    (dt.timedelta, '"soon"'),
    (str, '"\\ud800"'),
    (Even, '{"number": 3}'),
]


@pytest.mark.parametrize(("schema", "text"), LOOSE, ids=label)
def test_text_that_does_not_conform_is_refused_with_its_place(schema: Any, text: str) -> None:
    with pytest.raises(OutputInvalid) as caught:
        resolve_schema(schema).validate(text)
    assert caught.value.text == text
    assert caught.value.errors
    assert all(error.startswith("#") and ": " in error for error in caught.value.errors)


def test_violation_reads_as_pointer_and_message() -> None:
    with pytest.raises(OutputInvalid, match="the output is not a valid Even: #/number: .*is odd"):
        resolve_schema(Even).validate('{"number": 3}')


def test_violations_inside_lists_name_the_item() -> None:
    with pytest.raises(OutputInvalid) as caught:
        resolve_schema(list[Point]).validate('[{"x": 1}, {"x": null}, {"y": 1}]')
    assert [error.split(":")[0] for error in caught.value.errors] == ["#/1/x", "#/2"]


def test_only_the_first_ten_of_many_violations_are_listed() -> None:
    with pytest.raises(OutputInvalid) as caught:
        resolve_schema(list[int]).validate(json.dumps(["no"] * 500))
    assert len(caught.value.errors) == 10


SCHEMAS: list[tuple[Any, str, bool]] = [
    (True, "[1]", True),
    (False, "[1]", False),
    ({}, "null", True),
    ({"type": "integer"}, "1.0", True),
    ('{"type": "integer"}', "1", True),
    ({"type": "string", "format": "date"}, '"2024-02-30"', False),
    ({"type": "string", "format": "email"}, '"nobody"', False),
    ({"type": "string", "format": "ipv4"}, '"1.2.3.4"', True),
    ({"type": "string", "format": "date-time"}, '"2024-01-01T00:00:00"', False),
    ({"type": "string", "format": "duration"}, '"P1Y2M3DT4H"', True),
    ({"type": "string", "format": "duration"}, '"P"', False),
    ({"type": "string", "format": "unheard-of"}, '"x"', True),
    ({"type": "array", "uniqueItems": True}, "[1, 1]", False),
    ({"$defs": {"n": {"type": "null"}}, "$ref": "#/$defs/n"}, "null", True),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, '{"type": "null"}', True),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}]},
        "[1]",
        False,
    ),
]


@pytest.mark.parametrize(("schema", "text", "is_valid"), SCHEMAS, ids=label)
def test_json_schema_validates_by_the_letter(schema: Any, text: str, is_valid: bool) -> None:
    target = resolve_schema(schema)
    if is_valid:
        assert target.validate(text) == json.loads(text)
    else:
        with pytest.raises(OutputInvalid):
            target.validate(text)


BAD_SCHEMAS: list[tuple[Any, str]] = [
    ({"properties": {"age": {"type": "int"}}}, "#/properties/age/type: "),
    ({"minLength": -1}, "#/minLength: "),
    ({"a/b": 1, "properties": {"x/y~": 3}}, "#/properties/x~1y~0: "),
    ("{'type': 'string'}", "line 1, column 2: the schema is not JSON"),
    ("[1]", r"a JSON schema is an object or a bool, not \[1\]"),
    ({"const": float("nan")}, "#/const: NaN is not JSON"),
    ({"const": {1, 2}}, ".*cannot be written as JSON"),
]


@pytest.mark.parametrize(("schema", "message"), BAD_SCHEMAS, ids=label)
def test_bad_json_schema_is_a_grammar_error_that_says_where(schema: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=f"^{message}"):
        resolve_schema(schema)


def test_dangling_reference_is_a_grammar_error_and_fetches_nothing() -> None:
    target = resolve_schema({"$ref": "https://example.invalid/person.json"})
    with pytest.raises(GrammarError, match="leads nowhere"):
        target.validate("1")


@pytest.mark.parametrize(
    "schema",
    [5, [1, 2], Point(x=1), object(), Callable[[], int], list["Unknown"]],  # noqa: F821
    ids=label,
)
def test_what_is_no_type_is_an_invalid_request_that_says_what_to_pass(schema: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be used: .* Pass a pydantic model"):
        resolve_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [Literal[b"x"], Literal[Color.RED], Corner, dict[tuple[int, int], int], dict[None, int]],
    ids=label,
)
def test_a_type_that_pydantic_reads_from_no_json_is_an_invalid_request(schema: Any) -> None:
    with pytest.raises(InvalidRequest, match="[Pp]ydantic reads no"):
        resolve_schema(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Annotated[str, Field(pattern="(")], "unclosed group"),
        (Annotated[str, Field(pattern="a{,2}")], "repetition"),
        (Annotated[int, Field(ge="a")], "coercible to an integer"),
        (Annotated[int, Field(discriminator="kind")], "discriminated"),
    ],
    ids=["group", "count", "bound", "discriminator"],
)
def test_a_type_that_pydantic_cannot_build_is_an_invalid_request(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=f"cannot be used: .*{reason}"):
        resolve_schema(schema)


def test_a_bound_that_one_kind_of_a_union_cannot_meet_is_an_output_that_is_not_valid() -> None:
    target = resolve_schema(Annotated[int | str, Field(gt=3)])
    assert target.validate("5") == 5
    for text in ("2", '"a"'):
        with pytest.raises(OutputInvalid):
            target.validate(text)
    assert target.unheld


def test_a_union_leaves_out_what_pydantic_reads_from_no_json() -> None:
    assert resolve_schema(Literal["a", b"b"]).json_schema == {"const": "a", "type": "string"}
    assert resolve_schema(int | Corner).json_schema == {"type": "integer"}


def test_what_runs_in_python_is_told_with_its_place_and_its_name() -> None:
    class Day(BaseModel):
        date: pydantic.FutureDate
        x_: int = Field(alias="enum", default=1)

        @pydantic.model_validator(mode="after")
        def in_spring(self) -> Day:
            return self

    class Plan(BaseModel):
        first: Day
        others: list[Annotated[Even, pydantic.AfterValidator(lambda even: even)]]

    target = resolve_schema(Plan)
    told = {finding.pointer: finding.keyword for finding in target.unheld}
    assert told == {
        "#/$defs/Day": "after validator Day.in_spring",
        "#/$defs/Day/properties/date": "now_op",
        "#/$defs/Even/properties/number": "after validator Even.must_be_even",
        "#/properties/others/items": "after validator <lambda>",
    }
    assert "x-" not in json.dumps(target.json_schema)
    assert all("pydantic validates it afterwards" in one.reason for one in target.unheld)


def test_what_runs_when_an_object_is_made_is_told() -> None:
    @dataclasses.dataclass
    class Span:
        start: int
        end: int

        def __post_init__(self) -> None:
            assert self.start < self.end

    class Private(BaseModel):
        value: int
        _cache: dict[str, int] = pydantic.PrivateAttr(default_factory=dict)

    class Made(Private):
        def model_post_init(self, context: Any) -> None:
            assert self.value

    assert [one.keyword for one in resolve_schema(Span).unheld] == ["__post_init__"]
    assert [one.keyword for one in resolve_schema(Made).unheld] == ["model_post_init"]
    assert resolve_schema(Private).unheld == ()


def test_a_schema_that_a_class_writes_itself_is_told() -> None:
    class Loose(BaseModel):
        value: int

        @classmethod
        def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
            return {"type": "object"}

    [finding] = resolve_schema(Loose).unheld
    assert finding.keyword == "Loose.__get_pydantic_json_schema__"


def test_nesting_beyond_pythons_own_limit_is_a_typed_error_of_schema_or_output() -> None:
    with pytest.raises(GrammarError, match="nested too deeply"):
        resolve_schema('{"not": ' * 600 + "{}" + "}" * 600)
    lists = {"$ref": "#/$defs/list", "$defs": {"list": {"items": {"$ref": "#/$defs/list"}}}}
    with pytest.raises(OutputInvalid, match="nested too deeply"):
        resolve_schema(lists).validate("[" * 400 + "]" * 400)


def test_later_changes_of_the_callers_dict_change_nothing() -> None:
    schema = {"type": "string"}
    target = resolve_schema(schema)
    schema["type"] = "null"
    assert target.validate('"a"') == "a"


def test_alias_is_the_key_in_the_schema() -> None:
    assert list(resolve_schema(Aliased).json_schema["properties"]) == ["from"]


def test_computed_field_is_not_asked_of_the_model() -> None:
    assert list(resolve_schema(Computed).json_schema["properties"]) == ["side"]


def test_properties_keep_the_order_of_the_class() -> None:
    assert list(resolve_schema(Book).json_schema["properties"]) == ["title", "pages", "authors"]


def test_default_that_json_cannot_write_gives_no_warning() -> None:
    @dataclasses.dataclass
    class Job:
        name: str
        started: object = dataclasses.field(default=object(), compare=False)

    assert resolve_schema(Job).validate('{"name": "n"}') == Job("n")


def test_exception_of_another_kind_in_a_users_validator_passes_through() -> None:
    def broken(value: int) -> int:
        raise LookupError("a bug in the caller's own code")

    with pytest.raises(LookupError):
        resolve_schema(Annotated[int, pydantic.AfterValidator(broken)]).validate("1")


@pytest.mark.parametrize(
    ("schema", "name"),
    [(Point, "Point"), (UserId, "UserId"), ({"title": "Job"}, "Job"), (list[int], "JSON")],
    ids=label,
)
def test_target_is_called_what_the_user_calls_it(schema: Any, name: str) -> None:
    assert resolve_schema(schema).name == name


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@given(json_values)
def test_anything_json_dumps_writes_comes_back_unchanged(value: Any) -> None:
    assert resolve_schema(True).validate(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "string", "pattern": r"^\p{Unheard}+$"}, "#/pattern"),
        ({"properties": {"a": {"pattern": r"(?<n>x)\k<n>"}}}, "#/properties/a/pattern"),
        ({"patternProperties": {"[a": {}}}, "#/patternProperties/[a"),
        ({"anyOf": [{"pattern": "("}]}, "#/anyOf/0/pattern"),
        ({"properties": {"enum": {"pattern": "("}}}, "#/properties/enum/pattern"),
    ],
)
def test_a_pattern_that_output_could_not_be_checked_against_is_refused_at_once(schema, pointer):
    with pytest.raises(GrammarError) as caught:
        resolve_schema(schema)
    assert caught.value.pointer == pointer


def test_a_value_that_looks_like_a_bad_pattern_is_none():
    data = {"pattern": r"\p{L}"}
    assert resolve_schema({"const": data}).validate(json.dumps(data)) == data
    properties = {"properties": {"pattern": {"type": "string"}}}
    assert resolve_schema(properties).validate('{"pattern": "("}') == {"pattern": "("}
