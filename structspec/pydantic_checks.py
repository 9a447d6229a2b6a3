"""What pydantic checks of a type in Python, where no mask can: found, and told with its place.

While a schema is made, parts carry notes under a key of their own; `take_notes` lifts them out of
the finished schema and says where each stood.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from structspec.grammars.base import Finding
from structspec.json_value import json_pointer

NOTES = "x-checked-in-python"
OPEN_NOTES = "x-checked-in-python-unless-closed"  # what a closed mask holds
AFTERWARDS = "pydantic validates it afterwards"
_DATA = ("const", "enum", "default", "examples")
_NAMED = ("properties", "patternProperties", "$defs")

# Functions of pydantic that refuse no text which the schema of their type admits.
_HELD = (
    "_BaseUrl.",
    "_BaseMultiHostUrl.",
    "EncodedBytes.decode",
    "GenerateSchema._path_schema.",
    "IPvAny",
    "ip_v4_",
    "ip_v6_",
    "Secret",
    "_SecretBase",
)
_NOT_HELD = ("EncodedBytes.decode_str",)


def with_note(
    json_schema: dict[str, Any], keyword: str, reason: str = "", *, notes: str = NOTES
) -> dict[str, Any]:
    """The schema with a note that `keyword` says more than it."""
    note = [keyword, f"{reason}; {AFTERWARDS}" if reason else AFTERWARDS]
    return {**json_schema, notes: [*json_schema.get(notes, ()), note]}


def is_held(function: Any) -> bool:
    """Whether a validating function takes every text of its type's schema."""
    module = getattr(function, "__module__", None) or ""
    name = name_of(function)
    if module == "ipaddress":
        return True
    return module.startswith("pydantic.") and name.startswith(_HELD) and name not in _NOT_HELD


def is_own_schema(function: Any) -> bool:
    """Whether a function that changes a JSON schema is the caller's rather than pydantic's."""
    module = getattr(function, "__module__", None) or ""
    return not module.startswith("pydantic.") or name_of(function).startswith("WithJsonSchema.")


def name_of(function: Any) -> str:
    """What a function is called, with all that it is defined in."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def short_name(function: Any) -> str:
    """What a function is called, with its class."""
    return name_of(function).rpartition("<locals>.")[2]


def take_notes(json_schema: dict[str, Any], notes: str = NOTES) -> tuple[Finding, ...]:
    """The findings that the parts' notes amount to; the notes are taken out of the schema."""
    found = [
        Finding(json_pointer(path), keyword, reason)
        for path, found_here in _notes(json_schema, (), notes)
        for keyword, reason in found_here
    ]
    return tuple(dict.fromkeys(found))


def _notes(
    part: Any, path: tuple[Any, ...], notes: str
) -> Iterator[tuple[tuple[Any, ...], list[list[str]]]]:
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from _notes(item, (*path, index), notes)
    if not isinstance(part, dict):
        return
    if path[-1:] not in [(name,) for name in _NAMED] and notes in part:
        yield path, part.pop(notes)
    for key, value in part.items():
        if key not in _DATA or path[-1:] == ("properties",):
            yield from _notes(value, (*path, key), notes)
