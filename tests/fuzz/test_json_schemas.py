"""JSON schemas at random: the mask and the validator of finished text agree on every value."""

from __future__ import annotations

import json
import re
from random import Random

from hypothesis import assume, note
from hypothesis import strategies as st

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError, OutputInvalid, UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar
from structspec.json_value import parse_json
from tests.fuzz.bounds import fuzzed
from tests.fuzz.instances import instances
from tests.fuzz.judge import (
    MAX_ORDERS,
    accepts,
    broken_keywords,
    limited,
    names_one_of,
    num_orders,
    orders,
    spelled,
)
from tests.fuzz.schemas import Schema, schemas
from tests.fuzz.walks import check_row, walk
from tests.grammars.cases import backend

DATA = st.data()
NUM_INSTANCES = 6
_EXPONENT = re.compile(r"\de[+-]")


def compiled(constraint: JsonSchema) -> CompiledGrammar | GrammarError:
    """The grammar, or why there is none; nothing else, and soon."""
    note(f"schema: {json.dumps(constraint.schema)}")
    with limited():
        try:
            return backend("bytes", "llguidance").compile(constraint)
        except GrammarError as error:
            return error


def is_unsatisfiable(error: GrammarError) -> bool:
    """Whether it says that no value conforms."""
    return "no finite value" in str(error) or "no text at all" in str(error)


@fuzzed(40, 3_000, schema=schemas(), closed=st.booleans(), data=DATA)
def test_what_is_invalid_is_not_written_or_its_keyword_is_reported(schema, closed, data):
    grammar = compiled(JsonSchema(schema, closed=closed))
    assume(not isinstance(grammar, GrammarError))
    broken = broken_keywords(schema)
    for _ in range(NUM_INSTANCES):
        value = data.draw(instances(schema))
        keywords = broken(value)
        if keywords and accepts(grammar, spelled(value)):
            assert names_one_of(grammar.report, keywords), grammar.report


@fuzzed(40, 3_000, schema=schemas(), data=DATA)
def test_what_is_valid_is_written_in_one_order_of_its_keys(schema, data):
    grammar = compiled(JsonSchema(schema, closed=False))
    for value in valid_instances(grammar, schema, data):
        if num_orders(value) <= MAX_ORDERS:
            assert any(accepts(grammar, spelled(ordered)) for ordered in orders(value)), value


@fuzzed(40, 3_000, schema=schemas(), data=DATA)
def test_what_is_valid_is_written_in_any_order_where_that_is_free(schema, data):
    grammar = compiled(JsonSchema(schema, closed=False, property_order="any"))
    for value in valid_instances(grammar, schema, data):
        assert accepts(grammar, spelled(value)), value


def valid_instances(
    grammar: CompiledGrammar | GrammarError, schema: Schema, data: st.DataObject
) -> list[object]:
    """Some values that conform; there are none where the grammar says so.

    Left out are those whose numbers `json.dumps` writes with exponents: ranges do not take all.
    """
    assume(not isinstance(grammar, GrammarError) or is_unsatisfiable(grammar))
    assume(not isinstance(grammar, UnsupportedConstraint))
    broken = broken_keywords(schema)
    drawn = [data.draw(instances(schema)) for _ in range(NUM_INSTANCES)]
    valid = [value for value in drawn if broken(value) == set()]
    assert not (valid and isinstance(grammar, GrammarError)), (valid[0], grammar)
    return [value for value in valid if not _EXPONENT.search(spelled(value))]


@fuzzed(30, 2_000, schema=schemas(), order=st.sampled_from(["schema", "any"]), seed=st.integers())
def test_a_walk_through_the_mask_ends_in_valid_json(schema, order, seed):
    grammar = compiled(JsonSchema(schema, closed=False, property_order=order))
    assume(not isinstance(grammar, GrammarError))
    broken = broken_keywords(schema)
    for index in range(3):
        text = walk(grammar.matcher(), Random(seed + index))
        if text is None:
            continue
        value = json.loads(text)
        if grammar.report.exact:
            assert not broken(value), text
            try:
                parse_json(text.decode())
            except OutputInvalid as error:
                assert "out of range" in str(error), text  # a number too large for a float


@fuzzed(15, 1_000, schema=schemas(), seed=st.integers())
def test_rows_say_what_is_taken_and_matchers_leave_each_other_alone(schema, seed):
    grammar = compiled(JsonSchema(schema))
    assume(not isinstance(grammar, GrammarError))
    one, other = grammar.matcher(), grammar.matcher()
    check_row(one)
    walk(other, Random(seed), max_steps=12)
    walk(one, Random(seed + 1), max_steps=6)
    check_row(one)
