"""Laws of values as they are written, over random types, values and ways to cut their text."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, Field, TypeAdapter, create_model
from typing_extensions import TypedDict

from structspec import LLM, EngineConfig, OutputInvalid, Truncated
from structspec.partial_values import PartialItems, PartialValues
from tests.models.reference import save_tiny_model
from tests.test_partial_values import is_within, size

Typed = tuple[Any, st.SearchStrategy[Any]]  # a type, and values of it

LEAVES: list[Typed] = [
    (int, st.integers(-99, 99)),
    (str, st.text('a"\\{}[]:, é\n', max_size=4)),
    (bool, st.booleans()),
    (dt.date, st.dates()),
    (Literal["a", 3], st.sampled_from(["a", 3])),
    (float | None, st.none() | st.floats(-9, 9)),
]


def _list(inner: Typed) -> Typed:
    return list[inner[0]], st.lists(inner[1], max_size=3)  # type: ignore[valid-type]


def _map(inner: Typed) -> Typed:
    keys = st.text('a"é', max_size=2)
    return dict[str, inner[0]], st.dictionaries(keys, inner[1], max_size=3)  # type: ignore[valid-type]


def _tuple(first: Typed, second: Typed) -> Typed:
    return tuple[first[0], second[0]], st.tuples(first[1], second[1])  # type: ignore[valid-type]


def _model(first: Typed, second: Typed) -> Typed:
    model = create_model("Model", first=(first[0], ...), second=(second[0], ...))
    return model, st.builds(model.model_construct, first=first[1], second=second[1])


def _typed_dict(first: Typed, second: Typed) -> Typed:
    kind = TypedDict("kind", {"a b": first[0], "c": second[0]})  # type: ignore[operator]
    return kind, st.fixed_dictionaries({"a b": first[1], "c": second[1]})


def _two(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    pairs = (st.tuples(inner, inner).map(lambda two, make=make: make(*two)) for make in _OF_TWO)
    return st.one_of(inner.map(_list), inner.map(_map), *pairs)


_OF_TWO = (_tuple, _model, _typed_dict)
TYPES = st.recursive(st.sampled_from(LEAVES), _two, max_leaves=5)
CASES = TYPES.flatmap(lambda typed: st.tuples(st.just(typed[0]), typed[1]))
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=5)
STYLES = st.sampled_from([{"separators": (",", ":")}, {}, {"indent": 2}, {"ensure_ascii": False}])


def pieces(text: str, cuts: list[int]) -> Iterator[str]:
    """The text cut into pieces of these lengths, over and over."""
    at, index = 0, 0
    while at < len(text):
        length = cuts[index % len(cuts)]
        yield text[at : at + length]
        at, index = at + length, index + 1


def written(kind: Any, value: Any, style: dict[str, Any]) -> str:
    plain = TypeAdapter(kind).dump_python(value, mode="json")
    return json.dumps(plain, **style)


@settings(max_examples=150, deadline=None)
@given(CASES, CUTS, STYLES)
def test_partial_values_only_grow_and_are_parts_of_the_whole(
    case: tuple[Any, Any], cuts: list[int], style: dict[str, Any]
) -> None:
    kind, value = case
    values = PartialValues(kind)
    parts = [
        part for piece in pieces(written(kind, value, style), cuts) for part in values.take(piece)
    ]
    assert all(is_within(part, value) for part in parts)
    sizes = [size(part) for part in parts]
    assert sizes == sorted(sizes)


@settings(max_examples=100, deadline=None)
@given(CASES, CUTS, STYLES)
def test_what_is_known_hangs_on_what_was_read_and_not_on_how_it_was_cut(
    case: tuple[Any, Any], cuts: list[int], style: dict[str, Any]
) -> None:
    kind, value = case
    text = written(kind, value, style)
    read = ""
    values = PartialValues(kind)
    for piece in pieces(text, cuts):
        given_parts = [*values.take(piece)]
        read += piece
        at_once = [*PartialValues(kind).take(read)]
        if given_parts:
            assert repr(given_parts[-1:]) == repr(at_once[-1:])


@settings(max_examples=150, deadline=None)
@given(TYPES.flatmap(lambda t: st.tuples(st.just(t[0]), st.lists(t[1], max_size=4))), CUTS, STYLES)
def test_each_item_is_given_once_with_the_piece_that_closes_it(
    case: tuple[Any, list[Any]], cuts: list[int], style: dict[str, Any]
) -> None:
    kind, values = case
    items = PartialItems(list[kind])
    texts = [written(kind, value, style) for value in values]
    text, ends = "[", []
    for index, one in enumerate(texts):
        text += ("," if index else "") + one
        # a number ends with what follows it, all else with its own last character
        ends.append(len(text) + (one[-1] not in '}]"'))
    text += "]"
    read, seen = 0, []
    for piece in pieces(text, cuts):
        read += len(piece)
        seen += items.take(piece)
        assert len(seen) == sum(end <= read for end in ends)
    expected = [TypeAdapter(kind).validate_json(one) for one in texts]
    assert repr(seen) == repr(expected)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama", max_position_embeddings=512)
    with LLM(folder, config=EngineConfig(block_size=4)) as llm:
        yield llm


def test_a_stream_that_is_cut_says_what_there_was(tiny: LLM) -> None:
    schema = Annotated[list[Annotated[str, Field(pattern="^[a-z]{3}$")]], Field(min_length=30)]
    seen = []
    with pytest.raises(Truncated) as caught:
        for item in tiny.stream_items("Hi", schema=schema, max_tokens=30, temperature=1.0, seed=1):
            seen.append(item)
    assert seen == re.findall('"([a-z]{3})"', caught.value.text) != []
    assert caught.value.usage is not None and caught.value.usage.completion_tokens == 30


def test_an_item_that_python_refuses_ends_a_stream_behind_those_before_it(tiny: LLM) -> None:
    seen: list[int] = []

    def third_time(number: int) -> int:
        if len(seen) == 2:
            raise ValueError("enough")
        return number

    schema = Annotated[
        list[Annotated[int, Field(ge=10, le=99), AfterValidator(third_time)]],
        Field(min_length=9, max_length=9),
    ]
    with pytest.raises(OutputInvalid, match="enough") as caught:
        for number in tiny.stream_items("Hi", schema=schema, temperature=1.0, seed=1):
            seen.append(number)
    assert len(seen) == 2 and caught.value.errors[0].startswith("#/2: ")
    assert [*map(int, re.findall("[0-9]{2}", caught.value.text))][:2] == seen
    assert caught.value.usage is not None and caught.value.usage.completion_tokens > 0
    assert tiny.generate("Hi", regex="[a-c]{3}")  # nothing is left running in its way
