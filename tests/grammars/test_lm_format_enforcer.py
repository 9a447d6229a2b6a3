"""lm-format-enforcer: what it writes is sound, what it cannot hold is said."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Choice, Grammar, JsonSchema, Regex
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import FillJob, MatcherFailed
from tests.grammars.cases import PERSON, VOCABULARIES, backend
from tests.grammars.json_texts import takes
from tests.grammars.test_real_world_schemas import CASES
from tests.walks import walk

NAME = "lm-format-enforcer"


@pytest.mark.parametrize(
    "constraint",
    [Regex(r"\d{4}-\d\d"), Regex("(ab|cd)+e?"), Regex(r"[^\W\d]{2,9}"), Choice(("a", "abc", "b"))],
    ids=str,
)
def test_whatever_it_writes_of_a_regex_or_choices_llguidance_takes(constraint):
    vocabulary = VOCABULARIES["pieces"]()
    grammars = [backend("pieces", name).compile(constraint) for name in (NAME, "llguidance")]
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    for seed in range(20):
        random = Random(seed)
        writer, reader = (grammar.matcher() for grammar in grammars)
        for _ in range(12):
            writer.fill(bitmask, 0)
            allowed = np.flatnonzero(unpack_row(bitmask[0], vocabulary.vocab_size))
            token_id = int(random.choice(allowed))
            assert writer.accept(token_id)
            assert reader.accept(token_id)


def test_nothing_of_a_schema_is_called_enforced():
    report = backend("bytes", NAME).report(JsonSchema(PERSON))
    assert not report.enforced
    assert {"style", "maxLength", "required"} <= {f.keyword for f in report.approximated}


def test_json_of_the_schema_can_be_written():
    matcher = backend("bytes", NAME).compile(JsonSchema(PERSON)).matcher()
    text = json.dumps({"name": "Ada", "age": 36, "tags": ["a"]})
    assert all(map(matcher.accept, text.encode()))
    assert matcher.accept(256)


def test_a_character_that_no_token_is_cannot_be_written():
    with pytest.raises(UnsupportedConstraint, match="'😀'"):
        backend("pieces", NAME).compile(Choice(("é", "😀")))
    assert backend("pieces", NAME).compile(Choice(("é",)))


@pytest.mark.parametrize(("draft", "num_valid"), [('"b', 1), ('"b"', 1), ('"', 1), ('"x', 1)])
def test_a_draft_into_a_dead_end_is_dropped_and_the_text_stays_where_it_was(draft, num_valid):
    """It allows a `b` behind the quote, and then finds that nothing may follow."""
    grammar = backend("bytes", NAME).compile(JsonSchema({"type": "string", "pattern": "(?=a)b"}))
    matcher = grammar.matcher()
    bitmask = allocate_bitmask(4, 257)
    job = FillJob(matcher, 0, draft.encode())
    assert grammar.backend.fill_drafts([job], bitmask) == [num_valid]
    alone = allocate_bitmask(2, 257)
    matcher.fill(alone, 0)
    assert matcher.accept(ord('"'))
    matcher.fill(alone, 1)
    np.testing.assert_array_equal(bitmask[:2], alone)
    assert matcher.accept(ord("b"))
    with pytest.raises(MatcherFailed):
        matcher.fill(alone, 0)


REFUSED = [
    ({"const": {"a": 1}}, "#"),
    ({"enum": ["a", [1]]}, "#"),
    ({"enum": ['a"b']}, "#"),
    ({"const": "é"}, "#"),
    ({"not": {"type": "string"}}, "#"),
    ({"minLength": 2}, "#"),
    ({"type": "string", "minLength": 2, "maxLength": 1}, "#"),
    ({"type": "array", "items": {"not": {}}}, "#/items"),
    ({"type": "object", "properties": {"a": {"const": [1]}}}, "#/properties/a"),
    ({"type": "object", "properties": {"a": False}}, "#/properties/a"),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)b(?<=b)"}}}, None),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "é"}}}, "#/properties/a"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "#/properties/a"),
    ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, "#"),
    ({"type": "object", "additionalProperties": {"enum": [{}]}}, "#/additionalProperties"),
    ({"allOf": [{"properties": {"a": {}}}, {"type": "object"}]}, "#"),
    ({"anyOf": [{"type": "null"}, {"minimum": 3}]}, "#/anyOf/1"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"if": {}}}}, "#/$defs/x"),
]


@pytest.mark.parametrize(("schema", "pointer"), REFUSED, ids=str)
def test_what_it_would_fail_at_while_it_writes_is_refused_with_its_place(schema, pointer):
    with pytest.raises(UnsupportedConstraint) as caught:
        backend("bytes", NAME).compile(JsonSchema(schema, closed=False))
    assert pointer is None or caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"const": None}, {"null"}),
        ({"enum": [1.5, True, "a", None]}, {"1.5", "true", '"a"', "null"}),
        ({"type": "integer", "enum": [1, 2]}, {"1", "2"}),
        ({"oneOf": [{"type": "null"}, {"const": False}]}, {"null", "false"}),
        ({"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 1}, {"[1]"}),
    ],
    ids=str,
)
def test_values_of_every_plain_type_are_written_as_json(schema, texts):
    matcher = backend("bytes", NAME).compile(JsonSchema(schema)).matcher()
    for text in (*texts, "True", "None", '"b"', "3", "0"):
        assert takes(matcher, text) == (text in texts)


def test_whatever_of_the_real_schemas_compiles_never_fails_while_it_is_written():
    num_compiled = 0
    for case in CASES:
        try:
            grammar = backend("bytes", NAME).compile(JsonSchema(case["schema"], closed=False))
        except UnsupportedConstraint as error:
            assert error.pointer is not None
            continue
        num_compiled += 1
        for seed in range(2):
            text = walk(grammar.matcher(), Random(seed))
            assert text is None or not any(c in text for c in "\x00\x01\x1f")
    assert num_compiled > 20


@pytest.mark.parametrize("constraint", [Grammar('start: "a"'), Regex("(?=a)b")], ids=str)
def test_what_it_cannot_read_is_refused(constraint):
    with pytest.raises(GrammarError):
        backend("bytes", NAME).compile(constraint)
