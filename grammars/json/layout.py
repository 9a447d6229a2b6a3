"""Where the white space of a JSON text goes, as Lark, for each style."""

from __future__ import annotations

from dataclasses import dataclass

from structspec.constraint import JsonStyle
from structspec.grammars.lark_text import LarkText

_BLANKS = r"[ \t\n\r]{0,8}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Lark for what stands between values.

    Where text is indented every rule carries its depth, that of its members: a rule is declared as
    `name` + `own`, and named as `name` + `same` on its own level, `name` + `deeper` one level in,
    and `name` + `start` around the whole text.
    """

    open_object: str
    close_object: str
    empty_object: str
    open_array: str
    close_array: str
    empty_array: str
    item_separator: str
    key_separator: str
    own: str = ""
    same: str = ""
    deeper: str = ""
    start: str = ""


def make_layout(style: JsonStyle, lark: LarkText) -> Layout:
    """The layout of a style; writes the rules that it needs."""
    if style == "pretty":
        return _pretty(lark)
    if style == "flexible":
        return _flexible(lark)
    comma, colon = ('", "', '": "') if style == "spaced" else ('","', '":"')
    return Layout('"{"', '"}"', '"{" "}"', '"["', '"]"', '"[" "]"', comma, colon)


def _pretty(lark: LarkText) -> Layout:
    indent, line = lark.reserve(), lark.reserve()
    lark.define(f"{indent}::_", f'"" %if eq(_, 0) | "  " {indent}::decr(_) %if gt(_, 0)')
    lark.define(f"{line}::_", f'"\\n" {indent}::_')
    inner, outer = f"{line}::_", f"{line}::decr(_)"
    return Layout(
        f'"{{" {inner}',
        f'{outer} "}}"',
        '"{" "}"',
        f'"[" {inner}',
        f'{outer} "]"',
        '"[" "]"',
        f'"," {inner}',
        '": "',
        own="::_",
        same="::_",
        deeper="::incr(_)",
        start="::0",
    )


def _flexible(lark: LarkText) -> Layout:
    """At most 8 blanks in a row: they belong to the sign on one side, never to both."""

    def sign(regex: str) -> str:
        return lark.terminal(f"/{regex}/")

    return Layout(
        sign(rf"\{{{_BLANKS}"),
        sign(rf"{_BLANKS}\}}"),
        sign(rf"\{{{_BLANKS}\}}"),
        sign(rf"\[{_BLANKS}"),
        sign(rf"{_BLANKS}\]"),
        sign(rf"\[{_BLANKS}\]"),
        sign(rf"{_BLANKS},{_BLANKS}"),
        sign(rf"{_BLANKS}:{_BLANKS}"),
    )
