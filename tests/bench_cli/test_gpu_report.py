"""Lines of a GPU run become a page and drawings, whole or cut short."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.bench.gpu_goals import Goal, goals
from tests.bench.gpu_lines import figures_of, read_runs
from tests.bench.gpu_plots import drawings
from tests.bench.gpu_report import BEGIN, END, insert, render
from tests.bench.gpu_svg import round_step

HOST = ("schedule", "draft", "launch", "wait", "matchers", "masks", "sample", "update", "other")


def opening(stage: str, *, is_large: bool) -> list[dict[str, Any]]:
    engine = {
        "part": "engine",
        "load_format": "dummy" if is_large else "auto",
        "dtype": "bfloat16",
        "device": "a card",
        "python": "3.12",
        "torch": "2",
        "triton": "3",
        "start_up_s": 17.0,
        "kv_tokens": 1000,
    }
    return [{"part": "run", "stage": stage, "commit": "abc1234", "options": ""}, engine]


def speed(test: str, size: int, tokens_per_second: float, ratio: float = 1.0) -> dict[str, Any]:
    return {
        "part": "speed",
        "test": test,
        "requests": size,
        "tokens_per_second": tokens_per_second,
        "token_ms": 1000 * size / tokens_per_second,
        "ratio_to_plain": ratio,
        "failed": 0,
    }


def step(by: str, step_ms: float, **told: object) -> dict[str, Any]:
    host = {part: step_ms / len(HOST) for part in HOST}
    device = {"forward": step_ms / 2, "sample": 0.0}
    return {
        "part": "steps",
        "by": by,
        "step_ms": step_ms,
        "host_ms": host,
        "device_ms": device,
    } | told


def write(path: Path, *figures: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, figures)) + "\n")
    return path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    plain = {"test": "plain", "is_speculative": False}
    return write(
        tmp_path / "figures.jsonl",
        *opening("main", is_large=True),
        speed("plain", 1, 250.0),
        speed("plain", 128, 17_000.0),
        speed("same", 128, 15_300.0, 0.9),
        *opening("invariant", is_large=True),
        speed("plain", 1, 200.0),
        *opening("steps", is_large=True),
        step("test", 4.0, requests=1, **plain),
        step("test", 7.5, requests=128, **plain),
        step("context", 4.2, requests=1, context=2048),
        step("guesses", 16.0, requests=128, guesses=4),
        {"part": "steps", "by": "test", "requests": 8, "num_steps": 1, **plain},
    )


def test_figures_belong_to_the_process_whose_engine_stands_before_them(lines: Path) -> None:
    runs = read_runs([lines])
    assert [(run.stage, run.is_large) for run in runs] == [
        ("main", True),
        ("invariant", True),
        ("steps", True),
    ]
    (held,) = figures_of(runs, "invariant", "speed", is_large=True)
    assert held["tokens_per_second"] == 200.0
    assert figures_of(runs, "main", "speed", is_large=False) == []


def test_a_line_that_was_cut_and_an_engine_that_never_started_are_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "cut.jsonl", opening("steps", is_large=True)[0], *opening("main", is_large=False)
    )
    path.write_text(path.read_text() + '{"part": "speed", "te')
    (run,) = read_runs([path])
    assert run.stage == "main" and run.figures == []


def test_the_last_process_that_measured_a_part_counts(lines: Path, tmp_path: Path) -> None:
    again = write(
        tmp_path / "again.jsonl",
        *opening("main", is_large=True),
        speed("plain", 1, 251.0),
        *opening("main", is_large=True),  # cut before it measured anything
    )
    found = figures_of(read_runs([lines, again]), "main", "speed", is_large=True)
    assert [one["tokens_per_second"] for one in found] == [251.0]


def test_goals_are_met_missed_or_not_measured(lines: Path) -> None:
    found = {goal.text: goal for goal in goals(read_runs([lines]))}
    assert found["8B plain, c = 1, ms a token"].is_met  # 4.00 of 4.60
    assert not found["8B plain, c = 128, tokens/s"].is_met  # 17,000 of 17,500
    assert found["8B, same ÷ plain, c = 128"].is_met  # 0.90 of 0.85
    assert found["8B, a step of 128 × 5 positions, ms of the device"].value == 8.0
    assert found["SmolLM2 plain, c = 128, tokens/s"].value is None


@pytest.mark.parametrize("is_at_most", [True, False])
def test_a_bound_itself_is_met(is_at_most: bool) -> None:
    assert Goal("", 2.0, 2.0, is_at_most=is_at_most).is_met
    assert Goal("", 2.0, 2.1, is_at_most=is_at_most).is_met != is_at_most


def test_the_page_has_ours_beside_theirs_and_is_replaced_as_a_whole(lines: Path) -> None:
    section = render(read_runs([lines]))
    assert "| 8B shape, random weights: same |  |  |  | **15,300** (0.90) |  |" in section
    assert "|   vLLM, xgrammar | 198 | 1,544 | 5,370 | 10,694 |  |" in section
    assert "| 8B shape, random weights, c = 1 | 250 | 200 | **0.80** |" in section
    assert "| plain (device busy) | 4.00 (2.00) |  |  | 7.50 (3.75) |  |" in section
    page = insert("# Benchmarks\n\nOther figures.\n", "old " + section)
    assert insert(page, section).count(BEGIN) == 1
    behind = insert(f"a\n\n{BEGIN}\nold\n{END}\n\nz\n", section)
    assert behind == f"a\n\n{section}\nz\n"


def first_token() -> list[dict[str, Any]]:
    waits = {f"{kind}_ms": {"p50": 1.0} for kind in ("plain", "fresh", "warm")}
    added = {"p50": 8.0, "interval": [7.0, 9.0], "p90": 10.0}
    pairs = {"kind": "pairs", **waits, "fresh_minus_warm_ms": added}
    return [
        {"part": "first-token", **told} for told in ({"kind": "first", "ms": [31.5, 12.25]}, pairs)
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_first_schemas_are_told_only_where_no_part_before_had_any(
    is_first: bool, tmp_path: Path
) -> None:
    before = [] if is_first else [speed("same", 1, 900.0)]
    path = write(tmp_path / "waits.jsonl", *opening("main", is_large=True), *before, *first_token())
    section = render(read_runs([path]))
    assert "**8.00** (7.00 to 9.00) / 10.00" in section
    assert ("31.5; then 12.2 at most" in section) == is_first


def test_the_page_says_what_was_run_in_each_process(tmp_path: Path) -> None:
    run, engine = opening("main", is_large=False)
    run["options"] = "--model some --part speed"
    section = render(read_runs([write(tmp_path / "run.jsonl", run, engine)]))
    assert "- SmolLM2-135M, main: `--model some --part speed`" in section


def test_drawings_are_whole_xml_with_a_bar_part_for_every_host_part(lines: Path) -> None:
    found = dict(drawings([lines]))
    assert set(found) == {"steps-8b.svg", "growth-8b.svg"}
    roots = {name: ElementTree.fromstring(text) for name, text in found.items()}
    bars = [one for one in roots["steps-8b.svg"] if "height" in one.attrib and "x" in one.attrib]
    # two bars of nine parts, two outlines, nine colours of the legend
    assert len(bars) == 2 * len(HOST) + 2 + len(HOST)
    heights = [float(bar.attrib["height"]) for bar in bars[: len(HOST)]]
    assert max(heights) - min(heights) < 0.2


@pytest.mark.parametrize(("most", "step"), [(10.0, 2.0), (11.0, 2.5), (0.9, 0.2), (23.0, 5.0)])
def test_lines_stand_at_round_values(most: float, step: float) -> None:
    assert round_step(most) == pytest.approx(step)
