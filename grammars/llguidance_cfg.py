"""Lark grammars for llguidance: checked, and the JSON schemas inside lowered by our own rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from structspec.errors import GrammarError
from structspec.grammars.base import Finding, Report
from structspec.grammars.cfg import check_lark, place
from structspec.grammars.inline_json import inline_constraint
from structspec.grammars.json.lark import write_json
from structspec.grammars.lark_checks import check_productive
from structspec.grammars.lark_losses import find_losses
from structspec.grammars.lark_negation import keep_to_text
from structspec.grammars.lark_reader import InlineJson, inline_json, tokens_of
from structspec.grammars.lark_text import LarkText

_IGNORED = "what %ignore allows is written behind JSON, not before it"


@dataclass(frozen=True, slots=True)
class LarkGrammar:
    """Lark text, and the grammars it names as `@name`."""

    text: str
    parts: dict[str, str]
    report: Report

    def to_llguidance(self) -> str:
        """The grammar as LLMatcher reads it."""
        parts = [{"name": name, "lark_grammar": text} for name, text in self.parts.items()]
        return json.dumps({"grammars": [{"lark_grammar": self.text}, *parts]})


def lower_lark(text: str, prefix: str = "json") -> LarkGrammar:
    """A grammar of the user's; raises GrammarError with line and column.

    Lines stay where they are, so that llguidance's own complaints name the right ones. `prefix`
    begins the names of its parts.
    """
    check_lark(text)
    check_productive(text)
    parts: dict[str, str] = {}
    written: list[str] = []
    changes = find_losses(text)
    inlined = inline_json(text)
    if inlined and "%ignore" in (token.text for token in tokens_of(text)):
        changes += (_IGNORED,)
    report = Report("llguidance", (Finding("", "grammar"),), changes=changes)
    position = 0
    for number, inline in enumerate(inlined):
        name = f"{prefix}_{number}"
        lark = LarkText()
        start, part = _write(text, inline, lark)
        parts[name] = lark.text(start)
        report = _joined(report, part, place(text, inline.start)[0])
        written += [text[position : inline.start], _reference(name, text, inline)]
        position = inline.end
    return LarkGrammar(keep_to_text("".join(written) + text[position:]), parts, report)


def _write(text: str, inline: InlineJson, lark: LarkText) -> tuple[str, Report]:
    try:
        return write_json(lark, inline_constraint(inline.schema))
    except GrammarError as error:
        line, column = place(text, inline.start)
        raise type(error)(f"%json, {error}", line=line, column=column) from None


def _reference(name: str, text: str, inline: InlineJson) -> str:
    """The name of a part, on as many lines as what it stands for."""
    num_lines = text.count("\n", inline.start, inline.end)
    return f"%lark {{start: @{name}{chr(10) * num_lines}}}" if num_lines else f"@{name}"


def _joined(whole: Report, part: Report, line: int) -> Report:
    """The report with that on a `%json`, whose findings say in which line it stands."""

    def at(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(
            replace(finding, reason=f"%json in line {line}: {finding.reason or 'as written'}")
            for finding in findings
        )

    return replace(
        whole,
        enforced=whole.enforced + at(part.enforced),
        approximated=whole.approximated + at(part.approximated),
        refused=whole.refused + at(part.refused),
        changes=whole.changes + tuple(f"line {line}: {change}" for change in part.changes),
    )
