"""The verdict on one constraint: compiled, and every instance walked."""

from __future__ import annotations

import json
import re
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from structspec.bench.broken_keywords import broken_keywords
from structspec.bench.cases import Case, Instance
from structspec.bench.columns import Compiled, Refused, Subject
from structspec.bench.key_order import spellings
from structspec.bench.outcome import Offence, Outcome, Verdict
from structspec.bench.walk import Disagreement, Walked, walk
from structspec.constraint import find_half_character
from structspec.grammars.base import Report
from structspec.vocabulary import Vocabulary

# a finding of this kind excuses no instance: none repeats a key
_REPEATED_KEY = re.compile("twice|duplicate|repeat")
# what is lost inside one of these shows as an error of the keyword itself
_DECIDED_WITHIN = frozenset({"not", "contains", "if", "oneOf"})
_TAIL = 80  # characters shown around the place where a text was refused


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges cases in one column.

    `renew_limits` is called before each step: the compile and every walk have the limits anew.
    """

    subject: Subject
    vocabulary: Vocabulary
    renew_limits: Callable[[], None]

    def judge(self, case: Case) -> Outcome:
        """Compile, walk every instance, and name the worst that happened."""
        outcome = Outcome(case.id)
        try:
            self.renew_limits()
            start = time.perf_counter()
            compiled = self.subject.compile(case)
            outcome.compile_ms = (time.perf_counter() - start) * 1e3
            outcome.report = compiled.report
            for instance in case.instances:
                outcome.note(self._try(compiled, case, instance, outcome.mask_us))
        except Refused as refusal:
            outcome.fail(_verdict_on_refusal(case, refusal), str(refusal))
        except Disagreement as error:
            outcome.fail("crash", str(error))
        except Exception as error:  # whatever a library raises is its verdict
            outcome.fail("crash", f"{type(error).__name__}: {error}")
        return outcome

    def _try(
        self, compiled: Compiled, case: Case, instance: Instance, mask_us: array[float]
    ) -> Offence | None:
        """Walk one instance; None if it ends as its label says."""
        text, walked = self._walk_spellings(compiled, case, instance, mask_us)
        if walked.is_complete == instance.is_valid:
            return None
        if walked.is_complete:
            return Offence(*_verdict_on_invalid(case, instance, compiled.report, text))
        reason = self._where(text, walked)
        if self._is_accepted_raw(compiled, instance):
            reason += "; accepted where characters are not escaped"
        return Offence("over", text, reason)

    def _walk_spellings(
        self, compiled: Compiled, case: Case, instance: Instance, mask_us: array[float]
    ) -> tuple[str, Walked]:
        """The first spelling that is accepted, else the one that came furthest."""
        furthest = ("", Walked(-1, False))
        for text in spellings(case, instance):
            self.renew_limits()
            token_ids = self.vocabulary.encode_text(text)
            walked = walk(compiled.matcher(), token_ids, self.vocabulary, mask_us)
            if walked.is_complete:
                return text, walked
            if walked.num_accepted > furthest[1].num_accepted:
                furthest = (text, walked)
        return furthest

    def _where(self, text: str, walked: Walked) -> str:
        """The place at which the text was refused."""
        token_ids = self.vocabulary.encode_text(text)
        taken, left = token_ids[: walked.num_accepted], token_ids[walked.num_accepted :]
        before = self.vocabulary.decode_bytes(taken).decode(errors="replace")[-_TAIL:]
        if not left:
            return f"may not end behind {before!r}"
        refused = self.vocabulary.decode_bytes(left[:_TAIL]).decode(errors="replace")[:_TAIL]
        return f"behind {before!r} refused {refused!r}"

    def _is_accepted_raw(self, compiled: Compiled, instance: Instance) -> bool:
        r"""Whether only `\u` escapes stand in the way."""
        if instance.is_text:
            return False
        text = json.dumps(instance.data, ensure_ascii=False)
        if text.isascii() or find_half_character(text) is not None:
            return False
        token_ids = self.vocabulary.encode_text(text)
        return walk(compiled.matcher(), token_ids, self.vocabulary, array("f")).is_complete


def _verdict_on_refusal(case: Case, refusal: Refused) -> Verdict:
    """Refusing what nothing satisfies is right, if no valid instance says otherwise."""
    is_satisfied = any(instance.is_valid for instance in case.instances)
    if case.instances and not is_satisfied and refusal.is_unsatisfiable:
        return "right"
    return "refused"


def _verdict_on_invalid(
    case: Case, instance: Instance, report: Report | None, text: str
) -> tuple[Verdict, str, str]:
    """An invalid instance came through: did the report say that this keyword is not held?"""
    broken = broken_keywords(case, instance)
    breaks = f"breaks {', '.join(sorted(broken)) or 'something'}"
    if report is None or report.exact:
        return "under", text, breaks
    told = _told(report)
    if broken and not broken & told:
        names = ", ".join(sorted(told)) or "repeated keys"
        return "under", text, f"{breaks}, but approximated is {names}"
    return "approximated", text, breaks


def _told(report: Report) -> set[str]:
    """The keywords that the report says are not held, those they decide from within too."""
    lost = (*report.approximated, *report.refused)
    findings = [finding for finding in lost if not _REPEATED_KEY.search(finding.reason)]
    around = {part for finding in findings for part in finding.pointer.split("/")}
    return {finding.keyword for finding in findings} | (around & _DECIDED_WITHIN)
