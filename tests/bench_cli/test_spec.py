"""`structspec bench spec`: fixed lengths are kept to, and what was chosen is put beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from structspec.bench.engine_insides import engine_of
from structspec.bench.engine_runs import run_jobs
from structspec.bench.engine_workload import make_jobs, read_workload
from structspec.bench.spec import FixedLengths, best_fixed
from structspec.cli import main
from structspec.service import Service
from tests.bench_cli.test_engine import model, path, service  # noqa: F401 - fixtures


@pytest.mark.parametrize("length", [0, 1, 3])
def test_no_draft_is_longer_than_the_fixed_length(
    service: Service,  # noqa: F811
    path: Path,  # noqa: F811
    length: int,
) -> None:
    engine = engine_of(service)
    before = engine._pace, engine.scheduler.draft_slots.lengths
    jobs = make_jobs(read_workload(path), "copy", 2, 40)
    with FixedLengths(service).within(length):
        stats = [one.stats for one in run_jobs(service, jobs, is_speculative=True).requests]
    assert max(len(one.draft_lengths) for one in stats) == (length + 1 if length else 0)
    assert (engine._pace, engine.scheduler.draft_slots.lengths) == before


def test_a_small_run_compares_every_length_in_pairs(
    model: Path,  # noqa: F811
    path: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["bench", "spec", str(path), "--model", str(model), "--max-tokens", "12"]
    arguments += ["--requests", "1", "2", "--lengths", "0", "2", "--test", "copy", "--pairs", "2"]
    lines = tmp_path / "lines.jsonl"
    assert main([*arguments, "--lines", str(lines)]) == 0
    printed = capsys.readouterr().out
    assert "k = 2" in printed and "best k" in printed
    figures = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(f["requests"], f["length"]) for f in figures] == [(1, 0), (1, 2), (2, 0), (2, 2)]
    for figure in figures:
        assert len(figure["ratios"]) == 2
        low, high = figure["interval"]
        assert low <= figure["ratio"] <= high
        assert figure["fixed_drafted_per_step"] <= figure["length"]


def test_the_best_fixed_length_is_the_one_that_the_chosen_falls_behind_most() -> None:
    figures = [
        {"test": "copy", "requests": 8, "length": length, "ratio": ratio}
        for length, ratio in ((0, 1.4), (4, 0.98), (8, 1.1))
    ]
    assert [figure["length"] for figure in best_fixed(figures)] == [4]


@pytest.mark.parametrize(
    "arguments", [["--lengths", "-1"], ["--pairs", "0"], ["--requests", "0"], ["--test", "none"]]
)
def test_what_cannot_be_run_is_refused(path: Path, arguments: list[str]) -> None:  # noqa: F811
    assert main(["bench", "spec", str(path), *arguments]) == 2
