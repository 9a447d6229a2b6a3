"""`response_format`: what an answer must be, as options of `generate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structspec.chat.fields import refuse
from structspec.constraint import JsonSchema, StructuralTag

_ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A constraint as options of `generate`, and the field that asked for it."""

    options: Mapping[str, Any]
    param: str
    name: str = ""  # of a schema, where the client gave one

    @property
    def schema(self) -> JsonSchema | None:
        """The JSON schema, where it is one."""
        schema = self.options.get("schema")
        return schema if isinstance(schema, JsonSchema) else None


def read_format(given: Mapping[str, Any], param: str) -> Wanted | None:
    """Of a `response_format`, or of the `text.format` of a response; None for text."""
    kind = given.get("type")
    match kind:
        case "text":
            return None
        case "json_object":
            schema = given.get("schema")  # llama.cpp's way to say which
            place = param if schema is None else f"{param}.schema"
            options = (
                schema_options(schema, f"{param}.schema") if schema is not None else any_object()
            )
            return Wanted(options, place)
        case "json_schema":
            return _json_schema(given, param)
        case "structural_tag":
            return Wanted({"grammar": StructuralTag(tag_of(given))}, param)
    kinds = "text, json_object, json_schema or structural_tag"
    raise refuse(f"{param}.type must be {kinds}, not {kind!r}", f"{param}.type")


def _json_schema(given: Mapping[str, Any], param: str) -> Wanted:
    # OpenAI's chat API has it in an object of its own, its responses API and llama.cpp beside type
    inner, place = given.get("json_schema"), f"{param}.json_schema"
    if inner is None:
        inner, place = given, param
    if not isinstance(inner, Mapping):
        raise refuse(f"{place} must be an object, not {inner!r}", place)
    schema = inner.get("schema")
    options = any_object() if schema is None else schema_options(schema, f"{place}.schema")
    return Wanted(options, f"{place}.schema", str(inner.get("name") or ""))


def tag_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The tag without what clients send beside it."""
    known = ("type", "format", "structures", "triggers")
    return {key: value for key, value in given.items() if key in known and value is not None}


def any_object() -> dict[str, Any]:
    """What holds the text to JSON objects of any kind."""
    return {"schema": JsonSchema(_ANY_OBJECT, closed=False)}


def schema_options(schema: Any, param: str) -> dict[str, Any]:
    """What holds the text to a JSON schema; raises InvalidField for what cannot be one."""
    if not isinstance(schema, Mapping | bool | str):
        raise refuse(f"{param} must be a JSON schema, not {schema!r}", param)
    return {"schema": JsonSchema(schema)}
