"""Structural tags: xgrammar's JSON form of texts made of tags, read into a form.

`{"type": "structural_tag", "format": …}`, or the older `{"structures": [{"begin", "schema",
"end"}], "triggers": […]}`. Free text inside a tag does not contain the tag's end; free text before
triggered tags does not contain their triggers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from structspec.constraint import Grammar, JsonSchema, StructuralTag, escape
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.cfg import dialect_of
from structspec.grammars.form import (
    AnyText,
    Cfg,
    Form,
    Json,
    Marker,
    Pattern,
    Repeat,
    Text,
    either,
    sequence,
)
from structspec.grammars.placing import placed

_TOKENS = "speaks of tokens, not of text"
_COUNTS_TOKENS = "tokens are not counted here; use max_chars"


def read_tag(constraint: StructuralTag) -> Form:
    """The form of a structural tag; raises GrammarError with a pointer into it."""
    tag = _Node(json.loads(constraint.text), "#", (), constraint)
    if not isinstance(tag.value, dict):
        raise tag.error("a structural tag is an object")
    if "structures" in tag.value:
        return _legacy(tag)
    if tag.value.get("type", "structural_tag") != "structural_tag":
        raise tag.error("'type' must be 'structural_tag'")
    return _read(tag.child("format"))


@dataclass(frozen=True, slots=True)
class _Node:
    """One value of the tag: where it stands, and the ends of the tag around it."""

    value: Any
    pointer: str
    ends: tuple[str, ...]
    constraint: StructuralTag

    def error(self, message: str) -> GrammarError:
        return GrammarError(message, pointer=self.pointer)

    def unsupported(self, message: str) -> UnsupportedConstraint:
        return UnsupportedConstraint(message, pointer=self.pointer)

    def child(self, key: str | int, ends: tuple[str, ...] | None = None) -> _Node:
        """A part that must be there."""
        if isinstance(key, str) and key not in self.value:
            raise self.error(f"{key!r} is missing")
        place = escape(str(key))
        ends = self.ends if ends is None else ends
        return _Node(self.value[key], f"{self.pointer}/{place}", ends, self.constraint)

    def children(self, key: str) -> list[_Node]:
        """The parts of a list that must not be empty."""
        whole = self.child(key)
        if not isinstance(whole.value, list) or not whole.value:
            raise whole.error("must be a list of at least one")
        return whole.items()

    def items(self) -> list[_Node]:
        """The parts of this list."""
        return [self.child(i) for i in range(len(self.value))]

    def string(self, key: str) -> str:
        node = self.child(key)
        if not isinstance(node.value, str):
            raise node.error(f"must be a string, not {node.value!r}")
        return node.value

    def strings(self, key: str, *, is_needed: bool = False) -> tuple[str, ...]:
        """A list of strings that are not empty; () where it is absent."""
        if key not in self.value and not is_needed:
            return ()
        node = self.child(key)
        is_right = isinstance(node.value, list) and all(
            isinstance(text, str) and text for text in node.value
        )
        if not is_right or (is_needed and not node.value):
            raise node.error("must be a list of strings that are not empty")
        return tuple(node.value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.value.get(key, default)
        if not isinstance(value, bool):
            raise self.child(key).error(f"must be true or false, not {value!r}")
        return value

    def count(self, key: str, *, lowest: int) -> int:
        node = self.child(key)
        if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < lowest:
            raise node.error(f"must be a whole number from {lowest} on, not {node.value!r}")
        return node.value


def _read(node: _Node) -> Form:
    if not isinstance(node.value, dict):
        raise node.error("a format is an object with a 'type'")
    name = node.string("type")
    if name in _OF_TOKENS:
        raise node.unsupported(f"{name} {_TOKENS}")
    if name not in _FORMATS:
        raise node.error(f"there is no format {name!r}; there are {', '.join(sorted(_FORMATS))}")
    keys, reader = _FORMATS[name]
    for key in node.value:
        if key not in keys and key != "type":
            raise node.child(key).error(f"{name} has no field {key!r}")
    return reader(node)


def _const_string(node: _Node) -> Form:
    return Text(node.string("value"), node.pointer)


def _json_schema(node: _Node) -> Form:
    style = node.value.get("style", "json")
    if style != "json":
        raise node.child("style").unsupported(f"the style {style!r} is not supported")
    if node.strings("excludes"):
        raise node.child("excludes").unsupported("strings inside JSON cannot be excluded")
    order = "any" if node.flag("any_order") else "schema"
    return _json(node.child("json_schema"), order == "any")


def _json(node: _Node, is_any_order: bool = False) -> Form:
    if not isinstance(node.value, dict | bool):
        raise node.error("a schema is an object, true or false")
    whole = node.constraint
    schema = JsonSchema(
        json.dumps(node.value, ensure_ascii=False),
        style=whole.style,
        property_order="any" if is_any_order else "schema",
        closed=whole.closed,
    )
    return Json(schema, node.pointer)


def _grammar(node: _Node) -> Form:
    syntax = node.value.get("syntax", "ebnf")
    if syntax not in ("ebnf", "lark"):
        raise node.child("syntax").error(f"must be 'ebnf' or 'lark', not {syntax!r}")
    grammar, pointer = Grammar(node.string("grammar"), syntax), f"{node.pointer}/grammar"
    try:
        dialect_of(grammar)  # it may be no text, or none that can be read
    except GrammarError as error:
        raise placed(error, pointer, syntax) from None
    return Cfg(grammar, pointer)


def _regex(node: _Node) -> Form:
    return Pattern(node.string("pattern"), f"{node.pointer}/pattern")


def _any_text(node: _Node) -> Form:
    if node.value.get("max_tokens") is not None:
        raise node.child("max_tokens").unsupported(_COUNTS_TOKENS)
    limit = node.count("max_chars", lowest=0) if node.value.get("max_chars") is not None else None
    return AnyText(_distinct(*node.strings("excludes"), *node.ends), limit, node.pointer)


def _sequence(node: _Node) -> Form:
    return sequence(*map(_read, node.children("elements")), pointer=node.pointer)


def _or(node: _Node) -> Form:
    return either(*map(_read, node.children("elements")), pointer=node.pointer)


def _optional(node: _Node) -> Form:
    return Repeat(_read(node.child("content")), 0, 1, node.pointer)


def _plus(node: _Node) -> Form:
    return Repeat(_read(node.child("content")), 1, None, node.pointer)


def _star(node: _Node) -> Form:
    return Repeat(_read(node.child("content")), 0, None, node.pointer)


def _repeat(node: _Node) -> Form:
    minimum, maximum = node.count("min", lowest=0), node.count("max", lowest=-1)
    if -1 < maximum < minimum:
        raise node.child("max").error(f"must be -1 or at least 'min', {minimum}")
    content = _read(node.child("content"))
    return Repeat(content, minimum, None if maximum == -1 else maximum, node.pointer)


def _tag(node: _Node, begin: str | None = None) -> Form:
    """A tag; `begin` is what is still to be written of its begin, where a trigger took some."""
    ends = _ends(node)
    plain = tuple(end.text for end in ends if isinstance(end, Text) and end.text)
    if begin is None and isinstance(node.child("begin").value, dict):
        first: Form = _token(node.child("begin"))
    else:
        first = Text(node.string("begin") if begin is None else begin, f"{node.pointer}/begin")
    content = node.child("content", ends=plain)
    if not plain and not isinstance(ends[0], Marker) and _is_free(content.value):
        raise node.child("end").error("free text needs an end that is not empty")
    return sequence(first, _read(content), either(*ends), pointer=node.pointer)


def _ends(node: _Node) -> tuple[Form, ...]:
    end = node.child("end")
    if isinstance(end.value, dict):
        return (_token(end),)
    if isinstance(end.value, str):
        return (Text(end.value, end.pointer),)
    if not isinstance(end.value, list) or not end.value:
        raise end.error("must be a string, a list of strings or a token")
    parts = end.items()
    for part in parts:
        if not isinstance(part.value, str):
            raise part.error(f"must be a string, not {part.value!r}")
    return tuple(Text(part.value, part.pointer) for part in parts)


def _is_free(content: Any) -> bool:
    return isinstance(content, dict) and content.get("type") in ("any_text", "triggered_tags")


def _token(node: _Node) -> Form:
    if not isinstance(node.value, dict) or node.value.get("type", "token") != "token":
        raise node.error("must be a string or a token")
    if not isinstance(node.child("token").value, str):
        raise node.child("token").unsupported("a token is given by its name, not its id")
    return Marker(node.string("token"), is_token_only=True, pointer=node.pointer)


def _triggered_tags(node: _Node) -> Form:
    triggers = node.strings("triggers", is_needed=True)
    groups: dict[str, list[Form]] = {trigger: [] for trigger in triggers}
    whole: list[Form] = []
    for tag in node.children("tags"):
        begin = tag.string("begin")
        matching = [trigger for trigger in triggers if begin.startswith(trigger)]
        if len(matching) != 1:
            count = "no trigger begins" if not matching else "more than one trigger begins"
            raise tag.child("begin").error(f"{count} {begin!r}")
        groups[matching[0]].append(_tag(tag, begin.removeprefix(matching[0])))
        whole.append(_tag(tag))
    if node.flag("at_least_one"):
        first = either(*whole, pointer=node.pointer)
        if node.flag("stop_after_first"):
            return first
        return sequence(first, _dispatch_loop(node, triggers, groups), pointer=node.pointer)
    if node.flag("stop_after_first"):
        return _dispatch_once(node, triggers, groups)
    return _dispatch_loop(node, triggers, groups)


def _dispatch(node: _Node) -> Form:
    groups: dict[str, list[Form]] = {}
    for rule in node.children("rules"):
        if not isinstance(rule.value, list) or len(rule.value) != 2:
            raise rule.error("must be a pair of a string and a format")
        pattern, content = rule.child(0), rule.child(1)
        if not isinstance(pattern.value, str) or not pattern.value:
            raise pattern.error("must be a string that is not empty")
        groups.setdefault(pattern.value, []).append(_read(content))
    dispatch = _dispatch_loop if node.flag("loop", default=True) else _dispatch_once
    return dispatch(node, tuple(groups), groups)


def _heads(
    node: _Node, triggers: tuple[str, ...], groups: Mapping[str, list[Form]]
) -> tuple[Form, Form]:
    """Free text up to and through a dispatched part, and free text alone."""
    text = AnyText(_distinct(*triggers, *node.strings("excludes"), *node.ends), None, node.pointer)
    parts = [
        sequence(text, Text(trigger, node.pointer), either(*bodies), pointer=node.pointer)
        for trigger, bodies in groups.items()
        if bodies
    ]
    return either(*parts, pointer=node.pointer), text


def _dispatch_loop(
    node: _Node, triggers: tuple[str, ...], groups: Mapping[str, list[Form]]
) -> Form:
    head, text = _heads(node, triggers, groups)
    return sequence(Repeat(head, 0, None, node.pointer), text, pointer=node.pointer)


def _dispatch_once(
    node: _Node, triggers: tuple[str, ...], groups: Mapping[str, list[Form]]
) -> Form:
    return either(*_heads(node, triggers, groups), pointer=node.pointer)


def _tags_with_separator(node: _Node) -> Form:
    tag = either(*map(_tag, node.children("tags")), pointer=node.pointer)
    more: Form = sequence(Text(node.string("separator"), f"{node.pointer}/separator"), tag)
    some = tag
    if not node.flag("stop_after_first"):
        some = sequence(tag, Repeat(more, 0, None, node.pointer), pointer=node.pointer)
    return some if node.flag("at_least_one") else Repeat(some, 0, 1, node.pointer)


def _legacy(tag: _Node) -> Form:
    """`structures` and `triggers`: JSON between tags."""
    tags = [
        {
            "type": "tag",
            "begin": part.string("begin"),
            "content": {"type": "json_schema", "json_schema": _legacy_schema(part)},
            "end": part.string("end"),
        }
        for part in tag.children("structures")
    ]
    triggers = tag.strings("triggers", is_needed=True)
    whole = {"type": "triggered_tags", "triggers": list(triggers), "tags": tags}
    return _read(_Node(whole, "#", (), tag.constraint))


def _legacy_schema(part: _Node) -> Any:
    node = part.child("schema")
    if not isinstance(node.value, str):
        return node.value
    try:
        return json.loads(node.value)
    except json.JSONDecodeError as error:
        raise node.error(f"the schema is not JSON: {error.msg}") from None


def _distinct(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


_Reader = Callable[[_Node], Form]
_FORMATS: dict[str, tuple[frozenset[str], _Reader]] = {
    name: (frozenset(keys.split()), reader)
    for name, keys, reader in (
        ("const_string", "value", _const_string),
        ("json_schema", "json_schema style any_order max_whitespace_cnt excludes", _json_schema),
        ("grammar", "grammar syntax", _grammar),
        ("regex", "pattern", _regex),
        ("any_text", "excludes max_tokens max_chars", _any_text),
        ("sequence", "elements", _sequence),
        ("or", "elements", _or),
        ("optional", "content", _optional),
        ("plus", "content", _plus),
        ("star", "content", _star),
        ("repeat", "min max content", _repeat),
        ("tag", "begin content end", _tag),
        (
            "triggered_tags",
            "triggers tags at_least_one stop_after_first excludes",
            _triggered_tags,
        ),
        ("dispatch", "rules loop excludes", _dispatch),
        (
            "tags_with_separator",
            "tags separator at_least_one stop_after_first",
            _tags_with_separator,
        ),
        ("token", "token", _token),
    )
}
_OF_TOKENS = ("exclude_token", "any_tokens", "token_triggered_tags", "token_dispatch")
