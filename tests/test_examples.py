"""On the real model: every example, the demo and the command line."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from structspec import LLM, AsyncLLM
from structspec.demo import run_tasks

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

PRINTS = {
    "extract_person": r"Person\(name='.*', age=\d+, address=Address\(street='.*', city='.*'\)\)\n",
    "list_of_records": r"(Product\(name=.*, price=.*, in_stock=(True|False)\)\n)+(.|\n)*",
    "classify": r"(Mood\.(POSITIVE|NEGATIVE) - .*\n){2}(sports|music|cooking)\n",
    "tool_call": r"(looking up the weather in .*|writing to .* about .*)\n",
    "regex_and_grammar": r"\d{4}-\d{2}-\d{2}\n[0-9()* +]+\n",
    "extract_invoice": (
        r"[A-Z]{2}-\d{4} of \d\d \w+ \d{4} for .*\n(  \d+ x .* at \d+\.\d\d\n){1,2}  total .*\n"
    ),
    "tool_agent": r"called count_stock .*\n  got \d+\nAnswer\(product='.*', in_stock=\d+\)\n",
    "stream_to_terminal": r"(.*, )*.* on \d\d \w+ in .*\n",
    "answer_with_sources": r'".*" \[(returns|shipping|lamp-manual|clock-manual)\]\n',
    "sql_by_grammar": r"SELECT .* FROM orders.*\n\[\(.*\)\]\n|SELECT .* FROM orders.*\n\[\]\n",
}
OTHERS = {"async_and_stream", "classify_rows"}  # with tests of their own
MAX_LINES = 60


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("smollm2-135m") as model:
        yield model


def test_every_example_is_tested() -> None:
    of_integrations = "structspec.integrations"  # their packages are not here; they have own tests
    names = {p.stem for p in EXAMPLES.glob("*.py") if of_integrations not in p.read_text()}
    assert names == {*PRINTS, *OTHERS}


def test_examples_are_short() -> None:
    assert all(len(path.read_text().splitlines()) <= MAX_LINES for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", PRINTS)
def test_example_prints_what_it_promises(
    name: str, llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](llm)
    printed = capsys.readouterr().out
    assert re.fullmatch(PRINTS[name], printed), printed


def test_batch_example_goes_on_where_it_stopped(
    llm: LLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(EXAMPLES / "classify_rows.py"))["main"]
    out = tmp_path / "labels.jsonl"
    main(llm, 3, out)
    main(llm, 5, out)
    told = re.findall(r"(\d+) rows were done before, (\d+) in this run", capsys.readouterr().out)
    assert told == [("0", "3"), ("3", "2")]
    labels = {line["row"]: line["label"] for line in map(json.loads, out.read_text().splitlines())}
    assert sorted(labels) == [0, 1, 2, 3, 4]
    assert {*labels.values()} <= {"positive", "negative"}


def test_asynchronous_example_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / "async_and_stream.py"))["main"]

    async def run() -> None:
        async with AsyncLLM("smollm2-135m") as llm:
            await main(llm)

    asyncio.run(run())
    printed = capsys.readouterr().out
    assert re.fullmatch(r"City\(name='.*', country='.*'\) (yes|no)\n\[.*\]\n", printed), printed


def test_every_object_of_the_demo_is_valid(llm: LLM) -> None:
    outcomes = list(run_tasks(llm))
    assert [outcome.task.name for outcome in outcomes if not outcome.is_valid] == []


def test_command_writes_a_valid_object_to_stdout() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}}}
    command = [sys.executable, "-m", "structspec", "generate", "--schema", json.dumps(schema)]
    done = subprocess.run([*command, "--prompt", "Ada is here."], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), schema)
