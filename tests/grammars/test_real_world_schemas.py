"""Real schemas from JSONSchemaBench: nothing invalid gets through, nothing crashes or hangs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar
from tests.grammars.cases import backend

SAMPLE = Path(__file__).parents[1] / "data" / "jsonschemabench" / "sample.jsonl.gz"
with gzip.open(SAMPLE, "rt") as lines:
    CASES = [json.loads(line) for line in lines]
STOP = 256


def accepts(grammar: CompiledGrammar, instance: object) -> bool:
    """Whether the text `json.dumps` writes can be written to its end."""
    matcher = grammar.matcher()
    data = json.dumps(instance, ensure_ascii=False).encode()
    return all(map(matcher.accept, data)) and matcher.accept(STOP)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_llguidance_accepts_no_invalid_instance_of_a_schema_it_calls_exact(case):
    grammar = backend("bytes", "llguidance").compile(JsonSchema(case["schema"], closed=False))
    if not grammar.report.exact:
        return
    for test in case["tests"]:
        assert test["valid"] or not accepts(grammar, test["data"]), test["data"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_xgrammar_refuses_a_schema_or_accepts_no_invalid_instance(case):
    try:
        grammar = backend("bytes", "xgrammar").compile(JsonSchema(case["schema"], closed=False))
    except UnsupportedConstraint as error:
        assert error.pointer is not None
        return
    if not grammar.report.exact:
        return
    for test in case["tests"]:
        assert test["valid"] or not accepts(grammar, test["data"]), test["data"]


def test_llguidance_accepts_nearly_all_valid_instances():
    num_valid = num_accepted = 0
    for case in CASES:
        grammar = backend("bytes", "llguidance").compile(JsonSchema(case["schema"], closed=False))
        valid = [test["data"] for test in case["tests"] if test["valid"]]
        num_valid += len(valid)
        num_accepted += sum(accepts(grammar, instance) for instance in valid)
    assert num_accepted / num_valid > 0.98  # a few have their keys in another order


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
def test_closed_objects_never_crash_a_backend_and_say_what_changed(library):
    num_closed = 0
    for case in CASES:
        try:
            grammar = backend("bytes", library).compile(JsonSchema(case["schema"], closed=True))
        except GrammarError as error:
            assert error.pointer is not None
            continue
        num_closed += any("closed" in change for change in grammar.report.changes)
    assert num_closed > len(CASES) / 4


def test_every_constraining_keyword_is_in_the_report_once():
    report = backend("bytes", "llguidance").report(
        JsonSchema(
            {
                "type": "object",
                "title": "only a description",
                "properties": {"a": {"type": "string", "format": "made-up", "minLength": 2}},
                "uniqueItems": True,
            }
        )
    )
    assert [(f.pointer, f.keyword) for f in report.enforced] == [
        ("#", "type"),
        ("#", "properties"),
        ("#", "uniqueItems"),
        ("#/properties/a", "type"),
        ("#/properties/a", "format"),
        ("#/properties/a", "minLength"),
    ]
    assert report.exact
    assert any("made-up" in change for change in report.changes)
