"""Strings of patterns, formats and lengths: what is written is JSON, and what it says is meant."""

from __future__ import annotations

import json
import random
from itertools import product

import pytest

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.formats import FORMATS, is_format
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.parse import parse_search
from tests.fuzz.bounds import fuzzed
from tests.fuzz.languages import WORDS, matched_by
from tests.fuzz.patterns import patterns
from tests.grammars.cases import backend
from tests.grammars.json_texts import takes
from tests.walks import walk

# `"`, `\`, control characters, what may be escaped, one, two and four bytes, a line end of ECMA
ALPHABET = 'a:"\\/\n\x01 é\u2028😀'
CLASSES = (
    *(".", r"\S", r"\W", r"\D", r"\s", "[^:]", r"[^:\s]", "[^a-z]", "[^\\\\]", '[^"]', r"[\s\S]"),
    *("[!-~]", "[ -z]", r"[\x00-\x7f]", r"[\x00-\x1f]", r'["\\]', r"[\n\r\t]", '"', r"\\", r"\/"),
    *(r"\x01", r"\u2028", "😀", r"[^\x00-\uffff]"),
)
PATTERNS = (
    *(f"^{name}{count}$" for name in CLASSES for count in ("", "{2}", "+", "{0,1000}")),
    *(r"^[^:\s]+:[^:]+(:[^\s]+)?$", r"^(\.|\S\s)+$", r'^(a|"|\\)*\n?$', r"^(?!a)\S$", "^$"),
    *(r'"', r"\\$", r"^\s", r"[^a]b|\n", "a|[^\\s\\S]b"),
)
LENGTHS = ({"minLength": 1}, {"maxLength": 2}, {"minLength": 1, "maxLength": 900}, {"maxLength": 0})
LIBRARIES = pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
TEXTS = ["".join(letters) for n in range(3) for letters in product(ALPHABET, repeat=n)]


def test_the_cases_are_many():
    assert len(PATTERNS) > 90
    assert len(TEXTS) > 100


def check_walks(library: str, schema: dict[str, object], num_walks: int = 12) -> list[str]:
    """What random walks write: each is JSON, in raw bytes."""
    grammar = backend("bytes", library).compile(JsonSchema(schema, closed=False))
    written = [walk(grammar.matcher(), random.Random(seed)) for seed in range(num_walks)]
    return [json.loads(text) for text in written if text is not None]


@LIBRARIES
@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_a_pattern_lets_be_written_is_a_json_string_that_matches(library, pattern):
    regex = parse_search(pattern)
    for text in check_walks(library, {"type": "string", "pattern": pattern}):
        assert matches(regex, text), (pattern, text)


@LIBRARIES
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_a_format_lets_be_written_is_a_json_string(library, name):
    schema = {"type": "string", "format": name}
    is_exact = backend("bytes", library).report(JsonSchema(schema)).exact
    for text in check_walks(library, schema):
        assert not is_exact or is_format(name, text), text


@LIBRARIES
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_what_a_length_lets_be_written_is_a_json_string_of_that_length(library, lengths):
    for text in check_walks(library, {"type": ["string", "null"], **lengths}):
        if text is not None:
            assert lengths.get("minLength", 0) <= len(text) <= lengths.get("maxLength", 900)


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if "1000" not in p])
def test_xgrammar_takes_exactly_the_texts_that_a_pattern_matches(pattern):
    regex = parse_search(pattern)
    grammar = backend("bytes", "xgrammar").compile(
        JsonSchema({"type": "string", "pattern": pattern})
    )
    assert grammar.report.exact
    matcher = grammar.matcher()
    for text in TEXTS:
        for is_ascii in (False, True):
            written = json.dumps(text, ensure_ascii=is_ascii)
            assert takes(matcher, written) == matches(regex, text), (pattern, written)


@pytest.mark.parametrize("lengths", [{"minLength": 2}, {"maxLength": 1}, {"maxLength": 0}], ids=str)
def test_xgrammar_takes_exactly_the_texts_of_a_length(lengths):
    schema = {"type": "string", **lengths}
    matcher = backend("bytes", "xgrammar").compile(JsonSchema(schema)).matcher()
    for text in TEXTS:
        is_right = lengths.get("minLength", 0) <= len(text) <= lengths.get("maxLength", 9)
        assert takes(matcher, json.dumps(text)) == is_right


def test_what_is_too_long_for_an_automaton_is_written_without_escapes_and_said_to_be():
    for keywords in (
        {"pattern": r"^[^:]{1,1000}$"},
        {"pattern": r"^(\S{200};)+$"},
        {"maxLength": 99},
    ):
        report = backend("bytes", "xgrammar").report(JsonSchema({"type": "string", **keywords}))
        assert report.exact
        assert {"without escapes" in f.reason for f in report.enforced} == {False, True}


@LIBRARIES
@pytest.mark.parametrize("name", ['a"c', "a\\", "a\n", '"', "\\"])
def test_a_declared_key_with_escapes_beside_free_ones_never_ends_a_key_early(library, name):
    schema = {"type": "object", "properties": {"ab": {}, name: {}}, "additionalProperties": True}
    try:
        check_walks(library, schema, 40)
    except UnsupportedConstraint as error:
        assert library == "xgrammar"
        assert error.pointer == "#"


@fuzzed(80, 5_000, pattern=patterns(has_lookaround=False))
def test_a_pattern_takes_what_python_matches_with_xgrammar(pattern):
    schema = {"type": "string", "pattern": f"^(?:{pattern})$"}
    try:
        matcher = backend("bytes", "xgrammar").compile(JsonSchema(schema)).matcher()
    except GrammarError:
        assert not matched_by(pattern)
        return
    expected = matched_by(pattern)
    assert {text for text in WORDS if takes(matcher, f'"{text}"')} == expected
