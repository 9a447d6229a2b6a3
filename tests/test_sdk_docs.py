"""docs/sdk.md: its examples run one behind the other and print what they say, over a server too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

import structspec
from structspec import LLM, AsyncLLM, Client, EngineConfig, SpeculativeConfig
from structspec.hooks import HookName
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from tests.client.serving import serving

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "sdk.md").read_text()
SAID = re.compile(r"^(?:print\(.*\))  # (.*)$|^# (.*)$", re.MULTILINE)


def check_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Run them, and look at what they print."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 9
    names: dict[str, Any] = {"__name__": "sdk"}
    for block in blocks:
        exec(compile(block, "docs/sdk.md", "exec", dont_inherit=True), names)
        printed = capsys.readouterr().out
        for said in (one or other for one, other in SAID.findall(block)):
            assert said in printed.splitlines(), (said, printed)


def test_examples_run_and_print_what_they_say(
    llm: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = structspec.LLM
    shared = [llm]  # the first is made of no more than a name, and need not be loaded again

    def load(name: str, **options: Any) -> LLM:
        return model(name, **options) if options else shared[0]

    monkeypatch.setattr(structspec, "LLM", load)
    check_examples(capsys)


def test_examples_say_the_same_over_a_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # what was asked before would come in one step, and be whole when it is first shown
    forgetful = SpeculativeConfig(method="hybrid", suffix_decoding_max_cached_requests=0)
    with (
        LLM("smollm2-135m", config=EngineConfig(speculative=forgetful)) as llm,
        serving(make_app(llm._service, ServerSettings("smollm2-135m"))) as url,
    ):

        def connect(name: str, **options: Any) -> Client:
            return Client(url, None, name, **options)

        monkeypatch.setattr(structspec, "LLM", connect)
        check_examples(capsys)


def test_every_call_is_in_the_table() -> None:
    calls = {name for name in dir(LLM) if not name.startswith("_")} - {"metrics", "close"}
    assert calls == set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))


def test_both_kinds_have_the_same_calls() -> None:
    public = [{name for name in dir(one) if not name.startswith("_")} for one in (LLM, AsyncLLM)]
    assert public[0] == public[1]


def test_every_hook_is_in_the_table() -> None:
    table = PAGE[PAGE.index("| hook |") :]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(get_args(HookName))
