"""Forms for xgrammar: its structural tags, with the JSON inside lowered by our own rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import xgrammar

from structspec.errors import GrammarError
from structspec.grammars.base import Finding, Report
from structspec.grammars.cfg import dialect_of
from structspec.grammars.form import (
    AnyText,
    Cfg,
    Either,
    Form,
    Json,
    Marker,
    Pattern,
    Repeat,
    Sequence,
    Text,
)
from structspec.grammars.placing import placed, within
from structspec.grammars.regex import read_plain
from structspec.grammars.regexes.syntax import EMPTY
from structspec.grammars.xgrammar_cfg import build_grammar, lower_grammar
from structspec.grammars.xgrammar_json import lower_json
from structspec.grammars.xgrammar_regexes import regex_grammar

_NO_TOKENS = "special tokens are written with llguidance only"


def lower_form(form: Form) -> tuple[Callable[[], xgrammar.Grammar], Report]:
    """How to build the grammar of a form, and the report; GrammarErrors carry their pointer."""
    writer = _Writer()
    tag = writer.format(form)
    report = Report(
        "xgrammar",
        tuple(writer.enforced),
        tuple(writer.approximated),
        tuple(writer.refused),
        tuple(dict.fromkeys(writer.changes)),
    )
    return lambda: _build(tag), report


def _build(tag: dict[str, Any]) -> xgrammar.Grammar:
    return xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": tag})


@dataclass(slots=True)
class _Writer:
    """A form on its way into a structural tag, and the findings made on the way."""

    enforced: list[Finding] = field(default_factory=list)
    approximated: list[Finding] = field(default_factory=list)
    refused: list[Finding] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def format(self, form: Form) -> dict[str, Any]:
        match form:
            case Text():
                return {"type": "const_string", "value": form.text}
            case AnyText():
                self.enforced.append(Finding(form.pointer, "any_text"))
                excludes = list(form.excludes)
                return {"type": "any_text", "excludes": excludes, "max_chars": form.max_chars}
            case Pattern():
                return self._regex(form)
            case Json():
                return self._json(form)
            case Cfg():
                return self._cfg(form)
            case Marker():
                self.refused.append(Finding(form.pointer, "token", _NO_TOKENS))
                return _EMPTY
            case Sequence():
                return {"type": "sequence", "elements": [self.format(p) for p in form.parts]}
            case Either():
                return {"type": "or", "elements": [self.format(p) for p in form.parts]}
            case Repeat():
                maximum = -1 if form.maximum is None else form.maximum
                content = self.format(form.part)
                bounds = {"min": form.minimum, "max": maximum}
                return {"type": "repeat", **bounds, "content": content}

    def _regex(self, form: Pattern) -> dict[str, Any]:
        try:
            regex = read_plain(form.pattern, may_be_empty=True)
        except GrammarError as error:
            raise placed(error, form.pointer, "regex") from None
        self.enforced.append(Finding(form.pointer, "regex"))
        return _EMPTY if regex is EMPTY else {"type": "grammar", "grammar": regex_grammar(regex)}

    def _json(self, form: Json) -> dict[str, Any]:
        try:
            build, report, has_free_keys = lower_json(form.constraint)
        except GrammarError as error:
            raise placed(error, form.pointer) from None
        self.enforced += (within(form.pointer, finding) for finding in report.enforced)
        self.approximated += (within(form.pointer, finding) for finding in report.approximated)
        if has_free_keys:  # in other text nobody follows the keys
            self.approximated.append(Finding(form.pointer, "json", "a free key may come twice"))
        self.refused += (within(form.pointer, finding) for finding in report.refused)
        self.changes += (f"{form.pointer or '#'}: {change}" for change in report.changes)
        if report.refused:
            return _EMPTY
        return {"type": "grammar", "grammar": str(build())}

    def _cfg(self, form: Cfg) -> dict[str, Any]:
        dialect = dialect_of(form.constraint)
        try:
            text, report = lower_grammar(form.constraint)
            if not report.refused:
                build_grammar(form.constraint, text)  # as part of a whole its errors have no place
        except GrammarError as error:
            raise placed(error, form.pointer, dialect) from None
        self.enforced += (within(form.pointer, finding) for finding in report.enforced)
        self.refused += (within(form.pointer, finding) for finding in report.refused)
        return {"type": "grammar", "grammar": text, "syntax": dialect}


_EMPTY = {"type": "const_string", "value": ""}
