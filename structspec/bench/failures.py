"""One JSON line for each case and column that is not right: what is needed to see why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from structspec.bench.cases import Case
from structspec.bench.outcome import VERDICTS, Outcome
from structspec.bench.score import FINE, Judged
from structspec.errors import InvalidRequest
from structspec.grammars.base import Report


def write_failures(path: Path, columns: Mapping[str, Judged]) -> None:
    """Write the file, column by column, the worst verdicts first."""
    failures = [
        _failure(name, case, outcome)
        for name, judged in columns.items()
        for case, outcome in sorted(judged, key=lambda pair: VERDICTS.index(pair[1].verdict))
        if outcome.verdict not in FINE
    ]
    text = "".join(json.dumps(failure, ensure_ascii=False) + "\n" for failure in failures)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {error.strerror}") from error


def _failure(column: str, case: Case, outcome: Outcome) -> dict[str, Any]:
    return {
        "id": case.id,
        "column": column,
        "verdict": outcome.verdict,
        "message": outcome.message,
        "instances": [asdict(offence) for offence in outcome.offences],
        "report": None if outcome.report is None else _report(outcome.report),
        "source": case.source,
        "keywords": case.keywords,
        "kind": case.kind,
        "schema" if case.kind == "json_schema" else "grammar": case.body,
    }


def _report(report: Report) -> dict[str, Any]:
    return {
        "backend": report.backend,
        "approximated": [asdict(finding) for finding in report.approximated],
        "refused": [asdict(finding) for finding in report.refused],
        "changes": list(report.changes),
    }
