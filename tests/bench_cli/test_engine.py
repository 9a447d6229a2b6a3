"""`structspec bench engine`: what it asks for, what it counts, and a small run from end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from structspec.bench.engine import Cell, Run, run_once
from structspec.bench.engine_runs import run_jobs
from structspec.bench.engine_tables import engine_tables
from structspec.bench.engine_workload import TESTS, make_jobs, read_workload
from structspec.cli import main
from structspec.config import EngineConfig
from structspec.errors import InvalidRequest
from structspec.options import resolve_options
from structspec.service import Service
from tests.models.reference import save_tiny_model

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}},
    "required": ["name"],
}
DATA = {
    "bounded": {"person": SCHEMA, "pet": SCHEMA},
    "unbounded": {"person": {"type": "object"}, "pet": {"type": "object"}},
    "prompts": {"person": "A person, please.", "pet": "A pet, please."},
    "regex_long": "[a-z ]{120,200}",
    "copy_tasks": [{"prompt": "Copy: {}", "schema": SCHEMA, "answer": "{}"}],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "workload.json").write_text(json.dumps(DATA))
    return tmp_path / "workload.json"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama", max_position_embeddings=512)
    return folder


@pytest.fixture(scope="module")
def service(model: Path) -> Iterator[Service]:
    service = Service(model, config=EngineConfig(num_blocks=100))
    yield service
    service.close()


@pytest.mark.parametrize("test", TESTS)
def test_every_request_of_a_test_is_one_that_generate_takes(test: str, path: Path) -> None:
    jobs = make_jobs(read_workload(path), test, num_requests=3, max_tokens=9)
    assert len(jobs) == 3
    for _, options in jobs:
        task = resolve_options(options)
        assert (task.constraint is None) == (test == "plain")
        assert task.sampling["max_tokens"] == 9


def test_fresh_schemas_never_come_again_and_pooled_ones_take_turns(path: Path) -> None:
    workload = read_workload(path)
    fresh = [
        json.dumps(options["schema"])
        for _ in range(2)
        for _, options in make_jobs(workload, "fresh", 3, 9)
    ]
    assert len(set(fresh)) == 6
    assert [prompt for prompt, _ in make_jobs(workload, "pool", 3, 9)] == [
        *DATA["prompts"].values(),
        "A person, please.",
    ]


def test_unbounded_schemas_are_others(path: Path) -> None:
    assert read_workload(path, is_bounded=False).schemas == DATA["unbounded"]


@pytest.mark.parametrize("content", ["", "[]", '{"bounded": {}}'])
def test_what_is_no_workload_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(content)
    for name in "bad.json", "missing.json":
        with pytest.raises(InvalidRequest, match="no workload"):
            read_workload(tmp_path / name)


def test_a_run_counts_the_tokens_of_all_requests_and_those_that_failed(
    service: Service, path: Path
) -> None:
    jobs = make_jobs(read_workload(path), "regex", 2, max_tokens=8)
    run = run_once(run_jobs(service, jobs))
    assert run.num_failed == 0 and run.tokens_per_step == 1.0
    assert 0 < run.token_ms < run.first_token_ms + 8 * run.token_ms
    failing = [*jobs, ("x", {"regex": "a(?!a)a", "max_tokens": 4, "temperature": 0.0})]
    assert run_once(run_jobs(service, failing)).num_failed == 1


def test_figures_are_medians_and_ratios_are_taken_run_by_run() -> None:
    plain = Cell(
        "plain", 8, False, [Run(speed, 1.0, 5.0, 1.0, 0) for speed in (100.0, 200.0, 400.0)]
    )
    same = Cell("same", 8, False, [Run(speed, 2.0, 5.0, 1.0, 1) for speed in (90.0, 160.0, 100.0)])
    figure = same.as_figure(plain)
    assert plain.median("tokens_per_second") == 200.0
    assert figure["ratio_to_plain"] == 0.8 and figure["failed"] == 3
    (table,) = engine_tables([plain.as_figure(plain), figure], "title")
    assert table.row_count == 2


def command(path: Path, model: Path) -> list[str]:
    small = ["--requests", "1", "3", "--rounds", "1", "--max-tokens", "4", "--test", "regex"]
    dummy = ["--load-format", "dummy"]
    return ["bench", "engine", str(path), "--model", str(model), "--device", "cpu", *dummy, *small]


def test_the_command_prints_a_table_or_json(
    model: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(path, model)) == 0
    table = capsys.readouterr().out
    assert table.count("plain") >= 2 and table.count("regex") == 2
    assert main([*command(path, model), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures[0]["part"] == "engine" and figures[0]["dtype"] == "float32"
    assert [(one["requests"], one["test"]) for one in figures if one["part"] == "speed"] == [
        (n, test) for n in (1, 3) for test in ("plain", "regex")
    ]


def test_all_parts_of_one_model_are_lines_and_tables(
    model: Path, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ["first-token", "prefill", "neighbours", "drafts", "steps"]
    asked = [*parts[1:], parts[0]]  # its schemas must not be known from the others
    wanted = [word for part in asked for word in ("--part", part)]
    sizes = ["--pairs", "1", "--neighbours", "2", "--prompts", "2", "30", "--max-tokens", "12"]
    growth = ["--contexts", "20", "40", "9999", "--guesses", "0", "2"]
    lines = ["--lines", str(tmp_path / "figures.jsonl")]
    assert main([*command(path, model), *wanted, *sizes, *growth, *lines]) == 0
    printed = capsys.readouterr().out
    written = (tmp_path / "figures.jsonl").read_text().splitlines()
    figures = [json.loads(line) for line in written]
    assert list(dict.fromkeys(one["part"] for one in figures)) == ["engine", *parts, "memory"]
    assert all(f"{part}: " in printed for part in parts)
    found = {part: [one for one in figures if one["part"] == part] for part in parts}
    assert [one["beside"] for one in found["neighbours"]] == ["plain", "same", "regex"]
    assert [one["kind"] for one in found["first-token"]] == ["first", "pairs"]
    assert found["prefill"][0]["prompt_tokens"] == 30
    steps = [one for one in found["steps"] if "step_ms" in one]
    contexts = {one["context"] for one in steps if one["by"] == "context"}
    assert contexts == {20, 40}  # longer ones than the model has are left out
    for one in steps:
        assert sum(one["host_ms"].values()) == pytest.approx(one["step_ms"])
        if one["by"] == "guesses":
            assert one["drafts_per_step"] == one["requests"] * one["guesses"]
        if one["by"] == "test" and not one["is_speculative"]:
            assert one["requests_per_step"] == one["requests"] and one["drafts_per_step"] == 0


def test_a_part_whose_time_is_over_begins_nothing_new_and_is_named(
    model: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command(path, model), "--part-seconds", "0", "--json"]) == 0
    captured = capsys.readouterr()
    assert [one["part"] for one in json.loads(captured.out)] == ["engine", "cut", "memory"]
    assert "speed took longer than --part-seconds" in captured.err


def test_a_part_that_fails_costs_no_other_one(
    model: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(json.dumps({**DATA, "copy_tasks": []}))
    parts = ["--part", "speed", "--part", "prefill", "--prompts", "1", "20", "--test", "copy"]
    assert main([*command(path, model), *parts, "--json"]) == 1
    captured = capsys.readouterr()
    found = [figure["part"] for figure in json.loads(captured.out)]
    assert found == ["engine", "failed", "prefill", "memory"]
    assert "speed failed: the workload has no documents to copy" in captured.err


@pytest.mark.parametrize(
    "option",
    [
        ["--test", "none"],
        ["--part", "none"],
        ["--requests", "0"],
        ["--rounds", "0"],
        ["--max-tokens", "0"],
        ["--guesses", "-1"],
        ["--gpu-memory-utilization", "2"],
        ["--max-num-batched-tokens", "0"],
    ],
)
def test_what_cannot_be_run_is_status_2(option: list[str], path: Path) -> None:
    assert main(["bench", "engine", str(path), *option]) == 2
