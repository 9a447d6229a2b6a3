"""Servers that behave as the real ones do: fields they know are held, others are ignored.

What a constraint allows is written by a random walk, and without one something else is; so a client
that calls a constraint held can be caught out. OpenAI's own API refuses what it does not know.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

from structspec.constraint import Choice, Constraint, Grammar, JsonSchema, Regex, StructuralTag
from tests.client.fakes import Fake, completion, events
from tests.grammars.cases import backends_of
from tests.walks import walk

FREE = "Well, that depends."
_OF_OPENAI = {
    *("model", "messages", "temperature", "top_p", "seed", "max_completion_tokens", "stop", "n"),
    *("logit_bias", "presence_penalty", "frequency_penalty", "response_format", "stream", "tools"),
    *("stream_options", "tool_choice", "parallel_tool_calls", "prediction"),
    *("logprobs", "top_logprobs"),
}
_STRICT = {
    *("type", "description", "enum", "const", "anyOf", "$ref", "$defs", "definitions", "pattern"),
    *("format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("items", "minItems", "maxItems", "properties", "required", "additionalProperties"),
}


class Behaving(Fake):
    """A server of a kind that looks at what it is asked for."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.says = [self._respond] * 99
        self._random = random.Random(kind)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return super().answer(request)
        body = json.loads(request.content)
        self.bodies.append(body)
        refused = [*_refused_by_openai(body)] if self.kind == "openai" else []
        if refused:
            error = {"message": refused[0], "type": "invalid_request_error", "param": None}
            return httpx2.Response(400, json={"error": error})
        said = self._respond(body)
        if body.get("stream"):
            return httpx2.Response(200, content="".join(events(said)))
        return httpx2.Response(200, json=completion(said))

    def _respond(self, body: Mapping[str, Any]) -> str:
        constraint = _KNOWN[self.kind](body)
        if constraint is None:
            return FREE
        grammar = backends_of("bytes").compile("auto", constraint)
        texts = (walk(grammar.matcher(), self._random) for _ in range(99))
        return next(text for text in texts if text is not None)


def _format(body: Mapping[str, Any]) -> Constraint | None:
    format = body.get("response_format") or {}
    match format.get("type"):
        case "json_schema":
            return JsonSchema(format["json_schema"]["schema"])
        case "json_object":
            return JsonSchema(format.get("schema", {"type": "object"}), closed=False)
        case "structural_tag":
            return StructuralTag(format)
    return None


def _vllm(body: Mapping[str, Any]) -> Constraint | None:
    match body.get("structured_outputs"):
        case {"json": schema, **more}:
            is_compact = more.get("disable_any_whitespace", False)
            return JsonSchema(schema, style="compact" if is_compact else "spaced")
        case {"regex": pattern}:
            return Regex(pattern)
        case {"choice": choices}:
            return Choice(tuple(choices))
        case {"grammar": text}:
            return Grammar(text)
    return _format(body)


def _old_vllm(body: Mapping[str, Any]) -> Constraint | None:
    if "guided_regex" in body:
        return Regex(body["guided_regex"])
    if "guided_choice" in body:
        return Choice(tuple(body["guided_choice"]))
    if "guided_grammar" in body:
        return Grammar(body["guided_grammar"])
    format = _format(body)
    return None if isinstance(format, StructuralTag) else format


def _sglang(body: Mapping[str, Any]) -> Constraint | None:
    if "regex" in body:
        return Regex(body["regex"])
    return Grammar(body["ebnf"], dialect="ebnf") if "ebnf" in body else _format(body)


def _llama_cpp(body: Mapping[str, Any]) -> Constraint | None:
    if "grammar" in body:
        return Grammar(body["grammar"], dialect="ebnf")
    format = _format(body)
    return None if isinstance(format, StructuralTag) else format


def _structspec(body: Mapping[str, Any]) -> Constraint | None:
    if "ebnf" in body:
        return Grammar(body["ebnf"], dialect="ebnf")
    return _vllm(body)


_KNOWN = {
    "structspec": _structspec,
    "vllm": _vllm,
    "old vllm": _old_vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
    "openai": _format,
    "other": lambda body: None,
}


def _refused_by_openai(body: Mapping[str, Any]) -> Iterator[str]:
    for name in body.keys() - _OF_OPENAI:
        yield f"Unrecognized request argument supplied: {name}"
    format = body.get("response_format") or {}
    if format.get("type") == "json_object":
        if "json" not in json.dumps(body["messages"]).lower():
            yield "'messages' must contain the word 'json' in some form"
    elif format.get("type") == "json_schema":
        schema = format["json_schema"]["schema"]
        for reason in (*_not_a_root(schema), *_not_strict(schema)):
            yield f"Invalid schema for response_format 'X': In context=(), {reason}"


def _not_a_root(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "schema must be a JSON Schema of 'type: \"object\"'"


def _not_strict(schema: Any) -> Iterator[str]:
    for keyword in schema.keys() - _STRICT:
        yield f"'{keyword}' is not permitted."
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be supplied and to be false."
        if {*schema.get("required", ())} != {*schema.get("properties", {})}:
            yield "'required' is required to be supplied and to hold every key in properties."
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for keyword in ("$defs", "definitions"):
        parts += schema.get(keyword, {}).values()
    for part in [*parts, *([schema["items"]] if "items" in schema else [])]:
        yield from _not_strict(part)
