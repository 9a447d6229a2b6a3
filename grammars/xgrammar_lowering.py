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
from structspec.grammars.cfg import check_lark, dialect_of, place
from structspec.grammars.choice import check_choices
from structspec.grammars.composition import form_of
from structspec.grammars.ebnf import is_productive, repeats_of_themselves, unproductive
from structspec.grammars.ebnf_text import prepare_ebnf
from structspec.grammars.lark_checks import check_productive
from structspec.grammars.lark_reader import inline_json
from structspec.grammars.regex import translate
from structspec.grammars.xgrammar_form import lower_form
from structspec.grammars.xgrammar_json import lower_json

_LOCATION = re.compile(r"\[[\d:]+\] \S+:\d+: ")  # in the library's own source; may be nested
_PLACE = re.compile(r"at line (\d+), column (\d+): (.*)")
_POSITION = re.compile(r".* at position \d+: ")


@dataclass(frozen=True, slots=True)
class Lowered:
    """How to build the grammar, and the report; only built where nothing is refused."""

    build: Callable[[], xgrammar.Grammar]
    report: Report


def lower(constraint: Constraint) -> Lowered:
    """Translate any constraint; raises GrammarError where it is wrong."""
    match constraint:
        case JsonSchema():
            return Lowered(*lower_json(constraint))
        case Regex():
            pattern = translate(constraint.pattern)
            return _exact(lambda: xgrammar.Grammar.from_regex(pattern), "regex")
        case Choice():
            ebnf = _choices_to_ebnf(check_choices(constraint))
            return _exact(lambda: xgrammar.Grammar.from_ebnf(ebnf), "choice")
        case Grammar():
            text = constraint.text
            if dialect_of(constraint) == "ebnf":
                prepared = prepare_ebnf(text)
                return _exact(lambda: _from_ebnf(text, prepared), "grammar")
            check_lark(text)
            check_productive(text)
            if inline_json(text):
                refusal = "JSON inside a grammar is written with llguidance only"
                finding = Finding("", "%json", refusal)
                return Lowered(_nothing, Report("xgrammar", refused=(finding,)))
            return _exact(lambda: _without_crash(xgrammar.Grammar.from_lark(text), text), "grammar")
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
    text = _LOCATION.sub("", message.strip())
    if isinstance(constraint, Regex):
        reason = _POSITION.sub("", text).strip()  # a place in what it makes of the pattern
        return UnsupportedConstraint(f"xgrammar cannot read the regex: {reason}")
    if match := _PLACE.search(text):
        return GrammarError(match[3].strip(), line=int(match[1]), column=int(match[2]))
    if isinstance(constraint, JsonSchema):
        return UnsupportedConstraint(f"xgrammar refuses the schema: {text}", pointer="#")
    return GrammarError(text)


def _nothing() -> xgrammar.Grammar:
    raise AssertionError("what is refused is not built")


def _from_ebnf(text: str, prepared: str) -> xgrammar.Grammar:
    if prepared != text:
        xgrammar.Grammar.from_ebnf(text)  # errors have the places that the user knows
    grammar = xgrammar.Grammar.from_ebnf(prepared)
    return _without_crash(_productive(grammar, text), text)


def _productive(grammar: xgrammar.Grammar, text: str) -> xgrammar.Grammar:
    """The grammar of EBNF text; GrammarError, with its line, for a rule that no text ends."""
    for name in unproductive(str(grammar)):
        if _rule(name, text) is not None:
            raise _endless(name, text)
    return grammar


def _without_crash(grammar: xgrammar.Grammar, text: str) -> xgrammar.Grammar:
    """The grammar; GrammarError where compiling it would end the process."""
    for name in repeats_of_themselves(str(grammar)):
        raise _endless(name, text)
    return grammar


def _endless(name: str, text: str) -> GrammarError:
    rule = _rule(name, text)
    line, column = (None, None) if rule is None else place(text, rule.start())
    written = name if rule is None else rule["name"]
    return GrammarError(
        f"no text ends the rule {written!r}: it recurses for ever", line=line, column=column
    )


def _rule(name: str, text: str) -> re.Match[str] | None:
    """Where a rule is defined; the root may be Lark's `start`."""
    names = "root|start" if name == "root" else re.escape(name)
    return re.search(rf"^[ \t]*[?!]*(?P<name>{names})[ \t]*:", text, re.MULTILINE)


def _exact(build: Callable[[], xgrammar.Grammar], keyword: str) -> Lowered:
    return Lowered(build, Report("xgrammar", enforced=(Finding("", keyword),)))


def _choices_to_ebnf(choices: tuple[str, ...]) -> str:
    return "root ::= " + " | ".join(f'"{_ebnf_literal(choice)}"' for choice in choices)


def _ebnf_literal(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in text)
