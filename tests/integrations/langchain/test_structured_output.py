"""with_structured_output: whatever is asked for is what comes, or an error that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import AfterValidator, BaseModel, Field
from pydantic.v1 import BaseModel as BaseModelV1
from pydantic.v1 import Field as FieldV1

from structspec.errors import InvalidRequest, OutputInvalid, Truncated
from structspec.integrations.langchain import ChatStructSpec
from structspec.integrations.langchain_structured import read_schema

ASK = "Ada Lovelace was born in 1815."
METHODS = ["json_schema", "function_calling", "json_mode"]


class Person(BaseModel):
    """Somebody."""

    name: str = Field(max_length=20)
    born: int = Field(ge=1000, le=2000)


class PersonV1(BaseModelV1):
    """Somebody."""

    name: str = FieldV1(max_length=20)
    born: int


class PersonDict(TypedDict):
    """Somebody."""

    name: Annotated[str, ..., "what they are called"]
    born: Annotated[int, ..., "the year"]


@dataclass
class PersonData:
    name: Annotated[str, Field(max_length=20)]
    born: int


Year = Annotated[int, Field(ge=1000, le=2000)]
KINDS: dict[str, tuple[Any, type]] = {
    "pydantic": (Person, Person),
    "pydantic 1": (PersonV1, PersonV1),
    "TypedDict": (PersonDict, dict),
    "JSON schema": (Person.model_json_schema(), dict),
    "tool": (convert_to_openai_tool(Person), dict),
    "Anthropic's tool": ({"name": "p", "input_schema": Person.model_json_schema()}, dict),
    "dataclass": (PersonData, PersonData),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_value_is_of_the_type_that_was_asked_for(
    model: ChatStructSpec, kind: str, method: str
) -> None:
    schema, type_ = KINDS[kind]
    value = model.with_structured_output(schema, method=method).invoke(ASK)
    assert type(value) is type_
    fields = value if type_ is dict else vars(value)
    assert set(fields) == {"name", "born"}
    assert isinstance(fields["name"], str) and isinstance(fields["born"], int)


@pytest.mark.parametrize(
    "schema, type_",
    [(Literal["yes", "no"], str), (list[Year], list), (Year, int), (Year | None, int | None)],
    ids=["literal", "list", "integer", "optional"],
)
def test_values_need_not_be_objects(model: ChatStructSpec, schema: Any, type_: Any) -> None:
    bounded = Annotated[schema, Field(max_length=2)] if schema == list[Year] else schema
    value = model.with_structured_output(bounded).invoke(f"{ASK} When was it, 1815?")
    assert isinstance(value, type_)
    with pytest.raises(InvalidRequest, match="method='json_schema'"):
        model.with_structured_output(bounded, method="function_calling")


def test_json_mode_without_a_schema_gives_any_object(model: ChatStructSpec) -> None:
    asked = model.with_structured_output(method="json_mode")
    assert isinstance(asked.invoke("Write JSON with the key name."), dict)


@pytest.mark.parametrize("method", METHODS)
def test_typed_partials_grow_into_the_value(model: ChatStructSpec, method: str) -> None:
    slow = model.model_copy(update={"speculative": False})  # a token at a time
    asked = slow.with_structured_output(Person, method=method, stream_partial=True)
    *partial, last = asked.stream(ASK)
    assert type(last) is Person
    assert {type(one).__name__ for one in partial} == {"PartialPerson"}
    assert [one.model_fields_set for one in partial] == [set(), {"name"}]
    assert partial[-1].name == last.name and partial[-1].born is None


@pytest.mark.parametrize("method", METHODS)
async def test_dicts_grow_and_models_come_whole(model: ChatStructSpec, method: str) -> None:
    slow = model.model_copy(update={"speculative": False})
    dicts = slow.with_structured_output(PersonDict, method=method)
    grown = [one async for one in dicts.astream(ASK)]
    assert [set(one) for one in grown] == [set(), {"name"}, {"name", "born"}]
    models = slow.with_structured_output(Person, method=method)
    assert [type(one) async for one in models.astream(ASK)] == [Person]
    whole = slow.with_structured_output(PersonDict, method=method, stream_partial=False)
    assert len([one async for one in whole.astream(ASK)]) == 1


def test_with_the_raw_message_comes_its_value(model: ChatStructSpec) -> None:
    told = model.with_structured_output(Person, include_raw=True).invoke(ASK)
    assert Person.model_validate_json(told["raw"].text) == told["parsed"]
    assert told["parsing_error"] is None


def odd(number: int) -> int:
    if number % 2 == 0:
        raise ValueError("must be odd")
    return number


def broken(number: int) -> int:
    raise KeyError(number)


def never(number: int) -> int:
    raise ValueError("no number will do")


class Loop(BaseModel):
    """A list that is linked."""

    value: int
    next: Loop | None


class Pair(BaseModel):
    one: Person | PersonData


def test_tools_have_objects_as_arguments_however_a_schema_says_so() -> None:
    for schema in (Person, Loop, Pair, Person | Loop, {"title": "t", "properties": {}}):
        assert read_schema(schema).tool["function"]["parameters"]
    for schema in (Person | None, int, list[Person], {"title": "t", "anyOf": [{}]}):
        with pytest.raises(InvalidRequest, match="the arguments of a tool are an object"):
            assert read_schema(schema).tool


NAMED = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada"]}},
    "required": ["name"],
    "additionalProperties": False,
}
AS_FORMAT = {"name": "someone", "description": "Somebody.", "schema": NAMED, "strict": True}


@pytest.mark.parametrize(
    "given",
    [
        {"name": "someone", **NAMED},
        AS_FORMAT,
        {"type": "json_schema", "json_schema": AS_FORMAT},
        {"name": "someone", "parameters": NAMED},
        {"type": "function", "function": {"name": "someone", "parameters": NAMED}},
    ],
    ids=["schema with a name", "inner format", "response format", "tool", "OpenAI's tool"],
)
def test_a_dict_in_any_form_keeps_what_it_asks_for(given: dict[str, Any]) -> None:
    target = read_schema(given)
    assert target.validate('{"name": "Ada"}') == {"name": "Ada"}
    for other in ('{"name": "Bob"}', "3", "{}"):
        with pytest.raises(OutputInvalid):
            target.validate(other)


def test_a_tool_without_parameters_is_an_object() -> None:
    target = read_schema({"name": "stop", "description": "Stop."})
    assert target.tool["function"]["name"] == "stop"
    with pytest.raises(OutputInvalid):
        target.validate("3")


@pytest.mark.parametrize("include_raw", [True, False])
def test_options_of_a_call_count_whatever_is_told(model: ChatStructSpec, include_raw: bool) -> None:
    asked = model.with_structured_output(Person, include_raw=include_raw)
    with pytest.raises(InvalidRequest, match="temperature"):
        asked.invoke(ASK, temperature=-1)


def test_a_model_that_may_call_tools_instead_tells_of_the_calls(model: ChatStructSpec) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    given: dict[str, Any] = {"tools": [add], "tool_choice": "any"}
    said = model.with_structured_output(Person, include_raw=True, **given).invoke("Add 3 and 4.")
    assert (said["parsed"], said["parsing_error"]) == (None, None)
    assert said["raw"].tool_calls[0]["name"] == "add"
    with pytest.raises(OutputInvalid, match="include_raw=True tells of the calls"):
        model.with_structured_output(Person, **given).invoke("Add 3 and 4.")


CUT = {"max_tokens": 6}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_output_that_was_cut_is_told_beside_the_raw_message(
    model: ChatStructSpec, method: str, is_streamed: bool
) -> None:
    person = {**Person.model_json_schema(), "minProperties": 2}
    person["properties"]["name"]["minLength"] = 20
    short = model.model_copy(update=CUT)
    asked = short.with_structured_output(person, method=method, include_raw=True)
    parts = [*asked.stream(ASK)] if is_streamed else [asked.invoke(ASK)]
    told = {key: part[key] for part in parts for key in part}
    assert told["parsed"] is None
    assert isinstance(told["parsing_error"], Truncated)
    assert told["raw"].response_metadata["finish_reason"] == "length"
    assert told["parsing_error"].usage.completion_tokens == 6
    with pytest.raises(Truncated, match="max_tokens"):
        short.with_structured_output(person, method=method).invoke(ASK)


@pytest.mark.parametrize("check", [never, broken])
@pytest.mark.parametrize("method", METHODS)
def test_no_validator_gets_an_exception_past_include_raw(
    model: ChatStructSpec, method: str, check: Any
) -> None:
    class Checked(BaseModel):
        year: Annotated[int, Field(ge=1000, le=2000), AfterValidator(check)]

    asked = model.with_structured_output(Checked, method=method, include_raw=True, max_attempts=1)
    told = asked.invoke(ASK)
    assert told["parsed"] is None
    assert isinstance(told["parsing_error"], Exception)
    assert "raw" in told


def test_what_a_validator_refuses_is_drawn_again(model: ChatStructSpec) -> None:
    class Odd(BaseModel):
        number: Annotated[int, Field(ge=1, le=99), AfterValidator(odd)]

    asked = model.with_structured_output(Odd, max_attempts=20, seed=1)
    assert asked.invoke("Say a number.").number % 2 == 1


def test_a_refusal_that_stays_is_an_error_with_text_and_usage(model: ChatStructSpec) -> None:
    class Never(BaseModel):
        number: Annotated[int, Field(ge=1, le=99), AfterValidator(never)]

    with pytest.raises(OutputInvalid, match="no number will do") as caught:
        model.with_structured_output(Never, max_attempts=2).invoke("A number.")
    assert caught.value.text and caught.value.usage.completion_tokens > 0


def test_what_cannot_be_asked_for_is_refused_at_once(model: ChatStructSpec) -> None:
    with pytest.raises(InvalidRequest, match="json_schema, function_calling, json_mode"):
        model.with_structured_output(Person, method="magic")
    with pytest.raises(InvalidRequest, match="needs a schema"):
        model.with_structured_output()
    with pytest.raises(InvalidRequest, match="unknown option 'temprature'; did you mean"):
        model.with_structured_output(Person, temprature=0).invoke(ASK)
