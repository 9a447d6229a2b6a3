"""Outcomes as numbers."""

from __future__ import annotations

import json
from array import array

from structspec.bench.causes import count_causes
from structspec.bench.outcome import Offence, Outcome, Verdict
from structspec.bench.score import Judged, as_json, by_source, score
from structspec.bench.tables import score_tables
from structspec.grammars.base import Finding, Report
from tests.bench_cli.subjects import case

LABELS = {"1": True}


def judged(*verdicts: Verdict, source: str = "JME", report: Report | None = None) -> Judged:
    return [
        (case({}, LABELS, source=source), Outcome("case", verdict, report=report))
        for verdict in verdicts
    ]


def test_each_schema_counts_once():
    one = score(judged("right", "right", "under", "over", "refused", "crash", "approximated"))
    assert one.tested == 7
    assert sum(one.counts.values()) == 7
    assert one.counts["right"] == 2
    assert one.share("under") == 100 / 7


def test_schema_without_instances_is_not_tested_but_what_came_of_it_is_kept():
    pairs = [(case({}), Outcome("a")), (case({}), Outcome("b", "crash"))]
    one = score([*pairs, *judged("right")])
    assert one.tested == 1
    assert one.counts["crash"] == 0
    assert one.untested == {"compiled": 1, "crash": 1}


def test_exact_reports_are_counted_among_tested_schemas():
    loose = Report("made", approximated=(Finding("#", "not"),))
    pairs = [*judged("right", report=Report("made")), *judged("right", report=loose)]
    unasked = [(case({}), Outcome("a", report=Report("made")))]
    assert score([*pairs, *judged("right"), *unasked]).exact_reports == 1


def test_json_has_the_real_world_part_and_all_sources_inside():
    columns = {"router": [*judged("right"), *judged("under", source="Synthesized")]}
    router = as_json(columns)["router"]
    assert (router["tested"], router["right"], router["under"]) == (1, 1, 0)
    assert (router["all"]["tested"], router["all"]["right"], router["all"]["under"]) == (2, 1, 1)
    assert json.loads(json.dumps(router)) == router


def test_percentiles_are_those_of_all_masks_together():
    pairs = [
        (case({}, LABELS), Outcome("a", "right", mask_us=array("f", range(1, 51)))),
        (case({}, LABELS), Outcome("b", "right", mask_us=array("f", range(51, 102)))),
    ]
    found = score(pairs).as_json()
    assert found["masks"] == 101
    assert found["mask_us"] == {"p50": 51.0, "p90": 91.0, "p99": 100.0}
    assert found["compile_ms"] == {"p50": None, "p90": None, "p99": None}


def test_sources_are_kept_apart():
    pairs = [*judged("right", source="b"), *judged("over", "over", source="a")]
    assert {name: len(part) for name, part in by_source(pairs).items()} == {"a": 2, "b": 1}


def test_causes_are_counted_without_their_particulars():
    def refused(message: str) -> Outcome:
        return Outcome("a", "refused", message)

    over = Outcome("b", "over", offences=[Offence("over", "[1]", "behind '[' refused '1]'")])
    pairs = [
        (case({}), refused("#/properties/a: format 'x' is unknown\nand more")),
        (case({}), refused("#/items/2/b: format 'y' is unknown")),
        (case({}), over),
        (case({}), Outcome("c", "right")),
    ]
    assert count_causes(pairs) == {
        ("refused", "format … is unknown"): 2,
        ("over", "behind … refused …"): 1,
    }


def test_tables_can_be_made_of_no_tested_schema_at_all():
    tables = list(score_tables({"router": [(case({}), Outcome("a"))]}))
    assert [table.row_count for table in tables] == [1, 1, 1]
