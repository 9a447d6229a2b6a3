"""Every Python type: the mask writes what pydantic takes, and takes what pydantic writes."""

from __future__ import annotations

import json
import random
import warnings
from functools import cache
from typing import Annotated

import pydantic
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from structspec.constraint import JsonSchema
from structspec.errors import OutputInvalid
from structspec.grammars.base import CompiledGrammar
from structspec.options import resolve_options
from structspec.schema import SchemaTarget, resolve_schema
from tests.grammars.cases import backend
from tests.grammars.json_texts import matcher_of, takes
from tests.python_types import NO_VALUES, TYPES
from tests.walks import walk

NUM_WALKS = 300


@cache
def resolved(name: str) -> tuple[SchemaTarget, CompiledGrammar]:
    target = resolve_schema(TYPES[name][0])
    return target, backend("bytes", "llguidance").compile(JsonSchema(target.json_schema))


def is_read(target: SchemaTarget, text: str) -> bool:
    try:
        target.validate(text)
    except (OutputInvalid, ZeroDivisionError, TypeError):
        return False
    return True


@pytest.mark.parametrize("name", TYPES)
def test_pydantic_takes_what_an_exact_mask_writes(name: str) -> None:
    target, grammar = resolved(name)
    is_exact = grammar.report.exact and not target.unheld
    random_ = random.Random(name)
    texts = [walk(grammar.matcher(), random_) for _ in range(NUM_WALKS)]
    finished = [text for text in texts if text is not None]
    assert len(finished) > NUM_WALKS // 4
    refused = [text for text in finished if not is_read(target, text)]
    assert not refused or not is_exact


CHECKED_IN_PYTHON = {
    *("datetime-after", "date-from", "future-date", "past-datetime", "timedelta-short"),
    *("zone-info", "base64-str", "json", "bytes-short", "file-path", "pattern", "import"),
    *("float-tenths", "float-fives", "decimal-in-bounds", "str-not-digits", "dict-small"),
    *("after", "with-schema", "set-of-lower-case", "frozenset-of-stripped"),
    *("set-of-one-and-true", "set-of-decimals", "dict-of-two-lower-case"),
    *(name for name in TYPES if name.startswith("str-rust-")),
}


def test_what_only_python_checks_is_told_and_nothing_else() -> None:
    assert {name for name in TYPES if resolved(name)[0].unheld} == CHECKED_IN_PYTHON


SHORT = Annotated[int, Field(gt=-(2**60), lt=2**60)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(-(2**70), 2**70), st.sampled_from(["{}", "{}.0", "{}.00", "{:.1e}", "{:.0E}"]))
@example(10**19, "{:.0E}")
def test_an_open_mask_of_integers_writes_more_than_pydantic_reads_only_where_that_is_told(
    number: int, spelling: str
) -> None:
    text = spelling.format(number)
    for kind in (int, SHORT, pydantic.PositiveInt):
        target = resolve_schema(kind)
        for closed in (True, False):
            task = resolve_options({"schema": kind, "closed": closed})
            grammar = backend("bytes", "llguidance").compile(task.constraint)
            if takes(grammar.matcher(), text) and not task.unheld:
                assert isinstance(target.validate(text), int)
            assert bool(task.unheld) is (not closed and kind is not SHORT)


DUMPED = [name for name, (_, values) in TYPES.items() if values is not NO_VALUES]


@pytest.mark.parametrize("name", DUMPED)
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_the_mask_takes_what_pydantic_dumps(name: str, data: st.DataObject) -> None:
    kind, values = TYPES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a value of a part, dumped as the whole
        dumped = json.loads(TypeAdapter(kind).dump_json(data.draw(values)))
    _, grammar = resolved(name)
    assert takes(grammar.matcher(), json.dumps(dumped, ensure_ascii=False))


@pytest.mark.parametrize(
    ("bounds", "text", "is_taken"),
    [
        ({"exclusiveMinimum": 0}, "1e-320", True),
        ({"exclusiveMinimum": 0}, "1e-324", False),
        ({"exclusiveMinimum": 0, "maximum": 9}, "4e-08201", False),
        ({"exclusiveMaximum": 0}, "-1e-323", True),
        ({"exclusiveMaximum": 0}, "-4E-8201", False),
        ({"minimum": 0}, "1e-8201", True),
    ],
)
def test_a_number_that_a_float_takes_for_zero_is_not_written_where_zero_is_excluded(
    bounds: dict[str, int], text: str, is_taken: bool
) -> None:
    assert takes(matcher_of({"type": "number", **bounds}), text) == is_taken
    assert is_read(resolve_schema({"type": "number", **bounds}), text) == is_taken
