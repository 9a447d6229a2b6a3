"""`structspec chat`: answers conform, what fails ends nothing, objects are shown as they grow."""

from __future__ import annotations

import argparse
import io
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from structspec import LLM
from structspec.cli import chat as module
from structspec.cli import main
from structspec.cli.chat import indent, show_growing

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(values)
def test_a_whole_object_is_shown_as_json_writes_it(value: Any) -> None:
    expected = json.dumps(value, indent=2, ensure_ascii=False)
    assert indent(json.dumps(value, ensure_ascii=False)) == expected
    assert indent(expected) == expected


@given(values, st.data())
def test_what_was_shown_stays_where_it_is(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False)
    end = data.draw(st.integers(0, len(text)))
    assert indent(text).startswith(indent(text[:end]).rstrip())


@settings(max_examples=15, deadline=None)
@given(values, st.lists(st.integers(1, 30), min_size=1))
def test_what_stays_on_the_screen_is_the_whole_object(value: Any, sizes: list[int]) -> None:
    """However small the screen is, and whatever pieces the text comes in."""
    text, pieces = json.dumps([value, 19.90], ensure_ascii=True), []
    while rest := text[sum(map(len, pieces)) :]:
        pieces.append(rest[: sizes[len(pieces) % len(sizes)]])
    screen = Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=400, height=6
    )
    assert show_growing(pieces, screen) == text
    assert isinstance(screen.file, io.StringIO)
    last = re.split(r"\x1b\[\d*[A-Z]", screen.file.getvalue())  # movements of the cursor
    shown = "".join(last).rstrip("\n").replace("\x1b[?25h", "").replace("\r", "\n")
    assert shown.rstrip().endswith(indent(text).rstrip())


def chat(monkeypatch: pytest.MonkeyPatch, llm: LLM, lines: str, *arguments: str) -> int:
    """A conversation with the session's model."""

    class Lent:
        def __enter__(self) -> LLM:
            return llm

        def __exit__(self, *_: object) -> None:
            """It is the session's."""

    monkeypatch.setattr("structspec.llm.LLM", lambda *_, **__: Lent())
    monkeypatch.setattr("structspec.cli.chat._talk", _talk_with(llm))
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    return main(["chat", *arguments])


def _talk_with(llm: LLM) -> Any:
    talk = module._talk
    return lambda _, options, arguments: talk(llm, options, arguments)


PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 16}, "born": {"type": "integer"}},
        "required": ["name", "born"],
    }
)


def test_every_answer_conforms(
    monkeypatch: pytest.MonkeyPatch, llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "Ada Lovelace, born 1815.\n\n/reset\nAlan Turing, born 1912.\n/quit\nunheard\n"
    status = chat(monkeypatch, llm, lines, "--schema", PERSON, "--temperature", "0", "--stats")
    told = capsys.readouterr()
    answers = [json.loads(line) for line in told.out.splitlines()]
    assert status == 0 and [set(answer) for answer in answers] == [{"name", "born"}] * 2
    assert told.err.count("drafts accepted") == 2


def test_an_answer_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "Ada Lovelace.\n" + "long " * 9000 + "\n"
    arguments = ("--regex", "[a-c]{3}", "--system", "Be brief.")
    assert chat(monkeypatch, llm, lines, *arguments) == 2
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 1 and "context" in told.err


def test_a_wrong_schema_is_told_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["chat", "no-such-model", "--schema", '{"type": "nonsense"}']) == 2
    assert "nonsense" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_ctrl_c_stops_an_answer_and_on_a_terminal_not_the_conversation(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    asked: list[str] = []

    class Interrupted:
        def metrics(self) -> None:
            """Nobody looks at them."""

        def stream(self, messages: list[dict[str, Any]], **_: object) -> Iterator[str]:
            asked.append(messages[-1]["content"])
            yield "The "
            if messages[-1]["content"] == "One":
                raise KeyboardInterrupt

    lines = iter(["One", "Two"])
    monkeypatch.setattr("sys.stdin", Terminal() if is_terminal else io.StringIO())
    monkeypatch.setattr("builtins.input", lambda _: next(lines, None) or _end())
    options = argparse.Namespace(system=None, stats=False)
    talk = partial(module._talk, cast(LLM, Interrupted()), options, {})
    if is_terminal:
        assert talk() == 0
        assert asked == ["One", "Two"]
    else:
        with pytest.raises(KeyboardInterrupt):
            talk()


def _end() -> str:
    raise EOFError
