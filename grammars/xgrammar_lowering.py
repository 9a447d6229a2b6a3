"""From a constraint to xgrammar, refusing what that library is known to lose without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import xgrammar

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
from structspec.grammars.choice import check_choices
from structspec.grammars.composition import form_of
from structspec.grammars.ebnf import is_productive
from structspec.grammars.regex import read_plain
from structspec.grammars.xgrammar_cfg import (
    build_grammar,
    grammar_error,
    lower_grammar,
    without_location,
)
from structspec.grammars.xgrammar_form import lower_form
from structspec.grammars.xgrammar_json import lower_json
from structspec.grammars.xgrammar_regexes import regex_grammar

_POSITION = re.compile(r".* at position \d+: ")


@dataclass(frozen=True, slots=True)
class Lowered:
    """How to build the grammar, and the report; only built where nothing is refused."""

    build: Callable[[], xgrammar.Grammar]
    report: Report
    has_free_keys: bool = False  # keys that the grammar alone lets come twice


def lower(constraint: Constraint) -> Lowered:
    """Translate any constraint; raises GrammarError where it is wrong."""
    match constraint:
        case JsonSchema():
            return Lowered(*lower_json(constraint))
        case Regex():
            ebnf = regex_grammar(read_plain(constraint.pattern))
            return _exact(lambda: xgrammar.Grammar.from_ebnf(ebnf), "regex")
        case Choice():
            ebnf = _choices_to_ebnf(check_choices(constraint))
            return _exact(lambda: xgrammar.Grammar.from_ebnf(ebnf), "choice")
        case Grammar():
            text, report = lower_grammar(constraint)
            if report.refused:
                return Lowered(_nothing, report)
            return Lowered(lambda: build_grammar(constraint, text), report)
        case StructuralTag() | Tools():
            return Lowered(*lower_form(form_of(constraint)))


def check_finite(grammar: str) -> None:
    """Raise GrammarError where the grammar has no finite text; xgrammar would walk for ever."""
    if not is_productive(grammar):
        raise GrammarError(
            "no finite text satisfies this grammar: it recurses for ever, or a part matches nothing"
        )


def translate_error(message: str, constraint: Constraint) -> GrammarError:
    """xgrammar's words about a bad grammar, with their line and column where it tells them."""
    text = without_location(message)
    if isinstance(constraint, Regex):
        reason = _POSITION.sub("", text).strip()  # a place in what it makes of the pattern
        return UnsupportedConstraint(f"xgrammar cannot read the regex: {reason}")
    if isinstance(constraint, JsonSchema):
        return UnsupportedConstraint(f"xgrammar refuses the schema: {text}", pointer="#")
    return grammar_error(message)


def _nothing() -> xgrammar.Grammar:
    raise AssertionError("what is refused is not built")


def _exact(build: Callable[[], xgrammar.Grammar], keyword: str) -> Lowered:
    return Lowered(build, Report("xgrammar", enforced=(Finding("", keyword),)))


def _choices_to_ebnf(choices: tuple[str, ...]) -> str:
    return "root ::= " + " | ".join(f'"{_ebnf_literal(choice)}"' for choice in choices)


def _ebnf_literal(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in text)
