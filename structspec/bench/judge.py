"""The verdict on one constraint: every instance walked, counted once, the worst first."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from structspec.bench.broken_keywords import broken_keywords
from structspec.bench.cases import Case, Instance
from structspec.bench.columns import Compiled, Refused, Subject
from structspec.bench.key_order import spellings
from structspec.bench.walk import Disagreement, Walked, walk
from structspec.constraint import find_half_character
from structspec.grammars.base import Report
from structspec.vocabulary import Vocabulary

Verdict = Literal["crash", "under", "over", "approximated", "refused", "right", "untested"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # from worst to best

_NUM_SHOWN = 3  # offending instances kept of one case
_TAIL = 80  # characters shown in front of where a text was refused


@dataclass(frozen=True, slots=True)
class Offence:
    """One instance that went wrong: what it should have been, and where it ended."""

    verdict: Verdict
    text: str
    reason: str


@dataclass(slots=True)
class Outcome:
    """What became of one case in one column."""

    case_id: str
    verdict: Verdict
    message: str = ""
    offences: list[Offence] = field(default_factory=list)
    report: Report | None = None
    compile_ms: float | None = None
    mask_us: array[float] = field(default_factory=lambda: array("f"))

    @property
    def is_exact(self) -> bool:
        """Whether the column said that the mask holds everything."""
        return self.report is not None and self.report.exact


def judge(
    subject: Subject, case: Case, vocabulary: Vocabulary, renew_limits: Callable[[], None]
) -> Outcome:
    """Compile, walk every instance, and name the worst that happened.

    `renew_limits` is called before each step: the compile and every walk have the limits anew.
    """
    outcome = Outcome(case.id, "untested")
    try:
        renew_limits()
        start = time.perf_counter()
        compiled = subject.compile(case)
        outcome.compile_ms = (time.perf_counter() - start) * 1e3
        outcome.report = compiled.report
        for instance in case.instances:
            _try_instance(compiled, case, instance, vocabulary, renew_limits, outcome)
    except Refused as refusal:
        outcome.message = str(refusal)
        outcome.verdict = _verdict_on_refusal(case, refusal)
    except Disagreement as error:
        outcome.verdict, outcome.message = "crash", str(error)
    except Exception as error:  # whatever a library raises is its verdict, told in the message
        outcome.verdict, outcome.message = "crash", f"{type(error).__name__}: {error}"
    return outcome


def worst(verdicts: list[Verdict]) -> Verdict:
    """The first of them in the order of VERDICTS."""
    return min(verdicts, key=VERDICTS.index)


def _verdict_on_refusal(case: Case, refusal: Refused) -> Verdict:
    """Refusing what nothing satisfies is right, if no valid instance says otherwise."""
    is_satisfiable = any(instance.is_valid for instance in case.instances)
    if case.instances and not is_satisfiable and refusal.is_unsatisfiable:
        return "right"
    return "refused"


def _try_instance(
    compiled: Compiled,
    case: Case,
    instance: Instance,
    vocabulary: Vocabulary,
    renew_limits: Callable[[], None],
    outcome: Outcome,
) -> None:
    """Walk one instance and note what it shows."""
    furthest = ("", Walked(-1, False))
    for text in spellings(case, instance):
        renew_limits()
        token_ids = vocabulary.encode_text(text)
        walked = walk(compiled.matcher(), token_ids, vocabulary, outcome.mask_us)
        furthest = max(furthest, (text, walked), key=lambda attempt: attempt[1])
        if walked.is_complete:
            break
    text, walked = furthest
    verdict, reason = _verdict_on(compiled, case, instance, text, walked, vocabulary)
    if verdict != "right":
        outcome.offences.append(Offence(verdict, text, reason))
        outcome.offences.sort(key=lambda offence: VERDICTS.index(offence.verdict))
        del outcome.offences[_NUM_SHOWN:]
    outcome.verdict = worst([outcome.verdict, verdict])


def _verdict_on(
    compiled: Compiled,
    case: Case,
    instance: Instance,
    text: str,
    walked: Walked,
    vocabulary: Vocabulary,
) -> tuple[Verdict, str]:
    """What one instance shows, and why if it is not right."""
    if walked.is_complete == instance.is_valid:
        return "right", ""
    if walked.is_complete:
        return _verdict_on_invalid(case, instance, compiled.report)
    reason = _where(text, walked, vocabulary)
    if (raw := _accepted_raw(compiled, instance, vocabulary)) is not None:
        reason += f"; without escapes it is accepted: {raw[:_TAIL]!r}"
    return "over", reason


def _verdict_on_invalid(
    case: Case, instance: Instance, report: Report | None
) -> tuple[Verdict, str]:
    """An invalid instance came through: did the report say that this keyword is not held?"""
    broken = broken_keywords(case, instance)
    names = ", ".join(sorted(broken)) or "what it breaks is unknown"
    if report is None or report.exact:
        return "under", f"breaks {names}"
    told = {finding.keyword for finding in (*report.approximated, *report.refused)}
    if broken and not broken & told:
        return "under", f"breaks {names}, but the report approximates {', '.join(sorted(told))}"
    return "approximated", f"breaks {names}"


def _where(text: str, walked: Walked, vocabulary: Vocabulary) -> str:
    """The place at which the text was refused."""
    token_ids = vocabulary.encode_text(text)
    before = vocabulary.decode_bytes(token_ids[: walked.num_accepted]).decode(errors="replace")
    if walked.num_accepted == len(token_ids):
        return f"may not end behind {before[-_TAIL:]!r}"
    refused = vocabulary.decode_bytes(token_ids[walked.num_accepted :][:20])
    return f"behind {before[-_TAIL:]!r} refused {refused.decode(errors='replace')[:_TAIL]!r}"


def _accepted_raw(compiled: Compiled, instance: Instance, vocabulary: Vocabulary) -> str | None:
    """The text without `\\u` escapes, where that is accepted: then only escapes are in the way."""
    if instance.is_text:
        return None
    text: str = json.dumps(instance.data, ensure_ascii=False)
    if text == json.dumps(instance.data) or find_half_character(text) is not None:
        return None
    walked = walk(compiled.matcher(), vocabulary.encode_text(text), vocabulary, array("f"))
    return text if walked.is_complete else None
