"""The algebra that texts with several parts are made of: structural tags and tool sets end here.

A form is a regular expression over four kinds of leaf that are more than characters: JSON, a
context-free grammar, text without some strings, and a special token. Forms are values; every part
knows the place it came from, as a JSON pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from structspec.constraint import Grammar, JsonSchema


@dataclass(frozen=True, slots=True)
class Text:
    """This text, character for character; may be empty."""

    text: str
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that matches a regex from its first to its last character."""

    pattern: str
    pointer: str = ""
    dialect: Literal["python", "rust"] = "python"  # rust: a terminal of a Lark grammar


@dataclass(frozen=True, slots=True)
class Json:
    """JSON that conforms to a schema, which is given as its text: forms are hashable."""

    constraint: JsonSchema
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Cfg:
    """Text of a context-free grammar."""

    constraint: Grammar
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class AnyText:
    """Any text in which none of `excludes` occurs, of at most `max_chars` characters."""

    excludes: tuple[str, ...] = ()
    max_chars: int | None = None
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """The special token of this name.

    Where the vocabulary has none, its name as plain text, unless it `is_token_only`.
    """

    name: str
    is_token_only: bool = False
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple[Form, ...]
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Either:
    """One of the parts, of which there is at least one."""

    parts: tuple[Form, ...]
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part `minimum` to `maximum` times; None: without end."""

    part: Form
    minimum: int = 0
    maximum: int | None = None
    pointer: str = ""


Leaf = Text | Pattern | Json | Cfg | AnyText | Marker
Form = Leaf | Sequence | Either | Repeat


def sequence(*parts: Form, pointer: str = "") -> Form:
    """The parts in a row, without empty texts and nested rows; neighbouring texts are joined."""
    flat: list[Form] = []
    for part in parts:
        for piece in part.parts if isinstance(part, Sequence) else (part,):
            last = flat[-1] if flat else None
            if isinstance(piece, Text) and isinstance(last, Text):
                flat[-1] = Text(last.text + piece.text, last.pointer)
            elif not (isinstance(piece, Text) and not piece.text):
                flat.append(piece)
    if len(flat) == 1:
        return flat[0]
    return Sequence(tuple(flat), pointer) if flat else Text("", pointer)


def either(*parts: Form, pointer: str = "") -> Form:
    """One of the parts; equal parts count once."""
    distinct = tuple(dict.fromkeys(parts))
    assert distinct
    return distinct[0] if len(distinct) == 1 else Either(distinct, pointer)


def leaves(form: Form) -> list[Leaf]:
    """Every leaf, from left to right."""
    match form:
        case Sequence() | Either():
            return [leaf for part in form.parts for leaf in leaves(part)]
        case Repeat():
            return leaves(form.part)
        case _:
            return [form]


def is_regular(form: Form) -> bool:
    """Whether an automaton holds it whole: no JSON, no grammar, no special token."""
    return not any(isinstance(leaf, Json | Cfg | Marker) for leaf in leaves(form))
