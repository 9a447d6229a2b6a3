"""JSON texts: every way to spell a string, the white space of a style, schemas with a value."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

from structspec.constraint import JsonSchema
from structspec.grammars.base import Matcher
from tests.grammars.cases import backend

STOP = 256
SEPARATORS: dict[str, dict[str, Any]] = {
    "spaced": {},
    "compact": {"separators": (",", ":")},
    "pretty": {"indent": 2},
}
BLANKS = " \t\n\r"
NAMES = ("a", "b", "name", "", "é", "日本", "😀", 'q"u\\o', "sl/ash", "new\nline", "\x7f", "</s>")
_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")

Pair = tuple[Any, Any]  # a schema and a value that conforms to it


def matcher_of(schema: Any, **options: Any) -> Matcher:
    """At the start of the JSON text, byte by byte."""
    return backend("bytes", "llguidance").compile(JsonSchema(schema, **options)).matcher()


def takes(matcher: Matcher, text: str | bytes) -> bool:
    """Whether this text, and the end after it, may be written; the matcher is left as it was."""
    data = text.encode() if isinstance(text, str) else text
    num_taken = 0
    for token_id in (*data, STOP):
        if not matcher.accept(token_id):
            break
        num_taken += 1
    matcher.rollback(num_taken)
    return num_taken == len(data) + 1


def numbered(character: str) -> str:
    """A character as `\\uXXXX`, two of them beyond U+FFFF."""
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def spellings_of(character: str) -> list[str]:
    """Every way that JSON has to write this character in a string."""
    plain = [] if character < " " or character in '"\\' else [character]
    short = [f"\\{_SHORT[character]}"] if character in _SHORT else []
    lower = numbered(character)
    return [*plain, *short, *dict.fromkeys((lower, lower.upper().replace("\\U", "\\u")))]


def spelled(text: str) -> st.SearchStrategy[str]:
    """A string literal for this text in one of its spellings."""
    parts = st.tuples(*(st.sampled_from(spellings_of(character)) for character in text))
    return parts.map(lambda chosen: f'"{"".join(chosen)}"')


def written_in(style: str, value: Any, *, ensure_ascii: bool = False) -> str:
    """As `json.dumps` writes it."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **SEPARATORS[style])


def has_style(style: str, text: str) -> bool:
    """Whether the white space is that of a style, however strings and numbers are spelled."""
    strings = iter(range(len(text)))
    plain = _STRING.sub(lambda match: f'"{next(strings)}"', text)
    parts = re.split(r'("\d+")', plain)  # numbers stand between the strings
    parts[::2] = [_NUMBER.sub("0", part) for part in parts[::2]]
    plain = "".join(parts)
    if style != "flexible":
        return written_in(style, json.loads(plain)) == plain
    return re.search(r"^\s|\s$|\s{9}", plain) is None


@st.composite
def pairs(draw: st.DrawFn, depth: int = 2) -> Pair:
    """A schema, and a value with its keys in the order of the schema."""
    kinds = ["string", "number", "fixed", "free"]
    if depth:
        kinds += ["object", "object", "map", "array", "tuple"]
    kind = draw(st.sampled_from(kinds))
    if kind == "string":
        return draw(_strings())
    if kind == "number":
        value = draw(st.integers(-1000, 1000))
        return {"type": "integer", "minimum": value - draw(st.integers(0, 99))}, value
    if kind == "fixed":
        value = draw(st.sampled_from((None, True, "é", 'x"', "/", -7)))
        return {"enum": [value, "other", 0]}, value
    if kind == "free":
        return True, draw(st.sampled_from(([], {}, "s", [1, {"k": [None]}], {"é": {}})))
    if kind == "object":
        return draw(_objects(depth))
    inner, value = draw(pairs(depth - 1))
    if kind == "map":
        keys = draw(st.lists(st.text(max_size=3), max_size=3, unique=True))
        return {"type": "object", "additionalProperties": inner}, dict.fromkeys(keys, value)
    length = draw(st.integers(1, 3))
    if kind == "array":
        length = draw(st.integers(0, length))
        return {"type": "array", "items": inner, "minItems": length}, [value] * length
    return {"type": "array", "prefixItems": [inner] * length, "items": False}, [value] * length


@st.composite
def _strings(draw: st.DrawFn) -> Pair:
    value = draw(st.text(max_size=6))
    schema: dict[str, Any] = {"type": "string"}
    if draw(st.booleans()):
        schema["maxLength"] = len(value) + draw(st.integers(0, 2))
    if draw(st.booleans()):
        schema["minLength"] = max(0, len(value) - draw(st.integers(0, 2)))
    if draw(st.booleans()):
        schema["pattern"] = "^[^%]*$"
        value = value.replace("%", "_")
    return schema, value


@st.composite
def _objects(draw: st.DrawFn, depth: int) -> Pair:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    members = {name: draw(pairs(depth - 1)) for name in names}
    present = [name for name in names if draw(st.integers(0, 3))]
    schema = {
        "type": "object",
        "properties": {name: part for name, (part, _) in members.items()},
        "required": [name for name in present if draw(st.booleans())],
    }
    return schema, {name: members[name][1] for name in present}
