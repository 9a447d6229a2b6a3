"""The score as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.markup import escape
from rich.table import Table

from structspec.bench.causes import count_causes
from structspec.bench.outcome import Verdict
from structspec.bench.score import (
    COUNTED,
    Judged,
    Score,
    by_keyword,
    by_source,
    percentiles,
    real_world,
    score,
)

_NUM_CAUSES = 20
_NUM_KEYWORDS = 25  # rows of the keyword table: those with most that is not right


def score_tables(columns: Mapping[str, Judged]) -> Iterator[Table]:
    """Columns side by side, then each one's sources and keywords."""
    found = {name: score(real_world(judged)) for name, judged in columns.items()}
    yield _beside("real-world", found)
    yield _beside("all", {name: score(judged) for name, judged in columns.items()})
    for name, judged in columns.items():
        if causes := count_causes(judged):
            yield _causes(f"{name}, what is not right", causes)
        yield _verdicts(f"{name}, by source", {k: score(v) for k, v in by_source(judged).items()})
        keywords = {keyword: score(v) for keyword, v in by_keyword(judged).items()}
        wrong = {k: s for k, s in keywords.items() if s.tested > s.counts["right"]}
        ranked = sorted(wrong, key=lambda k: (wrong[k].counts["right"] - wrong[k].tested, k))
        if ranked:
            title = f"{name}, keywords in schemas that are not right"
            yield _verdicts(title, {k: wrong[k] for k in ranked[:_NUM_KEYWORDS]})


def _beside(title: str, scores: Mapping[str, Score]) -> Table:
    """One row a column: shares of its tested schemas, and times."""
    tested = max(s.tested for s in scores.values())
    table = Table(title=f"{title}: {tested} tested schemas, % of them; p50 / p90 / p99")
    table.add_column("backend")
    for heading in (*COUNTED, "exact reports", "compile ms", "mask us"):
        table.add_column(heading, justify="right")
    for name, one in scores.items():
        exact = 100 * one.exact_reports / one.tested if one.tested else 0.0
        table.add_row(
            name,
            *(f"{one.share(verdict):.2f}" for verdict in COUNTED),
            f"{exact:.2f}",
            _times(percentiles(one.compile_ms)),
            _times(percentiles(one.mask_us)),
        )
    return table


def _verdicts(title: str, scores: Mapping[str, Score]) -> Table:
    """One row a group: numbers of schemas."""
    table = Table(title=title)
    table.add_column("")
    for heading in ("tested", *COUNTED, "exact reports"):
        table.add_column(heading, justify="right")
    for name, one in scores.items():
        counts = [one.tested, *(one.counts[verdict] for verdict in COUNTED), one.exact_reports]
        table.add_row(name, *(str(count) if count else "·" for count in counts))
    return table


def _causes(title: str, causes: Counter[tuple[Verdict, str]]) -> Table:
    """One row a cause, the most frequent first."""
    table = Table("verdict", "cause", title=title)
    table.add_column("schemas", justify="right")
    for (verdict, cause), count in causes.most_common(_NUM_CAUSES):
        table.add_row(verdict, escape(cause), str(count))
    return table


def _times(values: Mapping[str, float | None]) -> str:
    return " / ".join("–" if value is None else f"{value:.3g}" for value in values.values())
