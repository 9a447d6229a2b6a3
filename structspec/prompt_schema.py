"""A JSON schema as a prompt shows it: what a model needs to know, in as few tokens as that takes.

Small models copy what they see: of a schema with `$ref`, they write `#/$defs/Person` into fields.
So references are put in place where that ends and does not make the text much longer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from structspec.json_annotations import without_annotations

_NOISE = {"title": str, "$schema": str, "$comment": str, "discriminator": dict}
_STANDARD_FORMATS = {  # of what structspec's own say more exactly
    "python-datetime": "date-time",
    "python-datetime-aware": "date-time",
    "python-datetime-naive": "date-time",
    "python-multi-host-url": "uri",
    "python-time": "time",
    "python-timedelta": "duration",
    "python-url": "uri",
}
_MAX_LENGTH, _MAX_GROWTH = 2000, 2  # longer text than this must not become twice as long


class _Endless(Exception):
    """A reference that leads back to itself, or nowhere."""


def schema_text(json_schema: Mapping[str, Any]) -> str:
    """The schema as compact JSON without titles, references and names that only we know."""
    schema = with_standard_formats(without_annotations(json_schema, _NOISE))
    text = compact(schema)
    try:
        inlined = compact(_inlined(schema, schema, frozenset()))
    except (_Endless, RecursionError):
        return text
    return inlined if len(inlined) <= max(_MAX_LENGTH, _MAX_GROWTH * len(text)) else text


def compact(value: Any) -> str:
    """JSON without blanks, other scripts as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _inlined(schema: Any, root: Any, followed: frozenset[str]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, root, followed) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    beside = {
        key: _inlined(value, root, followed)
        for key, value in schema.items()
        if key not in ("$ref", "$defs", "definitions")
    }
    reference = schema.get("$ref")
    if not isinstance(reference, str):  # a property may be called so
        kept = {key: schema[key] for key in ("$ref",) if key in schema}
        return beside | {key: _inlined(value, root, followed) for key, value in kept.items()}
    if reference in followed:
        raise _Endless
    return _inlined(_find(reference, root), root, followed | {reference}) | beside


def _find(reference: str, root: Any) -> Any:
    path = reference.split("/")
    if path[0] != "#" or len(path) != 3 or path[1] not in ("$defs", "definitions"):
        raise _Endless
    target = root.get(path[1], {}).get(path[2].replace("~1", "/").replace("~0", "~"))
    if not isinstance(target, Mapping):
        raise _Endless
    return target


def with_standard_formats(schema: Any) -> Any:
    """A copy whose formats others know too, where structspec has finer ones of its own."""
    if isinstance(schema, list):
        return [with_standard_formats(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    format_name = schema.get("format")
    replaced = {key: with_standard_formats(value) for key, value in schema.items()}
    if isinstance(format_name, str):
        replaced["format"] = _STANDARD_FORMATS.get(format_name, format_name)
    return replaced
