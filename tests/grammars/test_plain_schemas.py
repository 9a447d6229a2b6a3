"""Plain subschemas are remembered from schema to schema: that must never show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.constraint import JsonSchema
from structspec.grammars.json import plain
from structspec.grammars.json.lark import write_document
from structspec.grammars.json.plain import plain_key
from structspec.grammars.lark_text import LarkText

NUMBERS = st.sampled_from((0, 1, 1.0, 2.5, -3))
PLAIN = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(("string", "boolean", "null"))},
        optional={
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(2, 4),
            "enum": st.sampled_from((["a"], ["b", "a"], ["abc", "abcd"])),
            "description": st.sampled_from(("one", "other")),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(("integer", "number"))},
        optional={"minimum": NUMBERS, "exclusiveMaximum": NUMBERS.map(lambda n: n + 7)},
    ),
)


def written(part: dict[str, Any], *, closed: bool) -> str:
    """The grammar of an object with one such property, which may be null so that there is one."""
    lark = LarkText()
    schema = {"properties": {"a": {"anyOf": [{"type": "null"}, part]}}, "required": ["a"]}
    return lark.text(write_document(lark, JsonSchema(schema, closed=closed)).rule)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(parts=st.lists(PLAIN, min_size=2, max_size=4), closed=st.booleans())
def test_what_was_met_before_is_written_as_if_it_were_new(
    parts: list[dict[str, Any]], closed: bool
) -> None:
    fresh = []
    for part in parts:
        plain._kept.clear()
        fresh.append(written(part, closed=closed))
    plain._kept.clear()
    for _ in range(2):
        assert [written(part, closed=closed) for part in parts] == fresh


def test_one_and_true_are_not_the_same_end_of_a_range() -> None:
    above_one = {"type": "number", "minimum": 1, "exclusiveMinimum": True}
    also = {"type": "number", "minimum": 1, "exclusiveMinimum": 1}
    assert plain_key(above_one) != plain_key(also)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": ["string", "null"]},
        {"type": "string", "pattern": "a"},  # whose findings tell the place
        {"type": "string", "enum": ["a", 1]},
        {"type": "string", "anyOf": [{"minLength": 1}]},
    ],
    ids=str,
)
def test_what_has_parts_or_findings_is_worked_out_each_time(schema: Any) -> None:
    assert plain_key(schema) is None


def test_what_is_kept_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_MAX_KEPT", 3)
    for length in range(10):
        written({"type": "string", "maxLength": length}, closed=True)
        assert len(plain._kept) <= 3
