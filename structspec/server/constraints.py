"""What an answer must be, from whatever field says so: all of them are enforced or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from structspec.chat.fields import refuse
from structspec.chat.formats import Wanted, any_object, read_format, schema_options, tag_of
from structspec.constraint import Grammar, JsonSchema, JsonStyle, StructuralTag
from structspec.server.bodies import ConstraintFields


def read_constraint(body: ConstraintFields) -> Wanted | None:
    """The one constraint of a request; None for free text.

    Raises InvalidField for two of them, and for what cannot be enforced.
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
            yield Wanted(read(value, name), name)


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
    for name in given:
        if name not in _STRUCTURED and name not in _BESIDE and given[name] not in (None, False):
            raise refuse(f"{place} has no {name}", f"{place}.{name}", "unsupported_parameter")
    (name,) = chosen
    options = _STRUCTURED[name](given[name], f"{place}.{name}")
    schema = options.get("schema")
    if isinstance(schema, JsonSchema):
        style: JsonStyle = "compact" if given.get("disable_any_whitespace") else schema.style
        is_closed = schema.closed and given.get("disable_additional_properties") is not False
        options["schema"] = JsonSchema(schema.schema, style=style, closed=is_closed)
    return Wanted(options, f"{place}.{name}")


def _choices(given: Any, place: str) -> dict[str, Any]:
    return {"choices": given}


def _regex(given: Any, place: str) -> dict[str, Any]:
    return {"regex": given}


def _grammar(given: Any, place: str) -> dict[str, Any]:
    return {"grammar": Grammar(given) if isinstance(given, str) else given}


def _ebnf(given: Any, place: str) -> dict[str, Any]:
    return {"grammar": Grammar(given, dialect="ebnf")}


def _json(given: Any, place: str) -> dict[str, Any]:
    return schema_options(given, place)


def _tag(given: Any, place: str) -> dict[str, Any]:
    return {"grammar": StructuralTag(given if isinstance(given, str) else tag_of(given))}


_BESIDE = ("disable_any_whitespace", "disable_additional_properties", "disable_fallback")
_STRUCTURED: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choices,
    "grammar": _grammar,
    "json_object": lambda *_: any_object(),
    "structural_tag": _tag,
}
_ALIASES: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "guided_json": _json,
    "guided_regex": _regex,
    "guided_choice": _choices,
    "guided_grammar": _grammar,
    "guided_json_object": lambda *_: any_object(),
    "regex": _regex,
    "ebnf": _ebnf,
    "json_schema": _json,
    "grammar": _grammar,
}
