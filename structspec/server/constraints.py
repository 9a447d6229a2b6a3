"""What an answer must be, from whatever field says so: all of them are enforced or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from structspec.constraint import Grammar, JsonSchema, StructuralTag
from structspec.server.bodies import ConstraintFields
from structspec.server.errors import refuse

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


def read_constraint(body: ConstraintFields) -> Wanted | None:
    """The one constraint of a request; None for free text.

    Raises ApiError for two of them, and for what cannot be enforced.
    """
    if body.guided_whitespace_pattern is not None:
        raise refuse(
            "whitespace patterns are not supported: JSON is written with one space",
            "guided_whitespace_pattern",
            "unsupported_parameter",
        )
    found = list(_found(body))
    if len(found) > 1:
        raise refuse(
            f"{found[0].param} and {found[1].param} contradict each other: send one of them",
            found[1].param,
        )
    return found[0] if found else None


def _found(body: ConstraintFields) -> Iterator[Wanted]:
    if body.response_format is not None:
        wanted = read_format(body.response_format, "response_format")
        if wanted is not None:
            yield wanted
    if body.structured_outputs is not None:
        yield _structured_outputs(body.structured_outputs)
    for name, read in _ALIASES.items():
        value = getattr(body, name)
        if value is not None and value is not False:
            yield Wanted(read(value), name)


def read_format(given: Mapping[str, Any], param: str) -> Wanted | None:
    """Of a `response_format`, or of the `text.format` of a response; None for text."""
    kind = given.get("type")
    match kind:
        case "text":
            return None
        case "json_object":
            schema = given.get("schema")  # llama.cpp's way to say which
            place = param if schema is None else f"{param}.schema"
            options = _schema(schema, f"{param}.schema") if schema is not None else _any_object()
            return Wanted(options, place)
        case "json_schema":
            return _json_schema(given, param)
        case "structural_tag":
            return Wanted({"grammar": StructuralTag(_tag_of(given))}, param)
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
    options = _any_object() if schema is None else _schema(schema, f"{place}.schema")
    return Wanted(options, f"{place}.schema", str(inner.get("name") or ""))


def _tag_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The tag without what clients send beside it."""
    known = ("type", "format", "structures", "triggers")
    return {key: value for key, value in given.items() if key in known and value is not None}


def _any_object() -> dict[str, Any]:
    return {"schema": JsonSchema(_ANY_OBJECT, closed=False)}


def _schema(schema: Any, param: str) -> dict[str, Any]:
    if not isinstance(schema, Mapping | bool | str):
        raise refuse(f"{param} must be a JSON schema, not {schema!r}", param)
    return {"schema": JsonSchema(schema)}


def _structured_outputs(given: Mapping[str, Any]) -> Wanted:
    place = "structured_outputs"
    chosen = [name for name in _STRUCTURED if given.get(name) not in (None, False)]
    if len(chosen) != 1:
        raise refuse(
            f"{place} must hold exactly one of {', '.join(_STRUCTURED)},"
            f" not {', '.join(chosen) or 'none of them'}",
            place,
        )
    if given.get("whitespace_pattern") is not None:
        raise refuse(
            "whitespace patterns are not supported: JSON is written with one space, or with"
            " disable_any_whitespace without any",
            f"{place}.whitespace_pattern",
            "unsupported_parameter",
        )
    (name,) = chosen
    options = _STRUCTURED[name](given[name])
    schema = options.get("schema")
    if given.get("disable_any_whitespace") and isinstance(schema, JsonSchema):
        options["schema"] = JsonSchema(schema.schema, style="compact", closed=schema.closed)
    return Wanted(options, f"{place}.{name}")


def _choices(given: Any) -> dict[str, Any]:
    return {"choices": given}


def _regex(given: Any) -> dict[str, Any]:
    return {"regex": given}


def _grammar(given: Any) -> dict[str, Any]:
    return {"grammar": Grammar(given) if isinstance(given, str) else given}


def _ebnf(given: Any) -> dict[str, Any]:
    return {"grammar": Grammar(given, dialect="ebnf")}


def _json(given: Any) -> dict[str, Any]:
    return _schema(given, "schema")


def _tag(given: Any) -> dict[str, Any]:
    return {"grammar": StructuralTag(given if isinstance(given, str) else _tag_of(given))}


_STRUCTURED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choices,
    "grammar": _grammar,
    "json_object": lambda _: _any_object(),
    "structural_tag": _tag,
}
_ALIASES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "guided_json": _json,
    "guided_regex": _regex,
    "guided_choice": _choices,
    "guided_grammar": _grammar,
    "guided_json_object": lambda _: _any_object(),
    "regex": _regex,
    "ebnf": _ebnf,
    "json_schema": _json,
    "grammar": _grammar,
}
