"""README.md: all its Python runs, one piece behind the other, as a newcomer would type it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import structspec
from structspec import LLM, Client, Generation, ToolCall
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from tests.client.serving import serving

PAGE = (Path(__file__).resolve().parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_its_examples_run_as_they_stand(
    llm: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, many, tools, over_a_server = BLOCKS
    monkeypatch.setattr(structspec, "LLM", lambda name: contextlib.nullcontext(llm))
    names: dict[str, Any] = {"__name__": "readme"}

    def run(block: str) -> str:
        exec(compile(block, "README.md", "exec", dont_inherit=True), names)
        return capsys.readouterr().out

    assert run(first) == "Maria Rossi Rome\n"
    ended: list[None] = []
    bar = SimpleNamespace(update=lambda: ended.append(None))
    prompt = re.findall('"(Extract .*)"', first)[0]
    names |= {"prompts": [prompt, "x " * 20_000], "bar": bar}
    run(many)
    found, error = names["results"]
    assert isinstance(found, Generation) and isinstance(error, structspec.PromptTooLong)
    assert isinstance(found.value, names["Person"]) and len(ended) == 2
    run(tools)
    assert isinstance(names["call"], ToolCall) and names["call"].name == "weather"
    with serving(make_app(llm._service, ServerSettings("smollm2-135m"))) as url:
        monkeypatch.setattr(structspec, "Client", lambda _: Client(url))
        run(over_a_server)
    assert isinstance(names["person"], names["Person"])
