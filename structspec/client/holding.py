"""How each kind of server is told what its output must be: fields of a chat request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from structspec.client.servers import ServerKind
from structspec.client.strict import NotStrict, to_strict
from structspec.client.wrapped_text import JsonUnwrapping, StringUnwrapping, Unwrapping
from structspec.constraint import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    StructuralTag,
    Tools,
)
from structspec.prompt_schema import with_standard_formats

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """The fields that say it, and the one of them that errors of the server are about.

    `unwrapping` gets the text out of the object that it had to be put into. `gaps` are what the
    server does not promise of the constraint, in words.
    """

    fields: Mapping[str, Any]
    place: str
    unwrapping: Callable[[], Unwrapping] | None = None
    gaps: tuple[str, ...] = ()


def unwrapped(held: Held | None, text: str) -> str:
    """A whole text out of its object, if it is in one."""
    if held is None or held.unwrapping is None:
        return text
    unwrapping = held.unwrapping()
    return unwrapping.feed(text) + unwrapping.finish()


def hold(kind: ServerKind, constraint: Constraint, name: str = "output") -> Held | None:
    """The constraint in the words of a kind of server; None where it has none for it.

    `name` is what a schema is called.
    """
    if isinstance(constraint, Tools):
        return _tools(kind, constraint)
    if isinstance(constraint, JsonSchema):
        return _schema(kind, constraint, name)
    if kind == "openai":
        return _enum(constraint) if isinstance(constraint, Choice) else None
    fields = _WORDS[kind](constraint) if kind in _WORDS else None
    if fields is None:
        return None
    (place,) = fields
    inner = fields[place]
    deeper = f".{next(iter(inner))}" if place == "structured_outputs" else ""
    return Held(fields, f"{place}{deeper}")


def _schema(kind: ServerKind, constraint: JsonSchema, name: str) -> Held:
    schema = json.loads(constraint.text)
    if constraint.style == "compact" and kind in ("structspec", "vllm"):
        fields = {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}
        return Held(fields, "structured_outputs.json")
    if kind != "structspec":
        schema = with_standard_formats(schema)
    if kind == "openai":
        return _strict(schema, name)
    return Held(_response_format(schema, name), "response_format.json_schema.schema")


def _response_format(schema: Any, name: str, *, strict: bool = True) -> Fields:
    inner = {"name": _as_name(name), "schema": schema, "strict": strict}
    return {"response_format": {"type": "json_schema", "json_schema": inner}}


def _as_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name)[:64] or "output"


def _strict(schema: Any, name: str) -> Held:
    place = "response_format.json_schema.schema"
    try:
        strict = to_strict(schema)
    except NotStrict:
        gap = "strict mode has no form of this schema"
        kinds = schema.get("type", "object")
        is_object = "object" in ([kinds] if isinstance(kinds, str) else kinds)
        fields = {"response_format": {"type": "json_object"}} if is_object else {}
        return Held(fields, place, gaps=(gap,))
    gaps = tuple(f"{pointer} is not in strict mode" for pointer in strict.dropped)
    fields = _response_format(strict.schema, name)
    return Held(fields, place, JsonUnwrapping if strict.is_wrapped else None, gaps)


def _enum(constraint: Choice) -> Held:
    """One of several strings, as the only property of an object."""
    strict = to_strict({"type": "string", "enum": list(constraint.choices)})
    return Held(_response_format(strict.schema, "choice"), "response_format", StringUnwrapping)


def _tools(kind: ServerKind, constraint: Tools) -> Held:
    tools = [
        one if "function" in one else {"type": "function", "function": one}
        for one in json.loads(constraint.text)
    ]
    choice: Any = constraint.choice
    if choice not in ("auto", "required", "none"):
        choice = {"type": "function", "function": {"name": choice}}
    fields: Fields = {"tools": tools, "tool_choice": choice}
    if not constraint.parallel:
        fields["parallel_tool_calls"] = False
    if constraint.response is not None and (constraint.choice == "none" or kind in _UNITING):
        answer = _schema(kind, constraint.response, "answer")
        if answer.unwrapping is None:
            fields |= answer.fields
    gaps = () if kind == "structspec" else ("arguments need not conform to their schemas",)
    return Held(fields, "tools", gaps=gaps)


# who takes a schema beside tools for one of the two; others would have the model call nothing
_UNITING: tuple[ServerKind, ...] = ("structspec", "openai")


def _in_structured_outputs(constraint: Constraint) -> Fields | None:
    match constraint:
        case Regex():
            return {"structured_outputs": {"regex": constraint.pattern}}
        case Choice():
            return {"structured_outputs": {"choice": list(constraint.choices)}}
        case Grammar():
            return {"structured_outputs": {"grammar": constraint.text}}
    return _tag(constraint)


def _for_structspec(constraint: Constraint) -> Fields | None:
    if isinstance(constraint, Grammar) and constraint.dialect == "ebnf":
        return {"ebnf": constraint.text}
    return _in_structured_outputs(constraint)


def _guided(constraint: Constraint) -> Fields | None:
    match constraint:
        case Regex():
            return {"guided_regex": constraint.pattern}
        case Choice():
            return {"guided_choice": list(constraint.choices)}
        case Grammar():
            return {"guided_grammar": constraint.text}
    return None


def _for_sglang(constraint: Constraint) -> Fields | None:
    match constraint:
        case Regex():
            return {"regex": constraint.pattern}
        case Choice():
            return {"regex": f"({'|'.join(map(re.escape, constraint.choices))})"}
        case Grammar():
            return {"ebnf": constraint.text} if _is_ebnf(constraint) else None
    return _tag(constraint)


def _for_llama_cpp(constraint: Constraint) -> Fields | None:
    match constraint:
        case Choice():
            return {"grammar": f"root ::= {' | '.join(map(_literal, constraint.choices))}"}
        case Grammar():
            return {"grammar": constraint.text} if _is_ebnf(constraint) else None
    return None


def _tag(constraint: Constraint) -> Fields | None:
    if isinstance(constraint, StructuralTag):
        return {"response_format": json.loads(constraint.text)}
    return None


def _is_ebnf(grammar: Grammar) -> bool:
    return grammar.dialect == "ebnf" or (grammar.dialect == "auto" and "::=" in grammar.text)


def _literal(text: str) -> str:
    """A string of GBNF, which escapes as JSON does but for what is beyond ASCII."""
    return json.dumps(text, ensure_ascii=False)


_WORDS: dict[ServerKind, Callable[[Constraint], Fields | None]] = {
    "structspec": _for_structspec,
    "vllm": _in_structured_outputs,
    "old vllm": _guided,
    "sglang": _for_sglang,
    "llama.cpp": _for_llama_cpp,
}
