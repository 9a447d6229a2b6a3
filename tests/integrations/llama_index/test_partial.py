"""Objects that grow: whatever the pieces, each is a beginning of what the whole JSON says."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.program.utils import FlexibleModel
from pydantic import AliasChoices, AliasPath, BaseModel, Field

from structspec.integrations.llama_index_partial import FlexibleValues, partial_value
from tests.integrations.llama_index.classes import Digits, Flat

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def is_begun(part: Any, whole: Any) -> bool:
    """Whether what is there of a value is the beginning of it."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        pairs = zip(part, whole, strict=False)
        return len(part) <= len(whole) and all(is_begun(p, w) for p, w in pairs)
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_begun(p, whole[key]) for key, p in part.items())
    return type(part) is type(whole) and part == whole


@given(values)
def test_every_beginning_of_a_json_text_says_a_beginning_of_its_value(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    whole = json.loads(text)
    for end in range(len(text)):
        part = partial_value(text[:end])
        assert part is None or is_begun(part, whole), (text[:end], part)


@given(values.filter(lambda one: isinstance(one, dict | list | str)))
def test_a_whole_text_says_its_value(value: Any) -> None:
    assert partial_value(json.dumps(value, ensure_ascii=False)) == value


def test_texts_grow_and_numbers_come_when_they_have_ended() -> None:
    grown = FlexibleValues(Flat)
    seen = [
        one.model_dump()
        for piece in ('{"na', 'me": "A', 'da", ', '"age": 3', "6", "}")
        for one in grown.feed(piece)
    ]
    assert seen == [
        {"name": None, "age": None},
        {"name": "A", "age": None},
        {"name": "Ada", "age": None},
        {"name": "Ada", "age": 36},
    ]


def test_digits_at_the_end_of_a_text_are_seen() -> None:
    assert partial_value('{"name": "R2') == {"name": "R2"}
    assert partial_value('{"name": "R2D2", "age": 1') == {"name": "R2D2"}


def test_fields_are_found_by_every_name_that_they_have_in_json() -> None:
    class Named(BaseModel):
        a: int = Field(alias="x")
        b: int = Field(validation_alias=AliasChoices("y", AliasPath("z")))

    (one,) = FlexibleValues(Named).feed('{"x": 1, "y": 2}')
    assert one.model_dump() == {"a": 1, "b": 2}
    (one,) = FlexibleValues(Named).feed('{"z": 2}')
    assert one.model_dump() == {"a": None, "b": 2}


def test_what_is_no_object_is_the_root() -> None:
    (one,) = FlexibleValues(Digits).feed("[1, 2]")
    assert isinstance(one, FlexibleModel) and one.model_dump() == {"root": [1, 2]}


def test_the_value_of_the_last_response_is_given_as_it_is() -> None:
    ada = Flat(name="Ada", age=3)
    last = ChatResponse(message=ChatMessage(), delta="}", raw={"value": ada})
    assert [*FlexibleValues(Flat).take(last)] == [ada]


def test_one_class_is_made_for_each_that_is_asked_for() -> None:
    (one,) = FlexibleValues(Flat).feed("{")
    (other,) = FlexibleValues(Flat).feed("{")
    assert type(one) is type(other)
