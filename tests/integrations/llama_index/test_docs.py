"""docs/llama_index.md and the examples: they run, and print what they say."""

from __future__ import annotations

import asyncio
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from structspec import LLM
from structspec.integrations.llama_index import StructSpec
from structspec.integrations.llama_index_react import react_options

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "llama_index.md").read_text()
SAID = re.compile(r"^(?:print\(.*\))  # (.*)$|^# (.*)$", re.MULTILINE)


def test_the_pages_examples_run_and_print_what_they_say(
    real_engine: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "structspec.integrations.llama_index_engine.shared_llm", lambda name: real_engine
    )
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/llama_index.md", "exec", dont_inherit=True), names)
        printed = capsys.readouterr().out
        for said in (one or other for one, other in SAID.findall(block)):
            assert said in printed.splitlines(), (said, printed)


def test_every_field_is_in_the_table() -> None:
    own = set(StructSpec.__annotations__) - {"_given"}
    assert {name for name in own if f"`{name}" not in PAGE} <= {"model", "base_url", "api_key"}
    assert all(f"{name}=" in PAGE for name in ("base_url", "api_key", "model"))


def test_the_query_example_prints_facts(
    real: StructSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(ROOT / "examples" / "llama_index_query.py"))["main"](real)
    printed = capsys.readouterr().out
    assert re.fullmatch(r"(Fact\(thing='.*', number=\d+, unit='.*'\)\n){2}", printed), printed
    assert "4401" in printed


def test_the_agent_example_prints_calls_and_an_answer(
    real_engine: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "llama_index_agent.py"))
    options = dict(react_options(example["TOOLS"], max_thought=20, max_answer=30))
    llm = StructSpec(engine=real_engine, temperature=0, additional_kwargs=options)
    asyncio.run(example["main"](llm))
    printed = capsys.readouterr().out
    assert re.match(r"called add \{'a': \d+, 'b': \d+\} -> \d+\n", printed), printed
