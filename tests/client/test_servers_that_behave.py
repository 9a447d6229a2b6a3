"""Against servers that hold what they know and ignore the rest: valid, or an error with a type."""

from __future__ import annotations

import contextlib
import datetime as dt
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from pydantic import BaseModel, Field

from structspec import Grammar, OutputInvalid, StructuralTag, UnsupportedConstraint
from structspec.client.text_check import check_text
from structspec.options import resolve_options
from tests.client.behaving import Behaving
from tests.client.fakes import PAGES, Blocking
from tests.client.test_strict import SCHEMAS

KINDS = [*PAGES, "openai"]
Word = Annotated[str, Field(max_length=4)]


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Person(BaseModel):
    name: Word
    mood: Mood
    age: Annotated[int, Field(ge=0, le=9)] | None
    born: dt.date


class Pair(BaseModel):
    words: Annotated[list[Word], Field(max_length=2)]
    inner: Person | Literal["none"] = "none"


ASKED: dict[str, dict[str, Any]] = {
    "model": {"schema": Person},
    "nested": {"schema": Pair},
    "compact": {"schema": Pair, "style": "compact"},
    "list": {"schema": Annotated[list[Mood], Field(max_length=3)]},
    "literal": {"schema": Literal["a", "b", 3]},
    "map": {"schema": Annotated[dict[str, bool], Field(max_length=1)]},
    "tuple": {"schema": tuple[bool, Mood]},
    "maps": {"schema": Annotated[list[dict[Mood, bool]], Field(max_length=1)]},
    "anything": {"schema": True, "schema_in_prompt": "never"},
    "any object": {"schema": {"type": "object", "additionalProperties": {"type": "null"}}},
    "regex": {"regex": "[a-c]{2,4}"},
    "choices": {"choices": ["yes", "no", 'per"haps|', "ü\n"]},
    "ebnf": {"grammar": 'root ::= "a" root | "b"'},
    "lark": {"grammar": Grammar('start: "a" start | "b"', dialect="lark")},
    "tag": {
        "grammar": StructuralTag(
            {"type": "structural_tag", "format": {"type": "const_string", "value": "so"}}
        )
    },
}
CASES = [(kind, what) for kind in KINDS for what in ASKED]


def conforms(what: str, text: str) -> bool:
    task = resolve_options(ASKED[what])  # type: ignore[arg-type]
    assert task.constraint is not None
    try:
        if task.target is not None:
            task.target.validate(text)
        else:
            check_text(task.constraint, text)
    except OutputInvalid:
        return False
    return True


@pytest.mark.parametrize(("kind", "what"), CASES)
def test_what_comes_back_conforms_whatever_the_server_ignores(kind: str, what: str) -> None:
    fake = Behaving(kind)
    client = Blocking(fake)
    for _ in range(3):
        try:
            result = client.generate_raw("?", **ASKED[what], max_attempts=2)
        except OutputInvalid as error:
            assert not conforms(what, error.text)
        else:
            assert conforms(what, result.text)


@pytest.mark.parametrize(("kind", "what"), CASES)
def test_what_is_called_held_is_held(kind: str, what: str) -> None:
    fake = Behaving(kind)
    try:
        Blocking(fake).generate("?", **ASKED[what], on_unsupported="error", max_attempts=1)
    except UnsupportedConstraint as error:
        assert kind in str(error) or "strict" in str(error)
        assert not fake.bodies
    except OutputInvalid:
        assert kind == "other"  # it has no words of its own, and is as good as response_format is


HOLDING = {
    "structspec": {*ASKED},
    "vllm": {*ASKED},
    "old vllm": {*ASKED} - {"tag"},
    "sglang": {*ASKED} - {"lark"},
    "llama.cpp": {*ASKED} - {"regex", "lark", "tag"},
    "openai": {"list", "literal", "choices"},  # strict mode has no maxLength
    "other": set(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_so_much_is_held_by_each_kind(kind: str) -> None:
    held = set()
    for what, options in ASKED.items():
        fake = Behaving(kind)
        try:
            Blocking(fake).generate("?", **options, on_unsupported="error", max_attempts=1)
        except (UnsupportedConstraint, OutputInvalid):
            continue
        held.add(what)
    assert held == HOLDING[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_conforms_or_ends_in_an_error(kind: str) -> None:
    for what in ("model", "list", "choices", "regex"):
        try:
            text = "".join(Blocking(Behaving(kind)).stream("?", **ASKED[what]))
        except OutputInvalid:
            assert what not in HOLDING[kind]
        else:
            assert conforms(what, text)


@settings(max_examples=60, deadline=None)
@given(SCHEMAS)
def test_openai_is_sent_nothing_that_it_refuses(schema: dict[str, Any]) -> None:
    fake = Behaving("openai")
    with contextlib.suppress(OutputInvalid):  # of keywords and forms that strict mode lacks
        result = Blocking(fake).generate_raw("?", schema=schema, max_attempts=1)
        jsonschema.validate(result.value, schema)
    assert fake.bodies
