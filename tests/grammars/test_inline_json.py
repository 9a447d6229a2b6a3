"""JSON inside a Lark grammar is written as everywhere, unless its options say otherwise."""

from __future__ import annotations

import json
import re

import pytest

from structspec.constraint import Grammar, JsonSchema
from structspec.errors import GrammarError, UnsupportedConstraint
from tests.grammars.cases import backend

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"type": "null"}},
    "required": ["a"],
}
VALUE = {"a": [1, 2], "b": None}
TEXTS = {
    "spaced": json.dumps(VALUE),
    "compact": json.dumps(VALUE, separators=(",", ":")),
    "pretty": json.dumps(VALUE, indent=2),
    "flexible": json.dumps(VALUE, separators=("  ,", " :\t")),
    "with a key that is not declared": json.dumps(VALUE | {"c": 1}),
    "with an integer as a float": '{"a": [1.0, 2], "b": null}',
}


def takes(constraint, text: str) -> bool:
    matcher = backend("bytes", "llguidance").compile(constraint).matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


def inline(options=None, **more) -> Grammar:
    guidance = {} if options is None else {"x-guidance": options}
    return Grammar(f"start: %json {json.dumps(guidance | SCHEMA | more)}")


def test_a_schema_inside_a_grammar_takes_what_the_schema_alone_does():
    alone = {name: takes(JsonSchema(SCHEMA), text) for name, text in TEXTS.items()}
    assert alone == {name: takes(inline(), text) for name, text in TEXTS.items()}
    assert [name for name, is_taken in alone.items() if is_taken] == ["spaced"]


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, {"spaced", "compact", "pretty", "flexible"}),
        (
            {"whitespace_flexible": True, "lenient": True},
            {"spaced", "compact", "pretty", "flexible"},
        ),
        ({"whitespace_flexible": False}, {"compact"}),
        (
            {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
            {"spaced"},
        ),
    ],
)
def test_options_of_a_schema_say_its_white_space(options, taken):
    assert {name for name, text in TEXTS.items() if takes(inline(options), text)} == taken


def test_an_explicit_additional_properties_is_honoured():
    grammar = inline(additionalProperties=True)
    assert takes(grammar, TEXTS["with a key that is not declared"])


@pytest.mark.parametrize(
    ("options", "pointer", "kind"),
    [
        ({"whitespace_pattern": " ?"}, "#/x-guidance/whitespace_pattern", UnsupportedConstraint),
        ({"item_separator": ";"}, "#/x-guidance", UnsupportedConstraint),
        ({"no_such": 1}, "#/x-guidance/no_such", UnsupportedConstraint),
        ({"whitespace_flexible": 1}, "#/x-guidance/whitespace_flexible", GrammarError),
        ({"key_separator": None}, "#/x-guidance/key_separator", GrammarError),
        ([], "#/x-guidance", GrammarError),
    ],
)
def test_an_option_that_cannot_be_met_is_an_error_with_its_place(options, pointer, kind):
    with pytest.raises(kind, match=re.escape(pointer)) as caught:
        backend("bytes", "llguidance").compile(inline(options))
    assert (caught.value.line, caught.value.column) == (1, 8)


def test_that_free_keys_may_come_twice_is_said_with_the_line():
    grammar = Grammar('start: "<" j\n\nj: %json {"type": "object"}')
    report = backend("bytes", "llguidance").compile(grammar).report
    assert any(change.startswith("line 3") and "twice" in change for change in report.changes)
