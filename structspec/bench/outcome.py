"""What became of one constraint in one column."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Literal, get_args

from structspec.grammars.base import Report

Verdict = Literal["crash", "under", "over", "approximated", "refused", "right", "untested"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # from worst to best

_NUM_SHOWN = 3  # offending instances kept of one case


@dataclass(frozen=True, slots=True)
class Offence:
    """One instance that went wrong, and how."""

    verdict: Verdict
    text: str
    reason: str


@dataclass(slots=True)
class Outcome:
    """The verdict on one case, what led to it, and what it cost."""

    case_id: str
    verdict: Verdict = "untested"
    message: str = ""
    offences: list[Offence] = field(default_factory=list)
    report: Report | None = None
    compile_ms: float | None = None
    mask_us: array[float] = field(default_factory=lambda: array("f"))

    @property
    def is_exact(self) -> bool:
        """Whether the column said that the mask holds everything."""
        return self.report is not None and self.report.exact

    def note(self, offence: Offence | None) -> None:
        """Count one instance, None if it was right: the worst verdict stays."""
        verdict: Verdict = "right" if offence is None else offence.verdict
        self.verdict = min(self.verdict, verdict, key=VERDICTS.index)
        if offence is not None:
            ranked = sorted((*self.offences, offence), key=lambda o: VERDICTS.index(o.verdict))
            self.offences = ranked[:_NUM_SHOWN]

    def fail(self, verdict: Verdict, message: str) -> None:
        """End with a verdict on the whole case."""
        self.verdict, self.message = verdict, message
