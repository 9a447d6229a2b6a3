"""Tools, their choice, parallel calls, formats, strictness and streaming, each with each other.

Every cell is enforced or refused with the field's name. What the toy model writes is random, so an
answer that conforms does so because it had to.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from structspec import LLM
from tests.server.conftest import ASK, json_schema, schema_of, serve
from tests.server.test_chat import joined

SCHEMAS = {
    "f": schema_of(x={"enum": ["a", "b"]}),
    "g": schema_of(y={"type": "boolean"}),
}
ANSWER = schema_of(ok={"type": "boolean"})
F = {"type": "function", "function": {"name": "f"}}
G = {"type": "function", "function": {"name": "g"}}
CHOICES: dict[str, Any] = {
    "absent": None,
    "none": "none",
    "auto": "auto",
    "required": "required",
    "named": F,
    "allowed": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [G]}},
    "allowed and required": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [G]},
    },
}
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "hello"}}
FORMATS = ("absent", "text", "json_object", "json_schema", "structural_tag")
MUST_CALL = ("required", "named", "allowed and required")
CALL_TOKENS = 45  # of bytes: enough for one call, and for the beginning of a second


@dataclass(frozen=True)
class Cell:
    """One combination of them all."""

    choice: str
    format: str
    is_parallel: bool | None
    is_strict: bool | None
    is_streamed: bool

    @property
    def body(self) -> dict[str, Any]:
        strict = {} if self.is_strict is None else {"strict": self.is_strict}
        tools = [
            {"type": "function", "function": {"name": name, "parameters": schema, **strict}}
            for name, schema in SCHEMAS.items()
        ]
        formats: dict[str, Any] = {
            "absent": None,
            "text": {"type": "text"},
            "json_object": {"type": "json_object"},
            "json_schema": json_schema(ANSWER, **strict),
            "structural_tag": TAG,
        }
        given = {
            "tool_choice": CHOICES[self.choice],
            "parallel_tool_calls": self.is_parallel,
            "response_format": formats[self.format],
        }
        return {
            **{name: value for name, value in given.items() if value is not None},
            "tools": tools,
            "stream": self.is_streamed,
        }

    @property
    def max_tokens(self) -> int:
        """Enough to see what it is; of free text there is little to see."""
        is_free = self.choice not in MUST_CALL and self.format in ("absent", "text")
        return 3 if is_free else CALL_TOKENS

    @property
    def is_refused(self) -> bool:
        """Whether it may call or write this tag, which no grammar of ours has both of."""
        may_not_call = self.choice in MUST_CALL or self.choice == "none"
        return self.format == "structural_tag" and not may_not_call

    @property
    def names(self) -> set[str]:
        """What may be called."""
        if self.choice == "none":
            return set()
        if self.choice == "named":
            return {"f"}
        return {"g"} if self.choice.startswith("allowed") else {"f", "g"}

    def check(self, content: str | None, calls: list[tuple[str, str]], reason: str) -> None:
        """That an answer is one of those that were asked for."""
        is_cut = reason == "length"
        assert reason == ("length" if is_cut else "tool_calls" if calls else "stop")
        assert calls or is_cut or self.choice not in MUST_CALL
        if self.is_parallel is False or self.choice == "named":
            assert len(calls) <= 1
        for index, (name, arguments) in enumerate(calls):
            assert name in self.names
            if not (is_cut and index == len(calls) - 1):
                jsonschema.validate(json.loads(arguments), SCHEMAS[name])
        if not calls and self.choice not in MUST_CALL:
            self._check_answer(content or "", is_cut=is_cut)

    def _check_answer(self, text: str, *, is_cut: bool) -> None:
        match self.format:
            case "json_object":
                assert text.startswith("{")
                assert is_cut or isinstance(json.loads(text), dict)
                assert not is_cut or self.choice != "none"  # alone it ends in time
            case "json_schema":
                assert text in ('{"ok": true}', '{"ok": false}')
            case "structural_tag":
                assert text == "hello"


CELLS = [
    Cell(*values)
    for values in itertools.product(
        CHOICES, FORMATS, (None, True, False), (None, True, False), (False, True)
    )
]


@pytest.fixture(scope="module")
def client(toy: LLM) -> Iterator[TestClient]:
    with serve(toy) as client:
        yield client


def ask(client: TestClient, cell: Cell, seed: int) -> tuple[int, str]:
    body = {"messages": ASK, "max_tokens": cell.max_tokens, "temperature": 1, "seed": seed}
    answer = client.post("/v1/chat/completions", json={**body, **cell.body})
    return answer.status_code, answer.text


def read(cell: Cell, text: str) -> tuple[str | None, list[tuple[str, str]], str]:
    """Content, calls and finish reason of an answer, whole or streamed."""
    if cell.is_streamed:
        lines = [line for line in text.split("\n") if line.startswith("data: {")]
        said = joined([json.loads(line.removeprefix("data: ")) for line in lines])
        return said["content"], [tuple(call) for call in said["tool_calls"]], said["finish_reason"]
    (choice,) = json.loads(text)["choices"]
    message = choice["message"]
    functions = [call["function"] for call in message.get("tool_calls", [])]
    calls = [(function["name"], function["arguments"]) for function in functions]
    return message["content"], calls, choice["finish_reason"]


@pytest.mark.parametrize("choice", list(CHOICES))
def test_every_cell_is_enforced_or_refused_with_the_name_of_a_field(
    choice: str, client: TestClient
) -> None:
    cells = [cell for cell in CELLS if cell.choice == choice]
    with ThreadPoolExecutor(16) as threads:
        answers = [*threads.map(lambda c: ask(client, c, CELLS.index(c) // 2), cells)]
    said = {}
    for cell, (status, text) in zip(cells, answers, strict=True):
        if cell.is_refused:
            assert status == 400, (cell, text)
            assert json.loads(text)["error"]["param"] == "response_format", cell
            continue
        assert status == 200, (cell, text)
        said[cell] = read(cell, text)
        cell.check(*said[cell])
    for cell, (content, calls, reason) in said.items():  # whole and streamed it is the same
        if not cell.is_streamed:
            streamed = said[Cell(choice, cell.format, cell.is_parallel, cell.is_strict, True)]
            assert (content or "", calls, reason) == (streamed[0] or "", *streamed[1:])
