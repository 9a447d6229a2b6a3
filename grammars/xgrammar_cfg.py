"""Context-free grammars for xgrammar: what it may read, and its complaints with their place."""

from __future__ import annotations

import re

import xgrammar

from structspec.constraint import Grammar
from structspec.errors import GrammarError
from structspec.grammars.base import Finding, Report
from structspec.grammars.cfg import check_lark, dialect_of, place
from structspec.grammars.ebnf import repeats_of_themselves, unproductive
from structspec.grammars.ebnf_text import prepare_ebnf
from structspec.grammars.lark_checks import check_productive
from structspec.grammars.lark_reader import inline_json
from structspec.grammars.lark_regexes import prepare_lark, without_regexes

_LOCATION = re.compile(r"\[[\d:]+\] \S+:\d+: ")  # in the library's own source; may be nested
_PLACE = re.compile(r"at line (\d+), column (\d+): (.*)")
_NO_JSON = "JSON inside a grammar is written with llguidance only"


def lower_grammar(constraint: Grammar) -> tuple[str, Report]:
    """The text that xgrammar is to read, and the report; raises GrammarError with the place."""
    text = constraint.text
    if dialect_of(constraint) == "ebnf":
        text = prepare_ebnf(text)
    else:
        check_lark(text)
        check_productive(text)
        if inline_json(text):
            return text, Report("xgrammar", refused=(Finding("", "%json", _NO_JSON),))
        text = prepare_lark(text)
    return text, Report("xgrammar", enforced=(Finding("", "grammar"),))


def build_grammar(constraint: Grammar, prepared: str) -> xgrammar.Grammar:
    """Have xgrammar read the text; no tables yet. Raises GrammarError, mostly with the place."""
    try:
        return _build(constraint, prepared)
    except RuntimeError as error:
        raise grammar_error(str(error)) from None
    except UnicodeDecodeError as error:  # its words end in the middle of a character
        raise grammar_error(error.object.decode(errors="ignore")) from None


def grammar_error(message: str) -> GrammarError:
    """xgrammar's words about a bad grammar, with their line and column where it tells them."""
    text = without_location(message)
    if match := _PLACE.search(text):
        return GrammarError(match[3].strip(), line=int(match[1]), column=int(match[2]))
    return GrammarError(text)


def without_location(message: str) -> str:
    """xgrammar's words without the places in its own source."""
    return _LOCATION.sub("", message.strip())


def _build(constraint: Grammar, prepared: str) -> xgrammar.Grammar:
    text = constraint.text
    is_lark = dialect_of(constraint) == "lark"
    read = xgrammar.Grammar.from_lark if is_lark else xgrammar.Grammar.from_ebnf
    if prepared != text:  # for errors with the places that the user knows
        read(without_regexes(text) if is_lark else text)
    grammar = read(prepared)
    if is_lark:
        return _without_crash(grammar, text)
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
