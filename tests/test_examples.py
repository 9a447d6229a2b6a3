"""On the real model: every example, the README's, the demo and the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import structspec
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
}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("smollm2-135m") as model:
        yield model


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTS, "async_and_stream"}


def test_examples_are_short() -> None:
    assert all(len(path.read_text().splitlines()) < 40 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", PRINTS)
def test_example_prints_what_it_promises(
    name: str, llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](llm)
    printed = capsys.readouterr().out
    assert re.fullmatch(PRINTS[name], printed), printed


def test_asynchronous_example_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / "async_and_stream.py"))["main"]

    async def run() -> None:
        async with AsyncLLM("smollm2-135m") as llm:
            await main(llm)

    asyncio.run(run())
    printed = capsys.readouterr().out
    assert re.fullmatch(r"City\(name='.*', country='.*'\) (yes|no)\n\[.*\]\n", printed), printed


def test_readme_example_runs_as_it_stands(
    llm: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.setattr(structspec, "LLM", lambda name: contextlib.nullcontext(llm))
    program = compile(code[1], "README.md", "exec", dont_inherit=True)
    exec(program, {"__name__": "readme"})
    assert len(capsys.readouterr().out.split()) >= 2


def test_every_object_of_the_demo_is_valid(llm: LLM) -> None:
    outcomes = list(run_tasks(llm))
    assert [outcome.task.name for outcome in outcomes if not outcome.is_valid] == []


def test_command_writes_a_valid_object_to_stdout() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}}}
    command = [sys.executable, "-m", "structspec", "generate", "--schema", json.dumps(schema)]
    done = subprocess.run([*command, "--prompt", "Ada is here."], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), schema)
