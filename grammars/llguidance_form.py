"""Forms in llguidance's Lark: a terminal for each run, rules for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError
from structspec.grammars.base import Finding, Report
from structspec.grammars.boundaries import find_losses
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
    is_regular,
)
from structspec.grammars.form_reading import is_readable
from structspec.grammars.json.lark import write_document, write_json
from structspec.grammars.lark_reader import tokens_of
from structspec.grammars.lark_text import LarkText, literal
from structspec.grammars.llguidance_cfg import LarkGrammar, lower_lark
from structspec.grammars.placing import placed, within
from structspec.grammars.regex import read_regex
from structspec.grammars.regexes.lark import to_lark
from structspec.grammars.runs import group

_ANY = "/(?s:.*)/"
_REPEATS = "a key may come twice where its name is free; text is validated afterwards"
_EBNF = "EBNF cannot stand inside llguidance's grammar; xgrammar reads it"


def lower_form(form: Form, special_tokens: Mapping[str, int]) -> tuple[str, Report]:
    """A form as LLMatcher reads it, and what became of its parts.

    `special_tokens` are the vocabulary's ids by name; GrammarErrors carry the part's pointer.
    """
    grouped = group(_without_markers(form, special_tokens))
    writer = _Writer(LarkText(), special_tokens, is_readable(form))
    start = writer.rule(grouped)
    changes = tuple(f"{loss.pointer or '#'}: {loss.reason}" for loss in find_losses(grouped))
    report = Report(
        "llguidance",
        tuple(writer.enforced),
        tuple(writer.approximated),
        tuple(writer.refused),
        tuple(dict.fromkeys((*writer.changes, *changes))),
    )
    grammar = LarkGrammar(writer.lark.text(start), writer.parts, report)
    return grammar.to_llguidance(), report


def special_token_ids(grammar: str) -> frozenset[int]:
    """The special tokens that a grammar of `lower_form` names; users' grammars name none."""
    if "<[" not in grammar or not grammar.startswith('{"grammars":'):
        return frozenset()
    text = json.loads(grammar)["grammars"][0].get("lark_grammar") or ""
    named = (token.text for token in tokens_of(text) if token.kind == "special")
    return frozenset(int(name.strip("<[]>")) for name in named)


def _without_markers(form: Form, special_tokens: Mapping[str, int]) -> Form:
    """The form with markers that the vocabulary has no token for as plain text."""
    match form:
        case Marker() if form.name not in special_tokens and not form.is_token_only:
            return Text(form.name, form.pointer)
        case Sequence() | Either():
            parts = tuple(_without_markers(part, special_tokens) for part in form.parts)
            return replace(form, parts=parts)
        case Repeat():
            return replace(form, part=_without_markers(form.part, special_tokens))
        case _:
            return form


@dataclass(slots=True)
class _Writer:
    """A form on its way into Lark text, and the findings made on the way."""

    lark: LarkText
    special_tokens: Mapping[str, int]
    is_validated: bool  # every JSON is held to its schema once the text is finished
    enforced: list[Finding] = field(default_factory=list)
    approximated: list[Finding] = field(default_factory=list)
    refused: list[Finding] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)  # grammars that rules name
    written: dict[Json, str] = field(default_factory=dict)  # the rules of schemas

    def rule(self, form: Form) -> str:
        """A rule body for a form."""
        if is_regular(form):
            return self.lark.terminal(self._terminal(form))
        match form:
            case Json():
                return self._json(form)
            case Cfg():
                return self._cfg(form)
            case Marker() if form.name not in self.special_tokens:
                reason = f"the vocabulary has no special token {form.name}"
                self.refused.append(Finding(form.pointer, "token", reason))
                return '""'
            case Marker():
                self._enforce(form, "token")
                return f"<[{self.special_tokens[form.name]}]>"
            case Sequence():
                return " ".join(self._atom(part) for part in form.parts)
            case Either():
                return " | ".join(self._atom(part) for part in form.parts)
            case Repeat():
                return f"{self._atom(form.part)}{_count(form)}"
            case _:
                raise AssertionError("runs are terminals")

    def _atom(self, form: Form) -> str:
        """A rule body that an operator or a neighbour may stand beside."""
        body = self.rule(form)
        return f"({body})" if " " in body and not body.startswith("<") else body

    def _terminal(self, run: Form) -> str:
        """A terminal body: a regular expression of Lark, in brackets where it needs them."""
        match run:
            case Text():
                return literal(run.text) if run.text else '""'
            case Pattern():
                self._enforce(run, "regex")
                return _regex(run)
            case AnyText():
                self._enforce(run, "any_text")
                return _any_text(run)
            case Sequence():
                return " ".join(self._terminal(part) for part in run.parts) or '""'
            case Either():
                return f"({' | '.join(self._terminal(part) for part in run.parts)})"
            case Repeat():
                return f"({self._terminal(run.part)}){_count(run)}"
            case _:
                raise AssertionError("no part of a run")

    def _enforce(self, form: Form, keyword: str) -> None:
        self.enforced.append(Finding(form.pointer, keyword))

    def _json(self, form: Json) -> str:
        name = self.written.get(form)
        if name is None:
            try:
                name, report = self._schema(form.constraint)
            except GrammarError as error:
                raise placed(error, form.pointer) from None
            self.written[form] = name
            self._take(report, form.pointer)
        return name

    def _schema(self, constraint: JsonSchema) -> tuple[str, Report]:
        if not self.is_validated:
            return write_json(self.lark, constraint)
        written = write_document(self.lark, constraint)
        if not written.has_free_keys:
            return written.rule, written.report
        finding = Finding("#", "additionalProperties", _REPEATS)
        approximated = (*written.report.approximated, finding)
        return written.rule, replace(written.report, approximated=approximated)

    def _cfg(self, form: Cfg) -> str:
        dialect = dialect_of(form.constraint)
        try:
            if dialect == "ebnf":
                self.refused.append(Finding(form.pointer, "grammar", _EBNF))
                return '""'
            grammar = lower_lark(form.constraint.text, f"part_{len(self.parts)}")
        except GrammarError as error:
            raise placed(error, form.pointer, dialect) from None
        self._take(grammar.report, form.pointer)
        self.parts |= grammar.parts
        name = f"grammar_{len(self.parts)}"
        self.parts[name] = grammar.text
        return f"@{name}"

    def _take(self, report: Report, pointer: str) -> None:
        """The findings on a part."""
        self.enforced += (within(pointer, finding) for finding in report.enforced)
        self.approximated += (within(pointer, finding) for finding in report.approximated)
        self.refused += (within(pointer, finding) for finding in report.refused)
        self.changes += (f"{pointer or '#'}: {change}" for change in report.changes)


def _regex(run: Pattern) -> str:
    try:
        return to_lark(read_regex(run.pattern, may_be_empty=True), quoted=False)
    except GrammarError as error:
        raise placed(error, run.pointer, "regex") from None


def _any_text(run: AnyText) -> str:
    body = _ANY if run.max_chars is None else f"/(?s:.{{0,{run.max_chars}}})/"
    if not run.excludes:
        return body
    strings = " | ".join(literal(exclude) for exclude in run.excludes)
    return f"({body} & ~({_ANY} ({strings}) {_ANY}))"


def _count(repeat: Repeat) -> str:
    bounds = (repeat.minimum, repeat.maximum)
    known = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if bounds in known:
        return known[bounds]
    return f"{{{repeat.minimum},{'' if repeat.maximum is None else repeat.maximum}}}"
