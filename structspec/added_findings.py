"""A compiled grammar whose report also tells what only the caller's Python type checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from structspec.grammars.base import (
    BatchMatching,
    CompiledGrammar,
    Finding,
    Matcher,
    Packed,
    Report,
)


def with_unheld(report: Report, unheld: Sequence[Finding]) -> Report:
    """The report with these findings among what is approximated."""
    return replace(report, approximated=(*report.approximated, *unheld)) if unheld else report


class GrammarWithFindings:
    """The same grammar under a longer report: grammars are shared, types are not."""

    def __init__(self, grammar: CompiledGrammar, unheld: Sequence[Finding]) -> None:
        self._grammar = grammar
        self.report = with_unheld(grammar.report, unheld)
        self.wide_row = grammar.wide_row
        self.start_row = grammar.start_row

    @property
    def compile_ms(self) -> float:
        """How long compiling took, in milliseconds."""
        return self._grammar.compile_ms

    @property
    def num_bytes(self) -> int:
        """About how much memory its tables take."""
        return self._grammar.num_bytes

    @property
    def backend(self) -> BatchMatching:
        """The backend that made it."""
        return self._grammar.backend

    def expect(self) -> None:
        """Say that a matcher will be asked for soon."""
        self._grammar.expect()

    def matcher(self) -> Matcher:
        """A matcher at the start of the text; cheap."""
        return self._grammar.matcher()

    def pack(self) -> Packed | None:
        """The grammar as bytes, without the findings of one caller."""
        return self._grammar.pack()
