r"""Strings of JSON schemas for xgrammar: our own regexes, each character in its JSON spellings.

Left to itself the library writes what a pattern or a length allows as it is, quotes, backslashes
and control characters among it, which is no JSON; or drops these from classes and literals. So it
gets a name for a pattern, and in its grammar the name is replaced:

    {"pattern": "name_0"}  ->  rule ::= Regex("name_0", json_string=true)
                           ->  rule ::= Regex("(?:[^\\x00-\\x1f\"\\\\]|\\\\...)+")
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import xgrammar

from structspec.errors import GrammarError
from structspec.grammars.base import Finding
from structspec.grammars.formats import INEXACT, format_regex
from structspec.grammars.json.own import pattern_regex
from structspec.grammars.regexes.derive import is_empty
from structspec.grammars.regexes.syntax import ANY_CHARACTER, ANYTHING, Regex, repeat
from structspec.grammars.schema_nodes import Node, types_of
from structspec.grammars.xgrammar_regexes import Body, json_string_body

_KEYWORDS = ("pattern", "format", "minLength", "maxLength")
_RAW_ONLY = "written without escapes: no quotes, backslashes or control characters"
_FREE = r"[^\0-\x1f\"\\\r\n"  # how classes of free strings begin: they are of all bytes but these
_SURROGATES = r"\ud800-\udfff"
_NAMED = re.compile(
    r'^(\S+) ::= Regex\("structspec_string_(\d+)", json_string=true\)$', re.MULTILINE
)


def string_dangers(node: Node) -> Iterator[Finding]:
    """What of a subschema's strings xgrammar cannot hold, though we write them.

    Raises GrammarError where a pattern is malformed.
    """
    schema = node.keywords()
    if "pattern" not in schema:
        return
    found = pattern_regex(schema["pattern"], f"{node.pointer}/pattern")
    if isinstance(found, Finding):
        yield found
    elif not found.is_plain:
        reason = "xgrammar holds no lookaround that needs an intersection"
        yield Finding(node.pointer, "pattern", f"{reason}; use backend 'llguidance'")
    elif is_empty(found):
        raise GrammarError("no text at all satisfies the regex", pointer=f"{node.pointer}/pattern")


def is_format_held(name: object) -> bool:
    """Whether the mask holds a format to the letter."""
    regex = format_regex(name) if isinstance(name, str) else None
    return regex is not None and regex.is_plain and name not in INEXACT


@dataclass(slots=True)
class Strings:
    """The bodies of the rules for all strings of a schema that say more than `type`."""

    bodies: list[Body] = field(default_factory=list)
    notes: dict[tuple[str, str], str] = field(default_factory=dict)  # by pointer and keyword

    def name_all(self, nodes: Iterable[Node]) -> None:
        """Put names in the place of what is said of strings, in the schema itself."""
        for node in nodes:
            schema = node.keywords()
            regex = _regex_of(schema)
            if regex is None:
                continue
            body = json_string_body(regex)
            for keyword in _KEYWORDS:
                if schema.pop(keyword, None) is not None and not body.has_escapes:
                    self.notes[node.pointer, keyword] = _RAW_ONLY
            if regex is not ANYTHING:
                schema["pattern"] = f"structspec_string_{len(self.bodies)}"
                self.bodies.append(body)

    def noted(self, finding: Finding) -> Finding:
        """A finding, with what is to be said of its string."""
        reason = self.notes.get((finding.pointer, finding.keyword), finding.reason)
        return replace(finding, reason=reason)

    def put_in(self, grammar: xgrammar.Grammar) -> xgrammar.Grammar:
        """The grammar of the schema, its names replaced."""
        text = str(grammar)
        for name, index in _NAMED.findall(text):
            if count := self.bodies[int(index)].count:
                text = text.replace(f'"\\"" {name} "\\""', f'"\\"" {name}{count} "\\""')
        text = _NAMED.sub(lambda match: f"{match[1]} ::= {self.bodies[int(match[2])].text}", text)
        assert 'Regex("structspec_string_' not in text
        return xgrammar.Grammar.from_ebnf(text.replace(_FREE, _FREE + _SURROGATES))


def _regex_of(schema: dict[str, Any]) -> Regex | None:
    """What a subschema says of strings; None where it is nothing, or left to the library."""
    types = types_of(schema)
    if types is None or "string" not in types:
        return None
    if "pattern" in schema:
        regex = pattern_regex(schema["pattern"], "#")
        assert not isinstance(regex, Finding)
        return regex
    if "format" in schema:
        named = format_regex(schema["format"])
        return named if named is not None and named.is_plain else None
    low, high = int(schema.get("minLength", 0)), schema.get("maxLength")
    if ("minLength" not in schema and high is None) or (high is not None and low > high):
        return None  # of the impossible the library says what is wrong
    return repeat(ANY_CHARACTER, low, None if high is None else int(high))
