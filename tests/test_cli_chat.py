"""`structspec chat`: answers conform, what fails ends nothing, objects are shown as they grow."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec import LLM
from structspec.cli import main
from structspec.cli.chat import indent

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
    from structspec.cli import chat as module

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
