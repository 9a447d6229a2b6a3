"""What a type checker knows about results, asked of mypy itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CODE = """
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypedDict, assert_type

from pydantic import BaseModel

from structspec import LLM, AsyncLLM, Chosen, Generation


class Person(BaseModel):
    name: str


class Mood(Enum):
    GOOD = "good"


class Point(TypedDict):
    x: int


def of_one_prompt(llm: LLM) -> None:
    assert_type(llm.generate("x"), str)
    assert_type(llm.generate("x", choices=["a", "b"]), str)
    assert_type(llm.generate("x", schema=Person), Person)
    assert_type(llm.generate("x", schema=Mood, temperature=0.0), Mood)
    assert_type(llm.generate("x", schema=Point), Point)
    assert_type(llm.generate("x", schema=list[int]), list[int])
    assert_type(llm.generate("x", schema={"type": "object"}), Any)
    assert_type(llm.generate_raw("x", schema=Person), Generation)
    assert_type(llm.generate_raw("x", return_errors=True), Generation | Exception)


def of_several_outputs(llm: LLM, prompts: Sequence[str]) -> None:
    assert_type(llm.generate("x", n=2), list[str])
    assert_type(llm.generate("x", n=2, schema=Person), list[Person])
    assert_type(llm.generate(prompts, n=2), list[list[str]])
    assert_type(llm.generate(prompts, n=2, schema=Person), list[list[Person]])
    assert_type(llm.generate_raw("x", n=2), list[Generation])
    assert_type(llm.generate_raw(prompts, n=2), list[list[Generation]])
    assert_type(llm.generate_raw("x", n=2, return_errors=True), list[Generation | Exception])


def of_messages(llm: LLM, messages: list[dict[str, str]]) -> None:
    assert_type(llm.generate(messages), str)
    assert_type(llm.generate(messages, schema=Person), Person)
    assert_type(llm.generate([{"role": "user", "content": "x"}], schema=Person), Person)
    assert_type(llm.generate([messages, messages], schema=Person), list[Person])
    assert_type(llm.generate_raw(messages), Generation)


def of_many_prompts(llm: LLM, prompts: Sequence[str]) -> None:
    def on_result(index: int, result: Generation | Exception) -> None: ...

    assert_type(llm.generate(prompts), list[str])
    assert_type(llm.generate(["x", "y"], schema=Person), list[Person])
    assert_type(llm.generate(("x", "y"), schema=Person), list[Person])
    assert_type(llm.generate_raw(prompts, on_result=on_result), list[Generation])
    assert_type(
        llm.generate_raw(prompts, schema=Person, return_errors=True), list[Generation | Exception]
    )


def of_streams(llm: LLM) -> None:
    for person in llm.stream_partial("x", schema=Person):
        assert_type(person, Person)
    for item in llm.stream_items("x", schema=list[Person]):
        assert_type(item, Person)


def of_batches(llm: LLM, prompts: Sequence[str]) -> None:
    assert_type(llm.generate_batch(prompts, schema=Person), list[Person])
    assert_type(llm.generate_batch((p for p in prompts), schema=Mood), list[Mood])
    assert_type(llm.choose("x", ["a", "b"]), Chosen)


async def awaited(llm: AsyncLLM, prompts: list[str]) -> None:
    assert_type(await llm.generate("x"), str)
    assert_type(await llm.generate("x", schema=Person), Person)
    assert_type(await llm.generate(prompts, schema=Person), list[Person])
    assert_type(await llm.generate_raw(prompts), list[Generation])
    assert_type(await llm.generate_batch(prompts, schema=Point), list[Point])
    async for piece in llm.stream("x"):
        assert_type(piece, str)
    async for one in llm.stream_partial("x", schema=Point):
        assert_type(one, Point)
    async for item in llm.stream_items("x", schema=list[int]):
        assert_type(item, int)


def mistakes(llm: LLM) -> None:
    llm.generate("x", shema=Person)  # type: ignore[call-overload]
    llm.generate("x", schema=Person, temperature="hot")  # type: ignore[call-overload]
    llm.generate("x", on_result=print)  # type: ignore[call-overload]
"""


def test_type_checker_knows_what_a_call_returns(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CODE)
    command = [sys.executable, "-m", "mypy", str(tmp_path / "program.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
