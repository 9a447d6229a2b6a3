"""Strict JSON: parse text without silent repairs, and say readably where it breaks a schema."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing.exceptions import Unresolvable

from structspec.constraint import escape
from structspec.errors import GrammarError, OutputInvalid
from structspec.grammars.formats import FORMATS, is_format
from structspec.grammars.schema_reading import draft_of_text, read_draft
from structspec.json_patterns import compile_pattern, with_ecma_patterns
from structspec.json_references import is_stack_end

Path = tuple[Any, ...]  # keys and indexes from the root

MAX_ERRORS = 10  # a broken list of 500 records is understood from its first ten
MAX_MESSAGE = 300
_MAX_NESTED = 200  # objects and lists: of fewer even Python's stack holds each inside another
_TOO_DEEP = "the schema is nested too deeply to be checked"
_DATA_KEYWORDS = {"const", "enum", "default", "examples", "example"}  # hold values, not schemas
_NAMED = (("properties",), ("$defs",), ("definitions",), ("dependentSchemas",))


def json_pointer(path: Iterable[Any]) -> str:
    """The path as a JSON pointer in a URI fragment: `#/people/0/name`; `#` is the whole text."""
    return "/".join(("#", *(escape(str(part)) for part in path)))


def parse_json(text: str, *, allow_duplicates: bool = False) -> Any:
    """The value of a JSON text; OutputInvalid for what `json.loads` would quietly accept.

    That is duplicate keys unless allowed (the last one counts), NaN and Infinity, numbers too
    large for a float, and lone surrogates.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=None if allow_duplicates else _object_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
        if "\\u" in text:  # only an escape can smuggle half a surrogate pair in
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        problem = "a string holds half of a surrogate pair"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    else:
        return value
    raise OutputInvalid(
        f"the output is not acceptable JSON: {problem}", text=text, errors=(f"#: {problem}",)
    )


def make_validator(schema: dict[str, Any]) -> Any:
    """jsonschema's validator of a schema, as finished text is held to it; thread-safe.

    The schema is read in the draft that its grammar is written from. Raises GrammarError with a
    JSON pointer where it is no schema. Formats are checked, patterns are ECMA-262's, and no `$ref`
    is ever fetched from the network.
    """
    draft = read_draft(schema).validator
    try:
        _check_all_patterns(schema)
        return _validator(schema, draft)
    except RecursionError:
        raise GrammarError(_TOO_DEEP, pointer="#") from None


def compile_validator(
    schema: dict[str, Any], text: str | None = None
) -> Callable[[Any], tuple[str, ...]]:
    """A thread-safe function from a parsed value to its violations, as `#/age: message`.

    Raises what `make_validator` does, and at once; the validator itself is made when the first
    value comes, which is when a model has written one. `text` is the schema's canonical JSON,
    where there is one.
    """
    if text is None or sum(map(text.count, "{[")) > _MAX_NESTED:
        validator = make_validator(schema)
        return partial(_violations, lambda: validator)
    draft = draft_of_text(text).validator
    if '"pattern' in text:
        _check_all_patterns(schema)
    return partial(_violations, cache(lambda: _validator(schema, draft)))


def _violations(validator: Callable[[], Any], value: Any) -> tuple[str, ...]:
    try:
        found = validator().iter_errors(value)
        errors = sorted(found, key=lambda error: str(error.json_path))
    except Unresolvable as error:
        raise GrammarError(f"$ref {error.ref!r} leads nowhere in this schema") from None
    except BaseException as error:
        if not is_stack_end(error):
            raise
        return ("#: the value is nested too deeply to be checked",)
    return tuple(_describe(error) for error in errors[:MAX_ERRORS])


def _validator(schema: dict[str, Any], draft: Any) -> Any:
    return with_ecma_patterns(draft)(
        _without_draft(schema, draft), format_checker=_FORMATS, registry=SPECIFICATIONS
    )


def _without_draft(schema: dict[str, Any], draft: Any) -> dict[str, Any]:
    """A copy that names its draft nowhere: jsonschema would go back to its own class there."""
    copied = copy.deepcopy(schema)
    for _, part in _subschemas(copied, ()):
        if jsonschema.validators.validator_for(part, default=None) is draft:
            del part["$schema"]
    return copied


def _subschemas(schema: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object in a schema that is no value, with its place; maps of names among them."""
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from _subschemas(item, (*path, index))
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword, value in schema.items():
        # below `properties` and the like the keys are names, whatever they spell
        is_data = keyword in _DATA_KEYWORDS and path[-1:] not in _NAMED
        if not is_data:
            yield from _subschemas(value, (*path, keyword))


def _check_all_patterns(schema: dict[str, Any]) -> None:
    """Refuse a pattern that finished output could not be checked against, before there is any."""
    for path, part in _subschemas(schema, ()):
        _check_patterns(part, path)


def _check_patterns(schema: dict[str, Any], path: Path) -> None:
    if isinstance(schema.get("pattern"), str):
        _check_pattern(schema["pattern"], (*path, "pattern"))
    if isinstance(schema.get("patternProperties"), dict):
        for pattern in schema["patternProperties"]:
            _check_pattern(pattern, (*path, "patternProperties", pattern))


def _check_pattern(pattern: str, path: Path) -> None:
    try:
        compile_pattern(pattern)
    except GrammarError as error:
        raise type(error)(
            f"the pattern {_shorten(pattern)!r} cannot be checked: {error}",
            pointer=json_pointer(path),
        ) from None


def _describe(error: Any) -> str:
    deepest = best_match([error])  # inside anyOf the branch that came closest says most
    return f"{json_pointer(deepest.absolute_path)}: {_shorten(deepest.message)}"


def _shorten(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {duplicate!r} appears twice in one object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {_shorten(digits)} is out of range")
    return value


def _format_checker() -> jsonschema.FormatChecker:
    """The formats that the grammar layer knows; others are annotations."""
    checker = jsonschema.FormatChecker(formats=())
    for name in FORMATS:
        checker.checks(name)(partial(_is_format, name))
    return checker


def _is_format(name: str, value: object) -> bool:
    return not isinstance(value, str) or is_format(name, value)


_FORMATS = _format_checker()
