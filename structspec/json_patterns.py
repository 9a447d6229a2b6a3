r"""The keywords of JSON Schema that match property names or strings, on ECMA-262 patterns.

Python's `re` does not know `\p{L}` or `\cA`, takes `٣` for a `\d`, lets `$` match before a line
end, and may take for ever. So these keywords replace jsonschema's own.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from referencing.jsonschema import lookup_recursive_ref

from structspec import json_content
from structspec.errors import UnsupportedConstraint
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.parse import parse_search
from structspec.json_numbers import multiple_of
from structspec.json_references import reference

Errors = Iterator[ValidationError]
Search = Callable[[str], bool]


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Search:
    """Whether a pattern is found in a text; GrammarError for one that is malformed.

    Linear in the text but for patterns that no automaton holds (back references): those are
    Python's to search, and UnsupportedConstraint where Python cannot read them either.
    """
    try:
        regex = parse_search(pattern)
    except UnsupportedConstraint as error:
        return _python_search(pattern, error)
    return lambda text: matches(regex, text)


def _python_search(pattern: str, reason: UnsupportedConstraint) -> Search:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set": a matter of style
            compiled = re.compile(pattern, re.ASCII)
    except (re.error, RecursionError, OverflowError):
        raise reason from None
    return lambda text: compiled.search(text) is not None


def pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Errors:
    """`pattern`: is found in a string."""
    if isinstance(value, str) and not compile_pattern(pattern)(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def pattern_properties(validator: Any, rules: Any, value: Any, schema: Any) -> Errors:
    """`patternProperties`: every matching property conforms."""
    if not isinstance(value, dict):
        return
    for pattern, rule in rules.items():
        found = compile_pattern(pattern)
        for name in filter(found, value):
            yield from validator.descend(value[name], rule, path=name, schema_path=pattern)


def additional_properties(validator: Any, rule: Any, value: Any, schema: Any) -> Errors:
    """`additionalProperties`: every property that the schema does not name conforms."""
    if not isinstance(value, dict):
        return
    named = _named(value, schema)
    extras = [name for name in value if name not in named]
    if rule is False and extras:
        listed = f"{', '.join(map(repr, extras))} {'was' if len(extras) == 1 else 'were'}"
        yield ValidationError(f"Additional properties are not allowed ({listed} unexpected)")
    elif rule is not False:
        for name in extras:
            yield from validator.descend(value[name], rule, path=name)


def unevaluated_properties(validator: Any, rule: Any, value: Any, schema: Any) -> Errors:
    """`unevaluatedProperties`: every property that no part of the schema has looked at conforms."""
    if not isinstance(value, dict):
        return
    others = {name: part for name, part in schema.items() if name != "unevaluatedProperties"}
    evaluated = _evaluated(validator, value, others)
    extras = [name for name in value if name not in evaluated]
    if rule is False and extras:
        listed = f"{', '.join(map(repr, extras))} {'was' if len(extras) == 1 else 'were'}"
        yield ValidationError(f"Unevaluated properties are not allowed ({listed} unexpected)")
    elif rule is not False:
        for name in extras:
            yield from validator.descend(value[name], rule, path=name, schema_path=name)


def _named(value: Mapping[str, Any], schema: Mapping[str, Any]) -> set[str]:
    """The properties of a value that `properties` and `patternProperties` speak of."""
    named = set(value.keys() & schema.get("properties", {}).keys())
    for pattern in schema.get("patternProperties", {}):
        named.update(filter(compile_pattern(pattern), value))
    return named


def _evaluated(validator: Any, value: Mapping[str, Any], schema: Any) -> set[str]:
    """The properties of a value that a schema and all that applies in place have looked at."""
    if not isinstance(schema, dict):
        return set()
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(value)
    evaluated = _named(value, schema)
    for target in _targets(validator, schema):
        inner = validator.evolve(schema=target.contents, _resolver=target.resolver)
        evaluated |= _evaluated(inner, value, target.contents)
    for part in _parts_in_place(validator, value, schema):
        evaluated |= _evaluated(validator, value, part)
    return evaluated


def _targets(validator: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """What the schema's references lead to."""
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            yield validator._resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema:
        yield lookup_recursive_ref(validator._resolver)


def _parts_in_place(
    validator: Any, value: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[Any]:
    """The subschemas that the value itself conforms to."""

    def holds(part: Any) -> bool:
        return bool(validator.evolve(schema=part).is_valid(value))

    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from filter(holds, schema.get(keyword, ()))
    for name, part in schema.get("dependentSchemas", {}).items():
        if name in value:
            yield part
    if "if" in schema:
        is_met = holds(schema["if"])
        if is_met:
            yield schema["if"]
        yield schema.get("then" if is_met else "else", {})


KEYWORDS = {
    "$ref": reference,
    "multipleOf": multiple_of,
    "pattern": pattern,
    "patternProperties": pattern_properties,
    "additionalProperties": additional_properties,
    "unevaluatedProperties": unevaluated_properties,
}


# Gone from the drafts since 2019-09, but not from the schemas of people who name none; and what
# is not yet in the draft that people do name: a grammar keeps both.
_NEWEST, _SEVEN = jsonschema.Draft202012Validator.VALIDATORS, jsonschema.Draft7Validator.VALIDATORS
_FORMS = frozenset(("exclusiveMinimum", "exclusiveMaximum"))  # draft 4 has them in `minimum` ...
_OTHER_KEYWORDS = {
    **{name: check for name, check in _NEWEST.items() if name not in _FORMS},
    "dependencies": _SEVEN["dependencies"],
}
_SAME_ITEMS = jsonschema.Draft4Validator.VALIDATORS["items"]  # but for true and false


@lru_cache(maxsize=16)
def with_ecma_patterns(draft: Any) -> Any:
    """A validator class of jsonschema's, its patterns read as ECMA-262's, no keyword dropped that
    another draft knows.

    Up to draft 7 the content of strings is asserted too.
    """
    known = _OTHER_KEYWORDS | draft.VALIDATORS | KEYWORDS
    if known["items"] is _SAME_ITEMS:
        known["items"] = _SEVEN["items"]
    is_old = "/schema#" in draft.META_SCHEMA["$schema"]
    content = json_content.KEYWORDS if is_old else {}
    return jsonschema.validators.extend(draft, known | content)
