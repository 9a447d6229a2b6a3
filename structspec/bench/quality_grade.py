"""How much of an answer is right: read leniently, coerce to the field's type, compare exactly.

All outputs are read the same way, so that free text loses nothing to a strict parser.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from structspec.json_value import compile_validator

_DATE_FORMATS = ("%Y-%m-%d", "%d %B %Y", "%B %d, %Y")
_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_LITERALS = re.compile(r"\b(true|false|null)\b")
_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},]', re.DOTALL)  # brackets, commas, whole strings
_CLOSERS = {"{": "}", "[": "]"}
_IN_PYTHON = {"true": "True", "false": "False", "null": "None"}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Grade:
    """What one output is worth; `wrong` are the paths of fields that are not right."""

    num_fields: int
    wrong: tuple[str, ...]
    is_valid: bool  # what was read conforms to the schema as it is

    @property
    def accuracy(self) -> float:
        """The share of fields that are right."""
        return 1 - len(self.wrong) / self.num_fields


def grade(text: str, schema: Mapping[str, Any], answer: Mapping[str, Any]) -> Grade:
    """Compare an output with the answer, field by field; members of objects are fields too."""
    found = read_leniently(text)
    is_valid = not compile_validator(dict(schema))(found)
    fields = list(_fields(schema, answer, _unwrapped(found, schema), ""))
    wrong = tuple(path for path, is_right in fields if not is_right)
    return Grade(len(fields), wrong, is_valid)


def read_leniently(text: str) -> Any:
    """The first object in a text as JSON or, where it is none, as a Python literal; else None.

    So words and code fences around it, single quotes and trailing commas do no harm, and of an
    object that is cut off or breaks off in nonsense the members before that are read.
    """
    start = text.find("{")
    if start < 0:
        return None
    body = text[start:]
    try:
        return json.JSONDecoder(strict=False).raw_decode(body)[0]
    except json.JSONDecodeError:
        return _literal(body[: body.rfind("}") + 1]) or _literal(_closed(body))


def _literal(text: str) -> Any:
    """A dict literal, which may use single quotes and end in a comma; None where it is none."""
    try:
        return ast.literal_eval(_LITERALS.sub(lambda match: _IN_PYTHON[match[0]], text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _closed(text: str) -> str:
    """A broken object up to its last comma before it breaks, with what is open there closed."""
    open_brackets: list[str] = []
    closed = ""
    for match in _SIGNS.finditer(text):
        sign = match[0]
        if sign in _CLOSERS:
            open_brackets.append(_CLOSERS[sign])
        elif sign == ",":
            closed = text[: match.start()] + "".join(reversed(open_brackets))
        elif sign in "]}" and (not open_brackets or open_brackets.pop() != sign):
            break
    return closed


def _unwrapped(found: Any, schema: Mapping[str, Any]) -> Any:
    """What lies inside `{"person": {…}}` where that is not a property."""
    if isinstance(found, dict) and len(found) == 1:
        (key, value), names = *found.items(), schema["properties"]
        if isinstance(value, dict) and _plain_key(key) not in map(_plain_key, names):
            return value
    return found


def _fields(
    schema: Mapping[str, Any], answer: Mapping[str, Any], found: Any, path: str
) -> Iterator[tuple[str, bool]]:
    """Each field's path and whether it is right."""
    members = found if isinstance(found, dict) else {}
    by_key = {_plain_key(key): value for key, value in members.items()}
    for name, wanted in answer.items():
        value, part = by_key.get(_plain_key(name), _MISSING), schema["properties"][name]
        if isinstance(wanted, dict):
            yield from _fields(part, wanted, value, f"{path}{name}.")
        else:
            yield f"{path}{name}", _coerce(value, part) == wanted


def _plain_key(key: Any) -> str:
    return re.sub(r"[\s-]+", "_", str(key).strip()).lower()


def _coerce(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value as the type of its field; as it is where it cannot be."""
    match schema["type"]:
        case "integer" | "number":
            return _as_number(value)
        case "boolean":
            return _WORDS.get(value.strip().lower(), value) if isinstance(value, str) else value
        case "array":
            items = re.split(r",\s*|\s+and\s+", value) if isinstance(value, str) else value
            return [str(item).strip() for item in items] if isinstance(items, list) else items
    if schema.get("format") == "date":
        return _as_date(value)
    return value.strip() if isinstance(value, str) else str(value)


def _as_number(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return float(re.sub(r"[\s$€,]|dollars|kg", "", value))
        except ValueError:
            return value
    return None if isinstance(value, bool) else value  # in Python True == 1


def _as_date(value: Any) -> Any:
    for form in _DATE_FORMATS:
        try:
            return datetime.strptime(str(value).strip(), form).date().isoformat()
        except ValueError:
            continue
    return value
