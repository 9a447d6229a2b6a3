"""What each kind of server is told of a constraint, and what becomes of its answer."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from structspec import (
    Grammar,
    InvalidRequest,
    OutputInvalid,
    StructuralTag,
    ToolCall,
    Tools,
    Truncated,
    UnsupportedConstraint,
    Usage,
)
from tests.client.fakes import PAGES, Connect, Fake

KINDS = [*PAGES, "openai"]


class Person(BaseModel):
    name: str
    born: int


ADA = '{"name": "Ada", "born": 1815}'
EBNF = 'root ::= "a" | "b"'
LARK = 'start: "a" | "b"'
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}

# what is asked for, and the fields that say so
TOLD: dict[str, dict[str, Any]] = {
    "structspec": {
        "regex": {"structured_outputs": {"regex": "[ab]"}},
        "choices": {"structured_outputs": {"choice": ["a", "b"]}},
        "ebnf": {"structured_outputs": {"grammar": EBNF}},
        "lark": {"structured_outputs": {"grammar": LARK}},
    },
    "vllm": {
        "regex": {"structured_outputs": {"regex": "[ab]"}},
        "choices": {"structured_outputs": {"choice": ["a", "b"]}},
        "ebnf": {"structured_outputs": {"grammar": EBNF}},
        "lark": {"structured_outputs": {"grammar": LARK}},
    },
    "old vllm": {
        "regex": {"guided_regex": "[ab]"},
        "choices": {"guided_choice": ["a", "b"]},
        "ebnf": {"guided_grammar": EBNF},
        "lark": {"guided_grammar": LARK},
    },
    "sglang": {
        "regex": {"regex": "[ab]"},
        "choices": {"regex": "(a|b)"},
        "ebnf": {"ebnf": EBNF},
        "lark": None,
    },
    "llama.cpp": {
        "regex": None,
        "choices": {"grammar": 'root ::= "a" | "b"'},
        "ebnf": {"grammar": EBNF},
        "lark": None,
    },
    "openai": {"regex": None, "ebnf": None, "lark": None},
    "other": {"regex": None, "choices": None, "ebnf": None, "lark": None},
}
ASKED: dict[str, dict[str, Any]] = {
    "regex": {"regex": "[ab]"},
    "choices": {"choices": ["a", "b"]},
    "ebnf": {"grammar": EBNF},
    "lark": {"grammar": LARK},
}
FIELDS = (
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "regex",
    "ebnf",
    "grammar",
    "response_format",
    "json_schema",
)
CASES = [(kind, what) for kind, told in TOLD.items() for what in told]


@pytest.mark.parametrize(("kind", "what"), CASES)
def test_a_constraint_is_sent_as_the_server_knows_it(
    kind: str, what: str, connect: Connect
) -> None:
    fake = Fake(kind, "a")
    assert connect(fake).generate("?", **ASKED[what]) == "a"
    sent = {name: fake.body[name] for name in FIELDS if name in fake.body}
    assert sent == (TOLD[kind][what] or {})


@pytest.mark.parametrize(("kind", "what"), CASES)
def test_an_answer_that_breaks_its_constraint_is_never_returned(
    kind: str, what: str, connect: Connect
) -> None:
    fake = Fake(kind, "c")
    with pytest.raises(OutputInvalid) as caught:
        connect(fake).generate("?", **ASKED[what], max_attempts=2)
    assert caught.value.text == "c"
    assert caught.value.usage == Usage(14, 6)  # of both attempts
    assert len(fake.bodies) == 2


@pytest.mark.parametrize(("kind", "what"), [case for case in CASES if TOLD[case[0]][case[1]]])
def test_what_a_server_holds_passes_the_strictest_policy(
    kind: str, what: str, connect: Connect
) -> None:
    assert connect(Fake(kind, "b")).generate("?", **ASKED[what], on_unsupported="error") == "b"


@pytest.mark.parametrize(("kind", "what"), [case for case in CASES if not TOLD[case[0]][case[1]]])
def test_what_a_server_cannot_hold_is_refused_where_that_is_asked_for(
    kind: str, what: str, connect: Connect
) -> None:
    fake = Fake(kind, "b")
    with pytest.raises(UnsupportedConstraint, match=kind):
        connect(fake).generate("?", **ASKED[what], on_unsupported="error")
    assert not fake.bodies


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_is_sent_as_a_schema_and_comes_back_as_itself(kind: str, connect: Connect) -> None:
    fake = Fake(kind, ADA)
    person = connect(fake).generate("Ada?", schema=Person)
    assert person == Person(name="Ada", born=1815)
    format = fake.body["response_format"]
    assert format["type"] == "json_schema"
    inner = format["json_schema"]
    assert inner["name"] == "Person" and inner["strict"] is True
    assert set(inner["schema"]["properties"]) == {"name", "born"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_in_the_prompt_unless_the_server_puts_it_there(
    kind: str, connect: Connect
) -> None:
    fake = Fake(kind, ADA)
    connect(fake).generate("Ada?", schema=Person)
    prompt = fake.body["messages"][-1]["content"]
    assert prompt.endswith("Ada?")
    assert ("born" in prompt) == (kind != "openai")


def test_openai_gets_lists_and_choices_as_the_value_of_an_object(connect: Connect) -> None:
    fake = Fake("openai", '{"value": [1, 2]}')
    assert connect(fake).generate("?", schema=list[int]) == [1, 2]
    schema = fake.body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["value"] and schema["additionalProperties"] is False
    assert connect(Fake("openai", '{"value": "b"}')).generate("?", choices=["a", "b"]) == "b"
    assert connect(Fake("openai", '{"value": "x"}')).generate("?", schema=Literal["x"]) == "x"


def test_what_strict_mode_has_no_form_of_becomes_json_and_is_validated(connect: Connect) -> None:
    fake = Fake("openai", '{"a": "x"}', '{"a": 1}')
    assert connect(fake).generate("?", schema=dict[str, int]) == {"a": 1}
    assert len(fake.bodies) == 2
    assert all(body["response_format"] == {"type": "json_object"} for body in fake.bodies)
    with pytest.raises(UnsupportedConstraint, match="strict mode"):
        connect(fake).generate("?", schema=dict[str, int], on_unsupported="error")


class Elder(Person):
    @field_validator("born")
    @classmethod
    def is_long_ago(cls, born: int) -> int:
        assert born < 1800, "too young"
        return born


def test_output_that_only_python_refuses_is_drawn_again_with_another_seed(
    connect: Connect,
) -> None:
    fake = Fake("vllm", ADA, '{"name": "Ur", "born": 3}')
    result = connect(fake).generate_raw("?", schema=Elder, temperature=0)
    assert result.value == Elder(name="Ur", born=3)
    assert result.num_attempts == 2 and result.usage == Usage(14, 6)
    first, second = fake.bodies
    assert first["temperature"] == 0 and second["temperature"] > 0 and "seed" in second
    with pytest.raises(OutputInvalid, match="too young"):
        connect(Fake("vllm", ADA)).generate("?", schema=Elder, max_attempts=1)
    with pytest.raises(UnsupportedConstraint):
        connect(fake).generate("?", schema=Elder, on_unsupported="error")


def test_a_cut_answer_says_so_and_is_not_asked_for_again(connect: Connect) -> None:
    fake = Fake("vllm", {"content": '{"name": "A', "finish_reason": "length"})
    with pytest.raises(Truncated) as caught:
        connect(fake).generate("?", schema=Person)
    assert caught.value.text == '{"name": "A' and caught.value.usage == Usage(7, 3)
    assert len(fake.bodies) == 1


@pytest.mark.parametrize("text", ["1815", "18 "])
def test_a_number_that_may_have_gone_on_counts_as_cut(text: str, connect: Connect) -> None:
    fake = Fake("vllm", {"content": text, "finish_reason": "length"})
    with pytest.raises(Truncated):
        connect(fake).generate("?", schema=int)


def test_free_text_may_be_cut(connect: Connect) -> None:
    fake = Fake("vllm", {"content": "once upon", "finish_reason": "length"})
    result = connect(fake).generate_raw("?")
    assert result.value == "once upon" and result.finish_reason == "length"


WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def calling(*arguments: str, name: str = "weather") -> dict[str, Any]:
    calls = [
        {"id": "c", "type": "function", "function": {"name": name, "arguments": one}}
        for one in arguments
    ]
    return {"content": None, "tool_calls": calls, "finish_reason": "tool_calls"}


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_tools_come_back_parsed_and_validated(kind: str, connect: Connect) -> None:
    fake = Fake(kind, calling('{"city": "Ur"}'))
    tools = Tools([WEATHER], choice="weather", parallel=False)
    [call] = connect(fake).generate("Rain?", grammar=tools)
    assert call == ToolCall("weather", {"city": "Ur"}, '{"city": "Ur"}')
    assert fake.body["tools"] == [{"type": "function", "function": WEATHER}]
    assert fake.body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert fake.body["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    "said",
    [
        calling('{"city": 3}'),
        calling("{}"),
        calling("{"),
        calling("{}", name="snow"),
        calling('{"city": "Ur"}', '{"city": "Uruk"}'),
        "It will rain.",
    ],
    ids=["type", "missing", "no JSON", "name", "two", "none"],
)
def test_a_wrong_call_is_never_returned(said: Any, connect: Connect) -> None:
    tools = Tools([WEATHER], choice="required", parallel=False)
    with pytest.raises(OutputInvalid):
        connect(Fake("other", said)).generate("Rain?", grammar=tools, max_attempts=1)


def test_an_answer_beside_tools_is_text(connect: Connect) -> None:
    assert connect(Fake("vllm", "No.")).generate("Rain?", grammar=Tools([WEATHER])) == "No."


@pytest.mark.parametrize("kind", ["structspec", "vllm", "sglang"])
def test_structural_tags_are_a_response_format(kind: str, connect: Connect) -> None:
    fake = Fake(kind, "a")
    assert connect(fake).generate("?", grammar=StructuralTag(TAG)) == "a"
    assert fake.body["response_format"] == TAG


def test_a_grammar_said_to_be_ebnf_is_sent_as_such_to_ourselves(connect: Connect) -> None:
    fake = Fake("structspec", "a")
    connect(fake).generate("?", grammar=Grammar(EBNF, dialect="ebnf"))
    assert fake.body["ebnf"] == EBNF


def test_compact_json_is_asked_for_where_there_is_a_field_for_it(connect: Connect) -> None:
    fake = Fake("vllm", '{"name":"Ada","born":1}')
    connect(fake).generate("?", schema=Person, style="compact")
    assert fake.body["structured_outputs"]["disable_any_whitespace"] is True


def test_a_refusal_is_no_output(connect: Connect) -> None:
    fake = Fake("openai", {"content": None, "refusal": "I must not."})
    with pytest.raises(OutputInvalid, match="I must not"):
        connect(fake).generate("?", schema=Person, max_attempts=1)


class Bounded(BaseModel):
    name: str = Field(max_length=3)


def test_keywords_that_strict_mode_lacks_are_left_out_and_validated(connect: Connect) -> None:
    fake = Fake("openai", '{"name": "Adam"}', '{"name": "Ada"}')
    assert connect(fake).generate("?", schema=Bounded) == Bounded(name="Ada")
    sent = fake.bodies[0]["response_format"]["json_schema"]["schema"]
    assert "maxLength" not in sent["properties"]["name"]
    with pytest.raises(UnsupportedConstraint, match="#/properties/name/maxLength"):
        connect(fake).generate("?", schema=Bounded, on_unsupported="error")


def test_contradictions_are_refused_before_anything_is_asked(connect: Connect) -> None:
    fake = Fake("vllm")
    with pytest.raises(InvalidRequest, match="contradict"):
        connect(fake).generate("?", schema=Person, regex="a")
    assert not fake.asked
