"""Constraints that are made of parts: their form, and the library that can hold all of it."""

from __future__ import annotations

import re

from structspec.constraint import Grammar, StructuralTag, Tools
from structspec.errors import GrammarError
from structspec.grammars.boundaries import find_losses
from structspec.grammars.cfg import dialect_of
from structspec.grammars.form import Cfg, Form, Marker, leaves
from structspec.grammars.lark_losses import find_losses as find_grammar_losses
from structspec.grammars.lark_regexes import prepare_lark
from structspec.grammars.runs import group
from structspec.grammars.structural_tag import read_tag
from structspec.grammars.tools import read_tools

# directives, parameters, options of rules, terminals with `&` and `~`: what xgrammar's Lark lacks
_ONLY_LLGUIDANCE = re.compile(r"%|::|^[\w?!]+\s*\[|&|~\s*\D|@", re.MULTILINE)


def form_of(constraint: StructuralTag | Tools) -> Form:
    """The form; raises GrammarError with a pointer into the constraint."""
    if isinstance(constraint, StructuralTag):
        return read_tag(constraint)
    return read_tools(constraint)


def needs_xgrammar(constraint: Grammar | StructuralTag | Tools) -> str:
    """Why llguidance cannot write every text where xgrammar may; "" where it can."""
    if isinstance(constraint, Grammar):
        return _grammar_needs_xgrammar(constraint)
    form = form_of(constraint)
    parts = leaves(form)
    if any(isinstance(part, Cfg) and dialect_of(part.constraint) == "ebnf" for part in parts):
        return "of the backends only xgrammar reads EBNF"
    if any(isinstance(part, Marker) for part in parts):
        return ""  # xgrammar's wrapper writes text only
    grammars = [part.constraint.text for part in parts if isinstance(part, Cfg)]
    if not all(map(_is_read_by_xgrammar, grammars)):
        return ""
    losses = find_losses(group(form))
    return f"llguidance cannot write every text: {losses[0].reason}" if losses else ""


def _grammar_needs_xgrammar(constraint: Grammar) -> str:
    if dialect_of(constraint) == "ebnf":
        return "of the backends only xgrammar reads EBNF"
    if _ONLY_LLGUIDANCE.search(constraint.text):
        return ""
    lost = find_grammar_losses(constraint.text)
    if not lost or not _is_read_by_xgrammar(constraint.text):
        return ""
    return f"llguidance cannot write every text: {lost[0]}"


def _is_read_by_xgrammar(text: str) -> bool:
    """Whether Lark text has only what that library knows, as far as can be told without it."""
    if _ONLY_LLGUIDANCE.search(text):
        return False
    try:
        prepare_lark(text)
    except GrammarError:
        return False
    return True
