"""From a constraint to llguidance's own grammar text, with a report of what became of each part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llguidance import LLMatcher

from structspec.constraint import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    StructuralTag,
    Tools,
)
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import Finding, Report
from structspec.grammars.cfg import dialect_of
from structspec.grammars.choice import check_choices
from structspec.grammars.composition import form_of
from structspec.grammars.json.lark import write_document
from structspec.grammars.lark_text import LarkText, literal
from structspec.grammars.llguidance_cfg import lower_lark
from structspec.grammars.llguidance_form import lower_form
from structspec.grammars.regex import read_regex
from structspec.grammars.regexes.lark import to_lark

_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A grammar as LLMatcher reads it; only of use where the report refuses nothing."""

    grammar: str
    report: Report
    has_free_keys: bool = False


def lower(constraint: Constraint, special_tokens: Mapping[str, int] | None = None) -> Lowered:
    """Translate any constraint; raises GrammarError where it is wrong.

    `special_tokens` are ids by name, for the tool calls of families that write them.
    """
    match constraint:
        case JsonSchema():
            text = LarkText()
            json = write_document(text, constraint)
            lark = text.text(json.rule)
            return Lowered(LLMatcher.grammar_from_lark(lark), json.report, json.has_free_keys)
        case Regex():
            terminal = to_lark(read_regex(constraint.pattern), quoted=False)
            return _terminal(terminal, "regex")
        case Choice():
            # alternatives of one terminal, so that no choice is cut short by another
            return _terminal(" | ".join(map(literal, check_choices(constraint))), "choice")
        case Grammar():
            if dialect_of(constraint) == "ebnf":
                refusal = "llguidance reads Lark, not EBNF; use backend 'xgrammar' or 'auto'"
                return Lowered("", Report("llguidance", refused=(Finding("", "grammar", refusal),)))
            grammar = lower_lark(constraint.text)
            return Lowered(grammar.to_llguidance(), grammar.report)
        case StructuralTag() | Tools():
            return Lowered(*lower_form(form_of(constraint), special_tokens or {}))


def grammar_error(message: str) -> GrammarError:
    """llguidance's words about a bad grammar, with their line and column."""
    first = message.split("<non-verbose/>")[0].strip()
    if first.startswith("panic:"):
        message = "the constraint makes a larger grammar than llguidance takes; split it"
        return UnsupportedConstraint(message)
    if match := _PLACE.match(first):
        text = match[3].split("error: ")[-1].split("\n")[0]
        return GrammarError(text.strip(), line=int(match[1]), column=int(match[2]))
    return GrammarError(first)


def _terminal(body: str, keyword: str) -> Lowered:
    """A grammar of one terminal, which holds all of the constraint."""
    lark = LarkText()
    grammar = LLMatcher.grammar_from_lark(lark.text(lark.terminal(body)))
    return Lowered(grammar, Report("llguidance", enforced=(Finding("", keyword),)))
