"""What a request may ask its output to be: the values the grammar layer compiles."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from structspec.errors import GrammarError

PropertyOrder = Literal["schema", "any"]
JsonStyle = Literal["spaced", "compact", "pretty", "flexible"]
Dialect = Literal["auto", "lark", "ebnf"]
Envelope = Literal["hermes", "llama3", "mistral", "deepseek", "harmony", "json"]

TOO_DEEP = "the constraint is nested too deeply to be compiled"
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def find_half_character(text: str) -> int | None:
    """Where a str holds half a surrogate pair, which no UTF-8 and so no model has; else None."""
    match = _HALF_CHARACTER.search(text)
    return None if match is None else match.start()


def escape(part: str) -> str:
    """A name as one part of a JSON pointer."""
    if "~" not in part and "/" not in part:
        return part
    return part.replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True)
class JsonSchema:
    """JSON text that conforms to `schema` (a dict, a bool, or its JSON text).

    `style` fixes the white space: "spaced" is what `json.dumps` writes (`", "` and `": "`),
    "compact" has none, "pretty" is `json.dumps(indent=2)`, "flexible" leaves up to 8 blanks free.
    `property_order="schema"` writes properties in the order the schema declares them, "any" leaves
    their order free. `closed`: an
    object that is silent about `additionalProperties` admits only its declared properties, if it
    declares any; a bare `{"type": "object"}` stays a map. False is JSON Schema to the letter.
    """

    schema: Mapping[str, Any] | bool | str
    style: JsonStyle = "spaced"
    property_order: PropertyOrder = "schema"
    closed: bool = True

    @cached_property
    def text(self) -> str:
        """The schema as canonical JSON text; raises GrammarError where it is not JSON."""
        return _canonical(self.schema, "the schema")

    def remember(self, text: str) -> None:
        """Take note of `text`, which somebody has worked out before."""
        vars(self)["text"] = text

    @property
    def key(self) -> tuple[str, ...]:
        """Equal keys compile to the same grammar."""
        return ("json", self.text, self.style, self.property_order, str(self.closed))


@dataclass(frozen=True)
class Regex:
    """Text that matches `pattern` from its first to its last character."""

    pattern: str

    @property
    def key(self) -> tuple[str, ...]:
        """Equal keys compile to the same grammar."""
        return ("regex", self.pattern)


@dataclass(frozen=True)
class Choice:
    """Exactly one of `choices`, character for character."""

    choices: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Equal keys compile to the same grammar."""
        return ("choice", *self.choices)


@dataclass(frozen=True)
class Grammar:
    """Text of a context-free grammar: Lark as llguidance reads it, or EBNF/GBNF as xgrammar does.

    The start rule is `start` (Lark) or `root` (EBNF). "auto" tells them apart by `::=`. A
    `%json {…}` in Lark is written as a `JsonSchema` with its defaults is.
    """

    text: str
    dialect: Dialect = "auto"

    @property
    def key(self) -> tuple[str, ...]:
        """Equal keys compile to the same grammar."""
        return ("grammar", self.text, self.dialect)


@dataclass(frozen=True)
class StructuralTag:
    """Text with JSON, regexes and grammars between tags, in xgrammar's JSON form.

    `tag` is `{"type": "structural_tag", "format": …}`, the older `{"structures", "triggers"}`, or
    the JSON text of either. `style` and `closed` are those of the JSON inside, see `JsonSchema`.
    """

    tag: Mapping[str, Any] | str
    style: JsonStyle = "spaced"
    closed: bool = True

    @cached_property
    def text(self) -> str:
        """The tag as canonical JSON text; raises GrammarError where it is not JSON."""
        return _canonical(self.tag, "the structural tag")

    @property
    def key(self) -> tuple[str, ...]:
        """Equal keys compile to the same grammar."""
        return ("structural_tag", self.text, self.style, str(self.closed))


@dataclass(frozen=True)
class Tools:
    """Calls of tools, written as a model family writes them.

    `tools` are OpenAI's `{"type": "function", "function": {"name", "parameters"}}` or the inner
    object alone; a call's arguments always conform to `parameters`. `choice` is "auto" (free text
    before the calls, or none), "required", "none" or the name of one tool. With a `response`
    "auto" means: calls, or JSON that conforms to it, and no other text. `parallel` lets several
    calls follow each other. `style` and `closed` are those of the JSON, see `JsonSchema`.
    """

    tools: Sequence[Mapping[str, Any]]
    envelope: Envelope = "hermes"
    choice: str = "auto"
    parallel: bool = True
    response: JsonSchema | None = None
    style: JsonStyle = "spaced"
    closed: bool = True

    def __post_init__(self) -> None:
        if not self.tools:
            raise GrammarError(
                "there must be at least one tool; for an answer alone pass schema=", pointer="#"
            )
        if self.response is not None and not isinstance(self.response, JsonSchema):
            raise GrammarError(
                f"response must be a JsonSchema, not {type(self.response).__name__}: JsonSchema(…)"
            )

    @cached_property
    def text(self) -> str:
        """The tools as canonical JSON text; raises GrammarError where they are not JSON."""
        return _canonical(list(self.tools), "the list of tools")

    @property
    def key(self) -> tuple[str, ...]:
        """Equal keys compile to the same grammar."""
        response = () if self.response is None else self.response.key
        options = (self.envelope, self.choice, str(self.parallel), self.style, str(self.closed))
        return ("tools", self.text, *options, *response)


Constraint = JsonSchema | Regex | Choice | Grammar | StructuralTag | Tools


def _canonical(value: Any, what: str) -> str:
    """A value, or JSON text, as canonical JSON text."""
    if isinstance(value, str):
        value = _loaded(value, what)
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except (TypeError, ValueError) as error:
        advice = "; pass its model_json_schema()" if hasattr(value, "model_json_schema") else ""
        raise GrammarError(f"{what} cannot be written as JSON: {error}{advice}") from None


class _Repeating(dict[str, Any]):
    """An object whose text has a key twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.key = Counter(key for key, _ in pairs).most_common(1)[0][0]


def _loaded(text: str, what: str) -> Any:
    """The value of JSON text; GrammarError where it is none, or an object has a key twice."""
    try:
        value = json.loads(text, object_pairs_hook=_object_of)
    except RecursionError:
        raise GrammarError(TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise GrammarError(
            f"{what} is not JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from None
    waiting = [("#", value)] if isinstance(value, dict | list) else []
    while waiting:
        pointer, part = waiting.pop()
        if isinstance(part, _Repeating):
            raise GrammarError(f"the key {part.key!r} comes twice in one object", pointer=pointer)
        items = part.items() if isinstance(part, dict) else enumerate(part)
        waiting += [
            (f"{pointer}/{escape(str(k))}", v) for k, v in items if isinstance(v, dict | list)
        ]
    return value


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else _Repeating(pairs)
