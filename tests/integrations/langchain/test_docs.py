"""docs/langchain.md and the examples for LangChain: they run, and print what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from structspec import LLM
from structspec.integrations.langchain import ChatStructSpec
from structspec.integrations.langchain_options import CallOptions

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "langchain.md").read_text()
PRINTS = {
    "langchain_structured": r"(PartialPerson\(.*\)\n)+Person\(.*\)\n(.+ \(\d{4}\)\n){3}",
    "langchain_agent": r"human: .*\n(ai: .*\n(tool: .*\n)*)+Answer\(item='.*', in_stock=.*\)\n",
}


def test_the_pages_examples_run_and_print_what_they_say(
    llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/langchain.md", "exec", dont_inherit=True), names)
        printed = capsys.readouterr().out.splitlines()
        for said in re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE):
            assert all(one in printed for one in said.split(" … ")), (said, printed)


def test_every_field_is_in_the_pages_table() -> None:
    for name in (*CallOptions.model_fields, *ChatStructSpec.__annotations__):
        assert name.startswith("_") or f"`{name}`" in PAGE or name == "model_config", name


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_promises(
    name: str, model: ChatStructSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"](model)
    printed = capsys.readouterr().out
    assert re.fullmatch(PRINTS[name], printed), printed


def test_the_examples_are_all_of_them() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("langchain_*.py")} == {*PRINTS}
