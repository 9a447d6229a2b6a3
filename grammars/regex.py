r"""Regular expressions: one dialect for every backend, that of Python's `re.fullmatch`.

Except that `\d` and `\w` are ASCII, as in ECMAScript and so in JSON Schema: who writes `\d{4}`
does not expect digits of other scripts.

The scanner walks a pattern once, refuses with line and column what no automaton holds (lookaround,
back-references, word boundaries), takes out anchors that say nothing in a full match, and spells
the rest so that every library reads it alike.
"""

from __future__ import annotations

import re
import warnings

from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.cfg import check_characters, place

_GROUP = re.compile(r"\((?:\?(?P<kind>:|P<\w+>|=|!|<=|<!|>|#|\(|P=|P>|[a-zA-Z-]+[:)]|<\w+>))?")
_REPEAT = re.compile(r"(?:[*+?]|\{\d*,?\d*\})[?+]?")
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_REFUSED_GROUPS = {
    "=": "lookahead",
    "!": "lookahead",
    "<=": "lookbehind",
    "<!": "lookbehind",
    ">": "an atomic group",
    "(": "a conditional group",
    "P=": "a back-reference",
    "P>": "a recursive group",
}
_ESCAPE = re.compile(
    r"\\(?:x\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[pP](?:\{[^}]*\}|\w)|.)",
    re.DOTALL,
)
_ASCII_CLASSES = {r"\d": "0-9", r"\w": "a-zA-Z0-9_"}
# Inside a class Rust would read these by Unicode, and xgrammar knows no class in a class.
_ASCII_INSIDE = {
    **_ASCII_CLASSES,
    r"\D": "\\x00-/:-\U0010ffff",
    r"\W": "\\x00-/:-@\\[-\\^`{-\U0010ffff",
}
_ANCHORS = {"^", "$", r"\A", r"\Z", r"\z"}


def translate(pattern: str) -> str:
    """The pattern as Rust's regex syntax and xgrammar read it; GrammarError with its place."""
    if not isinstance(pattern, str):
        raise GrammarError(f"a regex is a string, not {pattern!r}")
    check_characters(pattern)
    translated = _Scanner(pattern).scan()
    if not translated:
        raise GrammarError("the regex is empty: the model would write nothing")
    return translated


def malformed(pattern: str) -> GrammarError | None:
    """What Python says is wrong with a pattern that a library cannot read, if it objects too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set": a matter of style
            re.compile(pattern)
    except re.error as error:
        return GrammarError(error.msg, line=error.lineno, column=error.colno)
    return None


def _literal(code_point: int) -> str:
    """One character as every library reads it."""
    character = chr(code_point)
    if character.isprintable():
        return re.escape(character) if character.isascii() else character
    # Beyond Latin-1 as it is: xgrammar reads `\x{200b}` as an x, without a word.
    return character if code_point > 0xFF else f"\\x{code_point:02x}"


def _ascii_class(escape: str) -> str | None:
    r"""`\d`, `\w`, `\D` and `\W` as a character class; None for other escapes."""
    inside = _ASCII_CLASSES.get(escape.lower())
    if inside is None:
        return None
    return f"[{inside}]" if escape[1].islower() else f"[^{inside}]"


class _Scanner:
    """One pass over a pattern, writing the translation as it goes."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.written: list[str] = []
        # is nothing written before this place, in the whole pattern, on the way to it?
        self.is_start = True
        self.group_starts: list[bool] = []  # is_start where each open group began
        # an end anchor was passed: only closing brackets, `|` and the end may follow
        self.end_anchor: int | None = None
        self.group_ends: list[int | None] = []  # end anchors in the finished branches of each group
        self.branch_ends: int | None = None
        self.dot_is_all = False

    def scan(self) -> str:
        while self.position < len(self.pattern):
            self._step(self.pattern[self.position])
        if self.group_starts:
            raise self._error("a group is not closed", self.position)
        return "".join(self.written)

    def _step(self, character: str) -> None:
        if character == "(":
            self._open_group()
        elif character == ")":
            self._close_group()
        elif character == "|":
            self._next_branch()
        elif character in "^$":
            self._anchor(character)
        elif character == "[":
            self._atom(self._character_class())
        elif character == "\\":
            self._escape()
        elif character in "*+?{":
            self._repeat()
        elif character == ".":
            self._atom("." if self.dot_is_all else r"[^\n]", 1)
        else:
            self._atom(re.escape(character) if character in "}]" else character, 1)

    def _atom(self, text: str, length: int = 0) -> None:
        """Something that takes text; nothing may stand before a `^` or behind a `$`."""
        if self.end_anchor is not None:
            raise self._unsupported("an end anchor inside the pattern", self.end_anchor)
        self.is_start = False
        self.written.append(text)
        self.position += length

    def _open_group(self) -> None:
        if self.end_anchor is not None:
            raise self._unsupported("an end anchor inside the pattern", self.end_anchor)
        match = _GROUP.match(self.pattern, self.position)
        assert match is not None
        kind = match["kind"]
        if kind is None and self.pattern.startswith("(?", self.position):
            raise self._error("an unknown kind of group", self.position)
        if kind in _REFUSED_GROUPS:
            raise self._unsupported(_REFUSED_GROUPS[kind], self.position)
        if kind == "#":
            end = self.pattern.find(")", self.position)
            if end < 0:
                raise self._error("a comment is not closed", self.position)
            self.position = end + 1
            return
        flags = kind[:-1] if kind and kind[-1] in ":)" and kind != ":" else ""
        if set(flags) - set("is"):
            raise self._unsupported(f"the flag(s) {flags!r} (only i and s are)", self.position)
        self.dot_is_all = self.dot_is_all or "s" in flags
        self.position = match.end()
        if kind and kind.endswith(")"):
            self.written.append(match[0])
            return
        self.written.append(f"(?{flags}:" if flags else "(?:")
        self.group_starts.append(self.is_start)
        self.group_ends.append(self.branch_ends)
        self.branch_ends = None

    def _close_group(self) -> None:
        if not self.group_starts:
            raise self._error("unbalanced parenthesis", self.position)
        self.written.append(")")
        self.position += 1
        ended = self.end_anchor if self.end_anchor is not None else self.branch_ends
        self.is_start = False if ended is None else self.is_start
        self.group_starts.pop()
        self.is_start = False
        self.branch_ends = self.group_ends.pop()
        self.end_anchor = ended

    def _next_branch(self) -> None:
        if self.end_anchor is not None:
            self.branch_ends = self.end_anchor
        self.end_anchor = None
        self.is_start = self.group_starts[-1] if self.group_starts else True
        self.written.append("|")
        self.position += 1

    def _anchor(self, anchor: str) -> None:
        if anchor in ("^", r"\A"):
            if not self.is_start:
                raise self._unsupported("a start anchor inside the pattern", self.position)
        elif self.end_anchor is None:
            self.end_anchor = self.position
        self.position += len(anchor)

    def _repeat(self) -> None:
        match = _REPEAT.match(self.pattern, self.position)
        count = _COUNT.match(self.pattern, self.position)
        if match is None or (count and not count[1] and not count[3]):
            self._atom(r"\{", 1)  # a bracket that counts nothing is itself
            return
        if not self.written or self.written[-1] in ("|", "(?:") or self.end_anchor is not None:
            raise self._error("nothing to repeat", self.position)
        text = match[0]
        if text.endswith("+") and len(text) > 1:
            raise self._unsupported("a possessive repetition", self.position)
        if count and count[2] and not count[1]:
            text = "{0," + text[2:]
        self.written.append(text)
        self.position = match.end()
        if _REPEAT.match(self.pattern, self.position):
            raise self._error("multiple repeat", self.position)

    def _escape(self) -> None:
        match = _ESCAPE.match(self.pattern, self.position)
        if match is None:
            raise self._error("the pattern ends with a backslash", self.position)
        text = match[0]
        if text in _ANCHORS:
            self._anchor(text)
            return
        if text[1] in "bB":
            raise self._unsupported("a word boundary", self.position)
        if text[1] in "123456789":
            raise self._unsupported("a back-reference", self.position)
        self._atom(_ascii_class(text) or self._plain_escape(text), len(text))

    def _plain_escape(self, text: str) -> str:
        kind = text[1]
        if kind in "xuU" and len(text) > 2:
            code_point = int(text[2:].strip("{}"), 16)
            if 0xD800 <= code_point <= 0xDFFF or code_point > 0x10FFFF:
                raise self._error(f"{text} is no character", self.position)
            return _literal(code_point)
        if kind == "0":
            return _literal(0)
        if kind.isalnum() and kind not in "dDwWsSnrtfvapP":
            raise self._error(f"bad escape {text}", self.position)
        return text if kind.isalnum() or not kind.isascii() else re.escape(kind)

    def _character_class(self) -> str:
        """A `[...]`, with what only some libraries read as operators spelled as plain text."""
        start = self.position
        parts = ["["]
        self.position += 1
        if self.pattern.startswith("^", self.position):
            parts.append("^")
            self.position += 1
        is_first = True
        while True:
            if self.position >= len(self.pattern):
                raise self._error("unterminated character set", start)
            character = self.pattern[self.position]
            if character == "]" and not is_first:
                self.position += 1
                return "".join(parts) + "]"
            is_first = False
            if character == "\\":
                parts.append(self._class_escape())
            elif posix := re.compile(r"\[:\^?\w+:\]").match(self.pattern, self.position):
                parts.append(posix[0])
                self.position = posix.end()
            else:
                parts.append(f"\\{character}" if character in "[]&~^" else character)
                self.position += 1

    def _class_escape(self) -> str:
        match = _ESCAPE.match(self.pattern, self.position)
        if match is None:
            raise self._error("unterminated character set", self.position)
        text = match[0]
        inside = _ASCII_INSIDE.get(text)
        plain = _literal(8) if text == r"\b" else inside or self._plain_escape(text)
        self.position += len(text)
        return plain

    def _error(self, message: str, position: int) -> GrammarError:
        line, column = place(self.pattern, position)
        return GrammarError(message, line=line, column=column)

    def _unsupported(self, what: str, position: int) -> GrammarError:
        line, column = place(self.pattern, position)
        return UnsupportedConstraint(
            f"{what} is not supported in a regex", line=line, column=column
        )
