"""Reading Lark text as llguidance does, as far as is needed to know its rules.

llguidance itself checks the syntax; what is read here is which rules there are, what they are made
of and where they stand, for the checks that llguidance does not make.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from structspec.errors import GrammarError
from structspec.grammars.cfg import place

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|\#[^\n]*|\\[ \t]*\n)
    |(?P<newline>\n)
    |(?P<directive>%[a-zA-Z]+)
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/[imslux]*)
    |(?P<param>::\s*(?:[a-z_]+\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|[\w]+))
    |(?P<special><[^>\n]*>)
    |(?P<name>@?[!?]?[A-Za-z_][\w-]*)
    |(?P<count>~\s*\d+(?:\s*\.\.\s*\d+)?|\{\s*(?:\d+\s*(?:,\s*\d*)?|,\s*\d+)\s*\})
    |(?P<mark>->|\.\.|\.-?\d+|[():|&~\[\]*+?=,]|\S)""",
    re.VERBOSE,
)
_INLINE = ("%json", "%regex", "%lark", "%llguidance")
Kind = Literal["text", "rule", "terminal", "inline", "token"]


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: its kind is the name of its group above."""

    kind: str
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Atom:
    """What a body is made of: the name of a rule or terminal, or text as it stands."""

    kind: Kind
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """A part `minimum` to `maximum` times; None: without end."""

    part: Body
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Body:
    """Alternatives, each a row of parts."""

    alternatives: tuple[tuple[Part, ...], ...]


Part = Atom | Repeated | Body


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule or terminal."""

    name: str
    body: Body
    start: int


@dataclass(frozen=True, slots=True)
class InlineJson:
    """A `%json {…}`: its schema and where it stands, from the `%` to behind the bracket."""

    schema: str
    start: int
    end: int


def read_rules(text: str) -> dict[str, Rule]:
    """Every rule and terminal by name; what is no rule (`%ignore`, `%import`) is left out."""
    return _Reader(text).rules()


def inline_json(text: str) -> list[InlineJson]:
    """Every `%json {…}` of a grammar; GrammarError where its schema is not JSON."""
    found: list[InlineJson] = []
    for token in _tokens(text):
        if token.kind == "inline" and token.text.startswith("%json"):
            schema = token.text.removeprefix("%json").strip()
            found.append(InlineJson(schema, token.start, token.start + len(token.text)))
    return found


def tokens_of(text: str) -> list[Token]:
    """The pieces of the text, without white space and comments."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None and match.lastgroup is not None
        end, kind = match.end(), match.lastgroup
        if match[0] in _INLINE:
            end, kind = _inline_end(text, match[0], end), "inline"
        if kind != "space":
            yield Token(kind, text[position:end], position)
        position = end


def _inline_end(text: str, directive: str, position: int) -> int:
    """Behind the bracket that closes what follows a `%json` or the like."""
    start = text.find("{", position)
    if start < 0 or text[position:start].strip():
        raise _error(text, position, f"{directive} needs a {{…}}")
    if directive == "%lark":
        return _lark_end(text, start)
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        raise _error(text, error.pos, f"{directive} holds no JSON: {error.msg}") from None


def _lark_end(text: str, start: int) -> int:
    """A nested grammar ends where a bracket that is not its own closes."""
    position = start + 1
    for token in _tokens(text[position:]):
        if token.text == "}":
            return position + token.start + 1
    raise _error(text, start, "%lark is not closed")


def _error(text: str, position: int, message: str) -> GrammarError:
    line, column = place(text, position)
    return GrammarError(message, line=line, column=column)


@dataclass(slots=True)
class _Reader:
    """Recursive descent over the tokens; where llguidance will object it only has to end."""

    text: str
    tokens: list[Token] = field(default_factory=list)
    next: int = 0

    def rules(self) -> dict[str, Rule]:
        self.tokens = tokens_of(self.text)
        found: dict[str, Rule] = {}
        while self.next < len(self.tokens):
            rule = self._rule()
            if rule is not None:
                found[rule.name] = rule
        return found

    def _rule(self) -> Rule | None:
        """A rule that begins here; else the line is passed over."""
        first = self._take()
        if first.kind != "name" or first.text.startswith("@"):
            if first.kind != "newline":
                self._skip_line()
            return None
        while self._peek() not in (":", "\n", ""):  # options, a priority, a parameter
            self._take()
        if self._peek() != ":":
            return None
        self._take()
        return Rule(first.text.lstrip("!?"), self._body(), first.start)

    def _body(self) -> Body:
        alternatives = [self._row()]
        while self._peek_over_lines() == "|":
            self._skip_newlines()
            self._take()
            alternatives.append(self._row())
        return Body(tuple(alternatives))

    def _row(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        while (token := self._token()) is not None:
            if token.kind == "newline" or token.text in ("|", ")", "]"):
                break
            self._take()
            if token.text == "%if" or token.text == "->":  # a condition, an alias: to the end
                while self._peek() not in ("|", "\n", ""):
                    self._take()
                break
            parts.append(self._counted(self._part(token)))
        return tuple(parts)

    def _part(self, token: Token) -> Part:
        match token.kind:
            case "name" if not token.text.startswith("@"):
                is_terminal = token.text.lstrip("_")[:1].isupper()
                return Atom("terminal" if is_terminal else "rule", token.text, token.start)
            case "special":
                return Atom("token", token.text, token.start)
            case "string" | "regex":
                return Atom("text", token.text, token.start)
            case "inline" | "name":
                return Atom("inline", token.text, token.start)
        if token.text in ("(", "["):
            body = self._group()
            return Repeated(body, 0, 1) if token.text == "[" else body
        # `..` between the ends of a range, `&`, `~`: operators of terminals, not read here
        return Atom("inline", token.text, token.start)

    def _group(self) -> Body:
        self._skip_newlines()
        body = self._body()
        self._skip_newlines()
        if self._peek() in (")", "]"):
            self._take()
        return body

    def _counted(self, part: Part) -> Part:
        token = self._token()
        if token is None or not (token.kind == "count" or token.text in ("*", "+", "?")):
            return part
        self._take()
        body = part if isinstance(part, Body) else Body(((part,),))
        if token.kind != "count":
            minimum, maximum = {"*": (0, None), "+": (1, None), "?": (0, 1)}[token.text]
            return Repeated(body, minimum, maximum)
        numbers = [int(n) for n in re.findall(r"\d+", token.text)]
        has_two = "," in token.text or len(numbers) == 2
        if not has_two:
            return Repeated(body, numbers[0], numbers[0])
        first, _, second = token.text.strip("~{} ").replace("..", ",").partition(",")
        return Repeated(body, int(first or 0), int(second) if second.strip() else None)

    def _token(self) -> Token | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def _peek(self) -> str:
        token = self._token()
        return token.text if token else ""

    def _peek_over_lines(self) -> str:
        at = self.next
        while at < len(self.tokens) and self.tokens[at].kind == "newline":
            at += 1
        return self.tokens[at].text if at < len(self.tokens) else ""

    def _take(self) -> Token:
        self.next += 1
        return self.tokens[self.next - 1]

    def _skip_newlines(self) -> None:
        while self._peek() == "\n":
            self._take()

    def _skip_line(self) -> None:
        while self._peek() not in ("\n", ""):
            self._take()
