"""What becomes of each part of a constraint, told before anything is generated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from structspec.added_findings import with_unheld
from structspec.compiler import GrammarCompiler
from structspec.constraint import Constraint, JsonSchema, JsonStyle, PropertyOrder
from structspec.errors import InvalidRequest, UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar, Finding, Report
from structspec.grammars.router import Backends
from structspec.options import resolve_options
from structspec.policy import can_validate
from structspec.settings import BackendName
from structspec.vocabulary import Vocabulary

Verdict = Literal["exact", "approximated", "refused"]

NUM_BYTE_TOKENS = 257


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the grammar layer makes of one constraint; `print` shows all of it.

    `report` lists every keyword with its JSON pointer as enforced, approximated or refused, what
    was rewritten (`changes`), and the backend with the reason for choosing it. `compile_ms` and
    `num_bytes` are None where the constraint was refused.
    """

    constraint: Constraint
    report: Report
    vocab_size: int
    compile_ms: float | None = None
    num_bytes: int | None = None

    @property
    def kind(self) -> str:
        """What sort of constraint it is, in words."""
        words = re.sub("(?<=[a-z])(?=[A-Z])", " ", type(self.constraint).__name__)
        return words.lower().replace("json", "JSON")

    @property
    def verdict(self) -> Verdict:
        """The whole in one word."""
        if self.report.refused:
            return "refused"
        return "exact" if self.report.exact else "approximated"

    @property
    def summary(self) -> str:
        """What the verdict means for a request."""
        report = self.report
        num_all = len(report.enforced) + len(report.approximated) + len(report.refused)
        if report.refused:
            which = _share(len(report.refused), num_all, "cannot be held")
            return f"{which}; a request ends with UnsupportedConstraint"
        if report.exact:
            return "the mask holds all of it; what is written conforms"
        which = _share(len(report.approximated), num_all, "not wholly in the mask")
        if can_validate(self.constraint):
            return f"{which}; finished text is validated and, where it fails, drawn again"
        return f'{which} and cannot be checked: refused unless on_unsupported="ignore"'

    @property
    def backend(self) -> str:
        """Which backend, and why where there was a choice."""
        report = self.report
        return f"{report.backend} ({report.reason})" if report.reason else report.backend

    @property
    def cost(self) -> str:
        """What compiling took, and for which vocabulary."""
        if self.compile_ms is None or self.num_bytes is None:
            return "not compiled"
        is_bytes = self.vocab_size == NUM_BYTE_TOKENS
        tokens = "bytes, since no model is named" if is_bytes else f"{self.vocab_size:,} tokens"
        size = _size(self.num_bytes)
        return f"compiled in {self.compile_ms:.1f} ms to {size}, for a vocabulary of {tokens}"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "verdict": self.verdict,
            "summary": self.summary,
            "constraint": self.kind,
            "compile_ms": self.compile_ms,
            "num_bytes": self.num_bytes,
            "vocab_size": self.vocab_size,
            "exact": self.report.exact,
            **asdict(self.report),
        }

    def __str__(self) -> str:
        lines = [self.headline, f"backend: {self.backend}", self.cost]
        for title, rows in self.groups():
            lines += [
                f"{title}:",
                *(f"  {where}  {what}" if where else f"  {what}" for where, what in rows),
            ]
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """Verdict and summary."""
        return f"{self.verdict}: {self.summary}"

    def groups(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """The findings under their verdicts, the worst first, as (place, what is said of it)."""
        report = self.report
        checked = "validated afterwards" if can_validate(self.constraint) else "not enforced"
        for title, rows in (
            ("refused", [(one.pointer, _describe(one)) for one in report.refused]),
            (checked, [(one.pointer, _describe(one)) for one in report.approximated]),
            ("enforced by the mask", _by_place(report.enforced)),
            ("rewritten", [("", change) for change in report.changes]),
        ):
            if rows:
                yield title, list(dict.fromkeys(rows))  # a schema used twice is reported twice


def explain(
    constraint: Any,
    *,
    vocabulary: Vocabulary | None = None,
    backend: BackendName = "auto",
    closed: bool | None = None,
    style: JsonStyle | None = None,
    property_order: PropertyOrder | None = None,
) -> Explanation:
    """What would be enforced, approximated and refused of a constraint, and why; compiles it.

    Takes a Regex, Choice, Grammar or JsonSchema, or whatever `schema=` takes: a Python type, or a
    JSON schema as a dict or JSON text. Without the `vocabulary` of a model one of bytes is used:
    the findings are the same, time and size are smaller. The other options are those of `generate`.
    Raises GrammarError, with the place, for a constraint that is wrong.
    """
    settings = {"closed": closed, "style": style, "property_order": property_order}
    resolved, unheld = _resolve(constraint, {**settings, "backend": backend})
    vocabulary = vocabulary or Vocabulary.bytes()
    result = _compile(resolved, backend, vocabulary)
    if isinstance(result, Report):
        return Explanation(resolved, with_unheld(result, unheld), vocabulary.vocab_size)
    report = with_unheld(result.report, unheld)
    return Explanation(resolved, report, vocabulary.vocab_size, result.compile_ms, result.num_bytes)


def _resolve(constraint: Any, options: dict[str, Any]) -> tuple[Constraint, tuple[Finding, ...]]:
    """The constraint, and what a Python type asks beyond it."""
    if isinstance(constraint, Constraint) and not isinstance(constraint, JsonSchema):
        given = [name for name, value in options.items() if value is not None and name != "backend"]
        if given:
            raise InvalidRequest(f"{given[0]}= goes with a JSON schema, not with {constraint!r}")
        return constraint, ()
    if constraint is None:
        raise InvalidRequest("there is nothing to explain: pass a constraint or a schema")
    task = resolve_options({"schema": constraint, **options})  # type: ignore[typeddict-item]
    assert task.constraint is not None
    return task.constraint, task.unheld


def _compile(
    constraint: Constraint, backend: BackendName, vocabulary: Vocabulary
) -> CompiledGrammar | Report:
    """The grammar, or the report that says why there is none."""
    compiler = GrammarCompiler(vocabulary, backend, num_threads=1)
    try:
        return compiler.submit(constraint).result()
    except UnsupportedConstraint as error:
        report = Backends(vocabulary).get(backend, constraint).report(constraint)
        return report if report.refused else _with_refusal(report, error)
    finally:
        compiler.close()


def _with_refusal(report: Report, error: UnsupportedConstraint) -> Report:
    """The report, with what only compiling showed."""
    pointer = error.pointer or ""
    reason = str(error).removeprefix(f"{pointer}: ")
    return Report(
        report.backend,
        report.enforced,
        report.approximated,
        (Finding(pointer, "", reason),),
        report.changes,
        report.reason,
    )


def _describe(finding: Finding) -> str:
    return ": ".join(filter(None, (finding.keyword, finding.reason)))


def _by_place(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """One row per place with all its keywords."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        places.setdefault(finding.pointer, []).append(_describe(finding))
    return [(pointer, ", ".join(dict.fromkeys(said))) for pointer, said in places.items()]


def _share(num: int, num_all: int, what: str) -> str:
    verb = "" if what.startswith("cannot") else ("is " if num == 1 else "are ")
    return f"{num} of {num_all} keyword{'s' if num_all > 1 else ''} {verb}{what}"


def _size(num_bytes: int) -> str:
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    return f"{num_bytes / 1e3:.1f} kB" if num_bytes < 1e6 else f"{num_bytes / 1e6:.1f} MB"
