"""How much a text that conforms to a constraint may still lack in its middle, in tokens.

own(node)     what the smallest value of a schema takes
open(node)    own(node), and the most that is open in one of its parts

Both are estimates: they say from where on an end is looked after, not what it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from structspec.constraint import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    StructuralTag,
    Tools,
)
from structspec.ending_hints import (
    MARKS_OF_FORMATS,
    MOST_MARKS,
    SHORT_TEXTS,
    Hints,
    literals_of,
    marks_of_tags,
    named,
)
from structspec.ending_widths import Width, shortest_match, shortest_tails, width_of_pattern
from structspec.json_references import local_target

_BYTES_PER_TOKEN = 3  # of keys and of text, at least
_OTHERS = 48  # tokens, of grammars
_FORMATS = {
    "uuid": 36,
    "ipv6": 39,
    "date-time": 32,
    "time": 20,
    "ipv4": 15,
}  # characters; others 16
_MOST_ROUNDS = 4
_AROUND = 32  # tokens around JSON in calls and tags
_MOST = 2048
_MOST_CHOICES = 16  # of a string, that are remembered: the shortest
_BRANCHES = ("anyOf", "oneOf")
_SINGLES = ("items", "additionalProperties", "contains", "additionalItems", "unevaluatedItems")
_MARGIN = 16
_AROUND_PART = 6  # a key, a comma, brackets
_LEAST_GROWTH = 8  # half an escape
_OPEN_GROWTH = 24  # tokens that open a dozen brackets


@dataclass(frozen=True, slots=True)
class Room:
    """So many tokens are lacking at most; where it `is_open` nesting may make it any number.

    One token adds `growth` to what is lacking, at most: it opens what is not required. The shortest
    text takes about `least`, 0 where nothing is known of that. `words` are keys that some object
    has to have, values of which there are few, and texts of patterns and formats; `marks` are what
    free text may end behind, `literals` the parts of what is not JSON.
    """

    num_tokens: int
    growth: int = _LEAST_GROWTH
    least: int = 0
    is_open: bool = False
    words: tuple[bytes, ...] = ()
    marks: tuple[bytes, ...] = ()
    literals: tuple[bytes, ...] = ()

    @property
    def hints(self) -> Hints:
        """What a search for an end tries first."""
        return Hints(self.words, self.marks[:MOST_MARKS], self.literals[:MOST_MARKS])

    def __or__(self, other: Room) -> Room:
        return Room(
            max(self.num_tokens, other.num_tokens),
            max(self.growth, other.growth),
            0,
            self.is_open or other.is_open,
            (*self.words, *other.words),
            (*self.marks, *other.marks),
        )


def room_of(constraint: Constraint) -> Room:
    """The room that texts of a constraint want; raises GrammarError where it is not JSON."""
    if isinstance(constraint, JsonSchema):
        return _room_of_schema(constraint.text)
    if isinstance(constraint, Tools):
        room = _room_of_calls(constraint.text)
        return (
            room
            if constraint.response is None
            else room | _room_of_schema(constraint.response.text)
        )
    if isinstance(constraint, StructuralTag):
        room = _room_of_texts(constraint.text, "json_schema", "schema")
        return replace(room, marks=(*marks_of_tags(constraint.text), *room.marks))
    if isinstance(constraint, Choice):
        lengths = [len(choice.encode()) for choice in constraint.choices]
        return Room(max(lengths), max(_LEAST_GROWTH, max(lengths) - min(lengths)))
    if isinstance(constraint, Regex):
        _, lacking, growth = width_of_pattern(constraint.pattern)
        tails = shortest_tails(constraint.pattern)
        literals = tuple(text.encode() for text in reversed(tails))  # all of a text first
        return Room(lacking + _MARGIN, max(_LEAST_GROWTH, growth), literals=literals)
    return _room_of_grammar(constraint)


def _room_of_grammar(grammar: Grammar) -> Room:
    """Of its longest literal; its rules may call themselves."""
    literals = literals_of(grammar.text)
    longest = min(max(map(len, literals), default=0), _MOST)
    return Room(_OTHERS + longest, _LEAST_GROWTH + longest, is_open=True, literals=literals)


@lru_cache(maxsize=256)
def _room_of_schema(text: str) -> Room:
    return _Estimate(json.loads(text)).room()


@lru_cache(maxsize=256)
def _room_of_texts(text: str, *names: str) -> Room:
    """Of the schemas under these names anywhere in a JSON text, and of what is around them."""
    room, num_tokens = Room(_OTHERS), min(_MOST, _length(text))
    for schema in named(json.loads(text), names):
        estimate = _Estimate(schema)
        found = estimate.room()
        num_tokens += found.num_tokens + _AROUND
        # where it stands in free text a token may begin all of it
        room |= replace(found, growth=max(found.growth, estimate.own() + _AROUND))
    return replace(room, num_tokens=min(2 * _MOST, num_tokens + _OTHERS))


@lru_cache(maxsize=256)
def _room_of_calls(text: str) -> Room:
    """Of one call, and of another that may be begun behind it: it ends the text in any case."""
    room, longest = (
        Room(_OTHERS),
        max(map(_length, named(json.loads(text), ("name",), str)), default=0),
    )
    for schema in named(json.loads(text), ("parameters",)):
        estimate = _Estimate(schema)
        found = estimate.room()
        growth = max(found.growth, estimate.own() + longest + _AROUND)
        room |= replace(found, growth=growth)
    return replace(room, num_tokens=room.num_tokens + room.growth + longest + _AROUND)


class _Estimate:
    """Of one schema; references are followed, but into their own middle only once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._own: dict[int, int] = {}
        self._known: dict[int, int] = {}  # of those that are in their own middle, as far as found
        self._open: dict[int, int] = {}
        self._is_open = False
        self._growth = 0
        self._words: dict[bytes, None] = {}
        self._marks: dict[bytes, None] = {}

    def room(self) -> Room:
        """Of the whole."""
        try:
            num_tokens = self._settled()
        except RecursionError:
            return Room(_MOST, _OPEN_GROWTH, is_open=True)
        growth = max(self._growth, _OPEN_GROWTH if self._is_open else _LEAST_GROWTH)
        num_tokens = min(num_tokens, _MOST) + _MARGIN
        words, marks = (*self._words,), (*self._marks,)
        return Room(num_tokens, growth, self.own(), self._is_open, words, marks)

    def _settled(self) -> int:
        """What is open in the whole, counted again while values in their own middle get smaller."""
        for _ in range(_MOST_ROUNDS):
            self._own, self._open, self._growth, self._is_open = {}, {}, 0, False
            num_tokens = self._open_of(self._root, ())
            found = {key: min(self._own.get(key, _MOST), most) for key, most in self._known.items()}
            if found == self._known:
                break
            self._known = found
        return num_tokens

    def own(self) -> int:
        """What the smallest value takes."""
        try:
            return self._own_of(self._root, ())
        except RecursionError:
            return _MOST

    def _own_of(self, schema: Any, above: tuple[int, ...]) -> int:
        if not isinstance(schema, Mapping):
            return 2
        key = id(schema)
        if key in above:
            self._known.setdefault(key, _MOST)  # another branch will do
            return self._known[key]
        if key not in self._own:
            self._own[key] = min(_MOST, self._count_own(schema, (*above, key)))
        return self._own[key]

    def _count_own(self, schema: Mapping[str, Any], above: tuple[int, ...]) -> int:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            texts = sorted((value for value in values if isinstance(value, str)), key=len)
            for text in texts[:_MOST_CHOICES]:
                self._words[json.dumps(text)[1:].encode()] = None
            return min(_length(json.dumps(value)) for value in values)
        number = 0
        if (target := self._target(schema)) is not None:
            number += self._own_of(target, above)
        for part in _list(schema, "allOf"):
            number += self._own_of(part, above)
        for name in _BRANCHES:
            branches = [self._own_of(part, above) for part in _list(schema, name)]
            number += min(branches, default=0)
        types = schema.get("type")
        kinds = types if isinstance(types, list) else [types] if isinstance(types, str) else []
        by_kind = [self._own_of_kind(kind, schema, above) for kind in kinds]
        return number + min(by_kind, default=0 if number else 2)

    def _own_of_kind(self, kind: str, schema: Mapping[str, Any], above: tuple[int, ...]) -> int:
        if kind == "string":
            self._note_texts(schema)
            return 2 + max(_number(schema, "minLength"), _width(schema).least)
        if kind == "object":
            return 2 + self._own_of_keys(schema, above) + 6 * _number(schema, "minProperties")
        if kind == "array":
            items = schema.get("prefixItems")
            item = schema.get("items") if not isinstance(items, list) else None
            first = [self._own_of(part, above) + 1 for part in items or ()]
            num_more = max(0, _number(schema, "minItems") - len(first))
            more = num_more * (self._own_of(item, above) + 1) if num_more else 0
            num_contained = schema.get("minContains", 1) if "contains" in schema else 0
            contained = 0
            if isinstance(num_contained, int) and num_contained > 0:
                contained = num_contained * (self._own_of(schema["contains"], above) + 1)
            return 2 + sum(first[: _number(schema, "minItems")]) + max(more, contained)
        return 2 + _digits(schema)

    def _note_texts(self, schema: Mapping[str, Any]) -> None:
        """Short texts of a string that says what it looks like."""
        pattern, form = schema.get("pattern"), schema.get("format")
        match = shortest_match(pattern) if isinstance(pattern, str) else None
        for text in (match, SHORT_TEXTS.get(form) if isinstance(form, str) else None):
            if text:
                self._words[json.dumps(text, ensure_ascii=False)[1:].encode()] = None
        self._marks |= dict.fromkeys(
            MARKS_OF_FORMATS.get(form, ()) if isinstance(form, str) else ()
        )
        # a part that is none of its own is no pattern, or one behind which a text may not end
        for part in [pattern, *pattern.split("|")] if isinstance(pattern, str) else ():
            if not part.startswith("^") and (match := shortest_match(part)):
                self._marks[json.dumps(match, ensure_ascii=False)[1:-1].encode()] = None

    def _own_of_keys(self, schema: Mapping[str, Any], above: tuple[int, ...]) -> int:
        declared = _declared(schema)
        names = [name for name in _list(schema, "required") if isinstance(name, str)]
        self._words |= dict.fromkeys(json.dumps(name)[1:].encode() for name in names)
        return sum(_length(name) + 3 + self._own_of(declared.get(name), above) for name in names)

    def _open_of(self, schema: Any, above: tuple[int, ...]) -> int:
        if not isinstance(schema, Mapping):
            self._is_open |= schema is not False
            return 8
        key = id(schema)
        if key in above:
            self._is_open = True
            return 0
        if key not in self._open:
            below = (*above, key)
            parts = [self._open_of(part, below) for part in self._parts(schema)]
            chosen = [self._own_of(part, ()) for part in self._chosen(schema)]
            key_length = max(map(_length, self._optional(schema)), default=0)
            begun = _AROUND_PART + key_length + max(chosen, default=0)
            self._growth = max(self._growth, begun)
            more, width = _more_of(schema), _width(schema)
            self._growth = max(self._growth, _AROUND_PART + more, width.growth)
            self._open[key] = self._own_of(schema, ()) + more + max(parts, default=0)
            self._open[key] += key_length
            is_elsewhere = "$ref" in schema and self._target(schema) is None
            self._is_open |= is_elsewhere or _says_too_little(schema)
        return self._open[key]

    def _parts(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        if (target := self._target(schema)) is not None:
            yield target
        for name in (*_BRANCHES, "allOf", "prefixItems"):
            yield from _list(schema, name)
        for name in ("properties", "patternProperties"):
            below = schema.get(name)
            if isinstance(below, Mapping):
                yield from below.values()
        for name in _SINGLES:
            if schema.get(name) is not None and schema[name] is not False:
                yield schema[name]

    def _chosen(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Parts that a token may begin though no value has to have them."""
        optional = self._optional(schema)
        surely = {id(part) for name, part in _declared(schema).items() if name not in optional}
        surely.add(id(self._target(schema)))
        yield from (part for part in self._parts(schema) if id(part) not in surely)

    def _optional(self, schema: Mapping[str, Any]) -> set[str]:
        """Keys that are declared and need not be there."""
        required = {name for name in _list(schema, "required") if isinstance(name, str)}
        return {*_declared(schema)} - required

    def _target(self, schema: Mapping[str, Any]) -> Any:
        return local_target(schema.get("$ref"), self._root)


_SAYING = {"enum", "const", "$ref", "anyOf", "oneOf", "allOf"}


def _says_too_little(schema: Mapping[str, Any]) -> bool:
    """Whether values of any depth conform to a schema that has no parts which say so."""
    types = schema.get("type")
    kinds = types if isinstance(types, list) else [types] if isinstance(types, str) else []
    if not kinds:
        return not _SAYING & schema.keys()
    has_parts = {"properties", "additionalProperties", "patternProperties"} & schema.keys()
    if "object" in kinds and not has_parts:
        return True
    return "array" in kinds and not {"items", "prefixItems"} & schema.keys()


def _more_of(schema: Mapping[str, Any]) -> int:
    """By how much a value that has begun may come to be longer than the smallest."""
    values = schema.get("enum")
    if isinstance(values, list) and values:
        lengths = [_length(json.dumps(value)) for value in values]
        return min(_MOST, max(lengths) - min(lengths))
    width = _width(schema)
    return width.lacking - width.least


def _width(schema: Mapping[str, Any]) -> Width:
    """Of the strings of a schema that says what they look like."""
    pattern, form = schema.get("pattern"), schema.get("format")
    least = lacking = 0
    if isinstance(form, str):
        least, lacking = len(SHORT_TEXTS.get(form, "")), _FORMATS.get(form, 16)
    if isinstance(pattern, str):
        width = width_of_pattern(pattern, is_searched=True)
        return Width(max(least, width.least), max(lacking, width.lacking), width.growth)
    return Width(least, lacking, 0)


def _digits(schema: Mapping[str, Any]) -> int:
    """Of the numbers of a schema, those that bounds ask for."""
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    values = [schema.get(name) for name in bounds]
    return max((len(repr(value)) for value in values if type(value) in (int, float)), default=0)


def _declared(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    declared = schema.get("properties")
    return declared if isinstance(declared, Mapping) else {}


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []


def _number(schema: Mapping[str, Any], name: str) -> int:
    value = schema.get(name)
    return int(min(_MOST, value)) if isinstance(value, int | float) and value > 0 else 0


def _length(text: str) -> int:
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)
