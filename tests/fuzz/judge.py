"""What the laws of the fuzzer are made of: both verdicts on one value, and its spellings."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations, product
from math import factorial, prod
from types import FrameType
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema_specifications import REGISTRY as SPECIFICATIONS

from structspec.grammars.base import CompiledGrammar, Report
from structspec.json_references import CIRCLE, is_stack_end, reference
from structspec.json_value import make_validator
from tests.fuzz.schemas import Schema

STOP = 256
MAX_SECONDS = 5.0  # of processor time for one compile: thousands of times what is usual
MAX_ORDERS = 120


class TookTooLong(BaseException):
    """No error of the product, so nothing there catches it."""


@contextmanager
def limited(seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Raise TookTooLong after so much processor time."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    """Whether a text can be written to its end, byte by byte."""
    matcher = grammar.matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(STOP)


def spelled(value: Any) -> str:
    """The text that `json.dumps` writes."""
    return json.dumps(value, ensure_ascii=False)


def num_orders(value: Any) -> int:
    """In how many orders the keys of a value can be written."""
    if isinstance(value, list):
        return prod(map(num_orders, value))
    if isinstance(value, dict):
        return factorial(len(value)) * prod(map(num_orders, value.values()))
    return 1


def orders(value: Any) -> Iterator[Any]:
    """The value with its keys in every order, the given one first."""
    if isinstance(value, list):
        for items in product(*(list(orders(item)) for item in value)):
            yield list(items)
    elif isinstance(value, dict):
        for names in permutations(value):
            for items in product(*(list(orders(value[name])) for name in names)):
                yield dict(zip(names, items, strict=True))
    else:
        yield value


def broken_keywords(schema: Schema) -> Callable[[Any], set[str] | None]:
    """A function that tells which keywords a value breaks, with those beside, above and below.

    None for a value whose check goes round in circles, where nobody knows.
    """
    known = make_validator({"allOf": [schema]} if isinstance(schema, bool) else schema)
    checked = jsonschema.validators.extend(type(known), {"$ref": _reference})
    validator = checked(known.schema, registry=SPECIFICATIONS, format_checker=known.format_checker)

    def broken(value: Any) -> set[str] | None:
        found: set[str] = set()
        try:
            waiting = list(validator.iter_errors(value))
        except BaseException as error:
            if not is_stack_end(error):
                raise
            return None
        while waiting:
            error = waiting.pop()
            path = {"", *map(str, error.absolute_schema_path)}  # "": of `false`, which has none
            is_vague = error.validator is None or "$ref" in _words(error.schema)
            is_vague = is_vague or not path.isdisjoint(("then", "else"))  # of what `if` says
            found |= path.union(_words(schema if is_vague else error.schema))
            waiting += error.context
        return found

    return broken


def _reference(validator: Any, target: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    """As `reference`, but RecursionError where it goes in a circle: not to be told from within."""
    for error in reference(validator, target, value, schema):
        if error.message == CIRCLE:
            raise RecursionError
        yield error


def _words(schema: Any) -> Iterator[str]:
    """Every keyword and name in a schema."""
    if isinstance(schema, dict):
        yield from schema
    if isinstance(schema, (dict, list)):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from _words(part)


def names_one_of(report: Report, keywords: set[str]) -> bool:
    """Whether the report approximates one of the keywords, or gave up on all of a subschema."""
    approximated = {finding.keyword for finding in report.approximated}
    return bool(approximated & (keywords | {"schema"}))
