"""`schema=`: from what a user may pass there to a JSON schema and back to a validated value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NewType

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError, InvalidRequest, OutputInvalid
from structspec.grammars.base import Finding
from structspec.json_value import MAX_ERRORS, compile_validator, json_pointer, parse_json
from structspec.pydantic_checks import OPEN_NOTES, take_notes
from structspec.pydantic_schema import TightJsonSchema
from structspec.pydantic_v1 import is_v1_model, schema_of, unheld_of, violations_of

ACCEPTED = (
    "a pydantic model, dataclass, TypedDict, NamedTuple, Enum, Literal, Union, list[...], dict[...]"
    " or any other type that pydantic.TypeAdapter takes, a model of pydantic.v1, or a JSON schema"
    " as a dict, a bool, JSON text or the pathlib.Path of a file"
)

_BAD_TYPE = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, ImportError, TypeError)


@dataclass(frozen=True, slots=True)
class SchemaTarget:
    """What output is generated for, and how its text becomes the caller's value.

    `validate` is thread-safe; it returns the value or raises OutputInvalid, whose `errors` read
    `#/age: message`. Exceptions other than ValueError and AssertionError that a model's own
    validators raise pass through. `read` is the same without checking the JSON schema: the JSON as
    it was parsed (of duplicate keys the last), or the Python type, which checks itself.
    `json_schema` may be shared: read it, never change it. `unheld` is what the type asks beyond it,
    such as validators in Python: whatever conforms to the schema may still break that.
    `unheld_open` is more of it, which a closed mask holds.
    `reads_markers`: special tokens are part of the text, spelled by name.
    """

    json_schema: dict[str, Any]
    validate: Callable[[str], Any]
    read: Callable[[str], Any]
    name: str
    unheld: tuple[Finding, ...] = ()
    reads_markers: bool = False
    unheld_open: tuple[Finding, ...] = ()
    schema_text: str | None = None  # its canonical JSON, where that was written already


def resolve_schema(schema: Any) -> SchemaTarget:
    """The target that `schema` stands for.

    A mapping, a bool, a str or a Path is a JSON schema (a str is its JSON text, a Path the file it
    is in) and gives parsed JSON; everything else is a Python type and gives that type. Raises
    InvalidRequest for neither, and GrammarError, with a JSON pointer, for a JSON schema that is not
    one.
    """
    if isinstance(schema, Mapping | bool | str):
        return _from_text(JsonSchema(schema).text)
    if isinstance(schema, Path):
        return _from_text(JsonSchema(_text_of(schema)).text)
    if isinstance(schema, type):
        return _from_class(schema)
    return _from_type(schema)


@lru_cache(maxsize=256)  # reading a schema takes a millisecond, and requests come with the same
def _from_text(schema_text: str) -> SchemaTarget:
    loaded = _load_schema(schema_text)
    known = schema_text if schema_text.startswith("{") else None  # a bool becomes an object
    violations = compile_validator(loaded, known)
    name = str(loaded.get("title", "JSON"))

    def validate(text: str) -> Any:
        value = parse_json(text)
        _raise_for(violations(value), text, name)
        return value

    def read(text: str) -> Any:
        return parse_json(text, allow_duplicates=True)

    return SchemaTarget(loaded, validate, read, name, schema_text=known)


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the schema cannot be read from {path}: {error}") from None


def _load_schema(schema_text: str) -> dict[str, Any]:
    """The schema as an object."""
    loaded = json.loads(schema_text)
    if isinstance(loaded, bool):
        return {} if loaded else {"not": {}}
    if not isinstance(loaded, dict):
        raise GrammarError(f"a JSON schema is an object or a bool, not {loaded!r}")
    return loaded


def _from_type(schema: Any) -> SchemaTarget:
    if is_v1_model(schema):
        return _from_v1(schema)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        json_schema = adapter.json_schema(mode="validation", schema_generator=TightJsonSchema)
        unheld, unheld_open = take_notes(json_schema), take_notes(json_schema, OPEN_NOTES)
    except _BAD_TYPE as error:
        lines = str(error).splitlines()
        reason = lines[0].split(" Set `arbitrary_types_allowed", 1)[0]
        if isinstance(error, SchemaError):  # the last line says what is wrong
            reason = f"{reason} {lines[-1].strip()}"
        raise InvalidRequest(
            f"schema={schema!r} cannot be used: {reason.rstrip('.')}. Pass {ACCEPTED}."
        ) from error
    violations = compile_validator(json_schema)
    is_named = isinstance(schema, type | NewType)
    name = str(schema.__name__ if is_named else json_schema.get("title", "JSON"))

    def validate(text: str) -> Any:
        _raise_for(violations(parse_json(text)), text, name)
        return read(text)

    def read(text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            _raise_for(_pydantic_violations(error), text, name)
            raise
        except TypeError as error:  # pydantic's own, where a bound meets a type it is not for
            if not str(error).startswith("Unable to apply constraint"):
                raise
            _raise_for((f"#: {error}",), text, name)
            raise

    return SchemaTarget(json_schema, validate, read, name, unheld, unheld_open=unheld_open)


def _from_v1(model: Any) -> SchemaTarget:
    json_schema, name = schema_of(model), str(model.__name__)
    violations = compile_validator(json_schema)

    def validate(text: str) -> Any:
        _raise_for(violations(parse_json(text)), text, name)
        return read(text)

    def read(text: str) -> Any:
        try:
            return model.parse_raw(text)
        except ValueError as error:
            _raise_for(violations_of(error), text, name)
            raise

    return SchemaTarget(json_schema, validate, read, name, unheld_of(model))


# Building an adapter takes milliseconds. Only classes are remembered: `int | str == str | int`.
_from_class = lru_cache(maxsize=256)(_from_type)


def _pydantic_violations(error: ValidationError) -> tuple[str, ...]:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return tuple(f"{json_pointer(d['loc'])}: {d['msg']}" for d in details[:MAX_ERRORS])


def _raise_for(violations: tuple[str, ...], text: str, name: str) -> None:
    if violations:
        raise OutputInvalid(
            f"the output is not a valid {name}: {'; '.join(violations)}",
            text=text,
            errors=violations,
        )
