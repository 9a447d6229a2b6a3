"""Which constraints share a compile: those that mean the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.compile_key import constraint_digest, digest_of
from structspec.constraint import Choice, JsonSchema, Regex

NOTES = {"title": "T", "description": "D", "$comment": "C", "examples": [1]}


@pytest.mark.parametrize(
    "make",
    [
        lambda notes: {"type": "string", **notes},
        lambda notes: {"properties": {"title": {"type": "string", **notes}}},
        lambda notes: {"properties": {"description": {"title": "t", **notes}}, **notes},
        lambda notes: {"$defs": {"examples": notes}, "allOf": [{"minimum": 1, **notes}]},
        lambda notes: {"properties": {"Größe": {"const": "é", **notes}}},
        lambda notes: {"items": {**notes, "not": {"const": {"title": "kept"}, **notes}}},
    ],
)
def test_what_only_describes_makes_no_difference(make):
    assert constraint_digest(JsonSchema(make(NOTES))) == constraint_digest(JsonSchema(make({})))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"const": {"title": "a"}}, {"const": {"title": "b"}}),
        ({"enum": [{"description": "a"}]}, {"enum": [{"description": "b"}]}),
        ({"properties": {"title": True}}, {"properties": {}}),
        ({"required": ["title"]}, {"required": ["examples"]}),
        ({"properties": {"a": {}, "b": {}}}, {"properties": {"b": {}, "a": {}}}),
        ({"$ref": "#/examples/0", "examples": [{"type": "null"}]}, {"$ref": "#/examples/0"}),
        ({"title": 5}, {}),  # which is no schema
    ],
)
def test_what_constrains_makes_a_difference(one, other):
    assert constraint_digest(JsonSchema(one)) != constraint_digest(JsonSchema(other))


def test_style_order_and_closedness_make_a_difference():
    variants = [{}, {"style": "compact"}, {"property_order": "any"}, {"closed": False}]
    assert len({constraint_digest(JsonSchema({}, **variant)) for variant in variants}) == 4


def test_a_regex_is_not_a_choice_of_the_same_text():
    assert constraint_digest(Regex("a")) != constraint_digest(Choice(("a",)))


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_texts_that_are_cut_differently_differ(one, other):
    assert (digest_of(tuple(one)) == digest_of(tuple(other))) == (one == other)


def test_half_a_character_has_a_digest_too():
    assert digest_of(("\ud800",)) != digest_of(("?",))
