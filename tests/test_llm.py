"""The SDK on the real model: values come back, mistakes are named, and neighbours never suffer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from enum import Enum
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, field_validator

from structspec import (
    LLM,
    AsyncLLM,
    Cancelled,
    CompileTimeout,
    Generation,
    GenerationError,
    GrammarError,
    InvalidRequest,
    ModelNotFound,
    NothingAllowed,
    OutputInvalid,
    PromptTooLong,
    Truncated,
)
from structspec.config import EngineConfig
from structspec.constraint import Constraint
from structspec.grammars.llguidance import LLGuidanceBackend


class Person(BaseModel):
    name: str
    age: int


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


ADA = "Extract the person: Ada Lovelace, 36, lives in London."


def test_a_prompt_gives_a_value_and_a_list_of_prompts_a_list(llm: LLM):
    person = llm.generate(ADA, schema=Person)
    assert isinstance(person, Person) and person.name == "Ada Lovelace"
    several = llm.generate([ADA, ADA], schema=Person)
    assert several == [person, person]
    assert llm.generate([], schema=Person) == []


def test_messages_are_one_prompt_and_lists_of_messages_are_several(llm: LLM):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ADA}]
    assert isinstance(llm.generate(messages, schema=Person), Person)
    assert len(llm.generate([messages, messages], schema=Person)) == 2
    assert messages[1] == {"role": "user", "content": ADA}


def test_generate_raw_tells_what_it_cost(llm: LLM):
    one = llm.generate_raw(ADA, schema=Person)
    assert isinstance(one, Generation)
    assert one.value == Person.model_validate_json(one.text)
    assert one.finish_reason == "stop"
    assert one.usage.completion_tokens == len(one.token_ids)
    assert one.usage.total_tokens == one.usage.prompt_tokens + one.usage.completion_tokens
    stats = one.stats
    # one less where the stop token was drafted: nothing stands behind it
    assert stats.num_target_steps + stats.num_accepted - len(one.token_ids) in (0, 1)
    forced = [by["forced"] for by in (stats.accepted_by_source, stats.drafted_by_source)]
    assert 0 < forced[0] <= forced[1] <= stats.num_drafted
    assert stats.backend == "llguidance" and stats.compile_ms > 0 and stats.mask_ms > 0
    assert one.report is not None and one.report.exact


def test_a_prompt_seen_before_is_not_computed_again_and_changes_nothing(llm: LLM):
    prompt = f"{ADA} She wrote the first program, for a machine that was never built."
    first, second = (llm.generate_raw(prompt, schema=Person) for _ in range(2))
    num_cached = second.stats.num_cached_tokens - first.stats.num_cached_tokens
    assert 16 <= num_cached < second.usage.prompt_tokens
    assert second.token_ids == first.token_ids


def test_pieces_of_a_stream_join_to_the_text(llm: LLM):
    pieces = list(llm.stream(ADA, schema=Person))
    assert len(pieces) > 1
    assert "".join(pieces) == llm.generate_raw(ADA, schema=Person).text


def test_a_value_grows_and_is_validated_at_last(llm: LLM):
    *partial, person = llm.stream_partial(ADA, schema=Person)
    assert person == llm.generate(ADA, schema=Person)
    assert {(type(one).__name__, one.age) for one in partial} == {("PartialPerson", None)}
    assert partial[-1].name == person.name


def test_items_of_a_list_are_there_before_it_ends(llm: LLM):
    schema = Annotated[list[Person], Field(min_length=2, max_length=2)]
    items = llm.stream_items(ADA, schema=schema)
    first = next(items)
    assert isinstance(first, Person)
    assert [first, *items] == llm.generate(ADA, schema=schema)


def test_a_stream_of_items_that_is_cut_gives_those_that_are_whole(llm: LLM):
    nine = Annotated[list[Mood], Field(min_length=9)]
    items = llm.stream_items(ADA, schema=nine, max_tokens=20)
    seen = []
    with pytest.raises(Truncated) as caught:
        for item in items:
            seen.append(item)
    assert seen and all(item in Mood for item in seen)
    assert caught.value.usage is not None and caught.value.usage.completion_tokens == 20


def test_an_invalid_item_ends_its_stream_with_what_was_used(llm: LLM):
    class Never(BaseModel):
        age: int

        @field_validator("age")
        @classmethod
        def refuse(cls, age: int) -> int:
            raise ValueError("never old enough")

    with pytest.raises(OutputInvalid, match="#/0/age") as caught:
        list(llm.stream_items(ADA, schema=Annotated[list[Never], Field(min_length=9)]))
    assert caught.value.usage is not None and caught.value.usage.completion_tokens > 0


@pytest.mark.parametrize("is_begun", [True, False], ids=["begun", "unread"])
def test_closing_a_stream_early_cancels_its_request(llm: LLM, is_begun: bool):
    stream = llm.stream("Write a long story.", max_tokens=500, ignore_eos=True)
    if is_begun:
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert llm.generate(ADA, schema=Person).name == "Ada Lovelace"
    assert llm.metrics().num_requests_running == 0


def test_results_of_a_batch_are_told_as_they_finish(llm: LLM):
    told: dict[int, Generation | Exception] = {}
    results = llm.generate_raw(
        [ADA, "Say yes."],
        choices=["yes", "no"],
        on_result=lambda i, result: told.update({i: result}),
    )
    assert [told[0], told[1]] == results


def test_many_threads_share_one_model(llm: LLM):
    values: list[object] = [None] * 4

    def work(index: int) -> None:
        values[index] = llm.generate(ADA, schema=Person)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(value == values[0] and isinstance(value, Person) for value in values)


BAD_CALLS = {
    "unresolvable $ref": (
        {"schema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/B"}}}},
        GrammarError,
        "#/properties/a",
    ),
    "no JSON Schema": ({"schema": {"type": "text"}}, GrammarError, "#/type"),
    "unsatisfiable": ({"schema": False}, GrammarError, "#"),
    "not a type": ({"schema": 3.5}, InvalidRequest, "pydantic"),
    "malformed regex": ({"regex": "a(b"}, GrammarError, "line 1, column 4"),
    "malformed Lark": ({"grammar": 'start: "a'}, GrammarError, "line 1"),
    "malformed EBNF": ({"grammar": 'root ::= "a'}, GrammarError, "line 1"),
    "unknown rule": ({"grammar": "start: missing"}, GrammarError, "missing"),
    "unknown allowed token": ({"allowed_token_ids": [1, 10**6]}, InvalidRequest, "allowed_token"),
    "unknown stop token": ({"stop_token_ids": [10**6]}, InvalidRequest, "stop_token_ids holds"),
    "limits that leave nothing": (
        {"choices": ["yes"], "bad_words": ["y"]},
        NothingAllowed,
        "bad_words leave no token that may follow the first 0",
    ),
    "empty choices": ({"choices": []}, InvalidRequest, "empty"),
    "two constraints": ({"schema": Person, "regex": "a"}, InvalidRequest, "contradict"),
    "sampling out of range": ({"top_p": 1.5}, InvalidRequest, "top_p"),
    "no tokens at all": ({"max_tokens": 0}, InvalidRequest, "max_tokens"),
    "empty stop string": ({"stop": [""]}, InvalidRequest, "stop"),
    "too few tokens": ({"schema": Person, "max_tokens": 4}, Truncated, "max_tokens"),
    "stop string cuts": ({"schema": Person, "stop": ["age"]}, Truncated, "stop string 'age'"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_named_and_touches_no_other_request(llm: LLM, name: str):
    options, kind, words = BAD_CALLS[name]
    neighbour: list[object] = []
    thread = threading.Thread(target=lambda: neighbour.append(llm.generate(ADA, schema=Person)))
    thread.start()
    with pytest.raises(kind, match=words.replace("$", r"\$")):
        llm.generate(ADA, **options)
    thread.join()
    assert neighbour == [Person(name="Ada Lovelace", age=neighbour[0].age)]  # type: ignore[attr-defined]


def test_one_failing_prompt_of_a_batch_loses_nothing_of_the_others(llm: LLM):
    results = llm.generate_raw(
        [ADA, "Count to a thousand in words, in the name."],
        schema=Person,
        max_tokens=30,
        return_errors=True,
    )
    assert isinstance(results[0], Generation)
    assert isinstance(results[1], Truncated | Generation)


def test_truncated_carries_the_text_and_the_usage(llm: LLM):
    with pytest.raises(Truncated, match="before its JSON was complete") as caught:
        llm.generate(ADA, schema=Person, max_tokens=4)
    assert caught.value.text.startswith('{"name"')
    assert caught.value.usage is not None and caught.value.usage.completion_tokens == 4


def test_max_tokens_that_is_just_enough_is_no_truncation(llm: LLM):
    whole = llm.generate_raw(ADA, schema=Person)
    num_tokens = len(whole.token_ids)  # the stop token too
    just = llm.generate_raw(ADA, schema=Person, max_tokens=num_tokens)
    assert (just.value, just.finish_reason) == (whole.value, "stop")
    less = llm.generate_raw(ADA, schema=Person, max_tokens=num_tokens - 1)
    assert isinstance(less.value, Person) and less.finish_reason == "stop"
    regex = llm.generate_raw(ADA, regex="[0-9]{2,9}", max_tokens=2)
    assert (len(regex.text), regex.finish_reason) == (2, "length")
    with pytest.raises(Truncated):  # a number cut off is not the number that was meant
        llm.generate(ADA, schema={"type": "integer", "minimum": 10**9}, max_tokens=10)


def test_what_only_a_validator_can_check_is_a_typed_error(llm: LLM):
    class Old(BaseModel):
        age: int

        @field_validator("age")
        @classmethod
        def refuse(cls, age: int) -> int:
            raise ValueError("never old enough")

    class Broken(BaseModel):
        age: int

        @field_validator("age")
        @classmethod
        def fail(cls, age: int) -> int:
            raise RuntimeError("a fault of the caller's own")

    results = llm.generate_raw([ADA, ADA], schema=Broken, return_errors=True)
    assert [type(result) for result in results] == [RuntimeError, RuntimeError]

    with pytest.raises(OutputInvalid) as caught:
        llm.generate(ADA, schema=Old)
    assert caught.value.errors == ("#/age: Value error, never old enough",)
    assert caught.value.text.startswith('{"age": ') and caught.value.usage is not None


def test_a_prompt_longer_than_the_context_is_refused_before_anything_runs(llm: LLM):
    with pytest.raises(PromptTooLong, match="8192"):
        llm.generate("word " * 9000)


@pytest.mark.parametrize(
    "prompt", [3, None, ["a", {"role": "user", "content": "b"}], [{"role": "user"}]]
)
def test_what_is_no_prompt_is_refused(llm: LLM, prompt: object):
    with pytest.raises(InvalidRequest):
        llm.generate(prompt)  # type: ignore[call-overload]


def test_an_unknown_model_names_the_known_ones():
    with pytest.raises(ModelNotFound, match="smollm2-135m"):
        LLM("smollm3")


def test_enum_values_come_back_as_the_enum(llm: LLM):
    assert llm.generate("I love it. Is the mood good or bad?", schema=Mood) in Mood


def test_compiling_beyond_its_limit_is_an_error_of_that_request_alone(monkeypatch):
    compile_at_once = LLGuidanceBackend.compile

    def compile_slowly(backend: LLGuidanceBackend, constraint: Constraint) -> object:
        time.sleep(1.0)
        return compile_at_once(backend, constraint)

    monkeypatch.setattr(LLGuidanceBackend, "compile", compile_slowly)
    config = EngineConfig(compile_timeout_s=0.05, max_model_len=256)
    with LLM("smollm2-135m", config=config) as llm:
        with pytest.raises(CompileTimeout):
            llm.generate(ADA, schema=Person)
        assert llm.generate("Hi", max_tokens=2)


def test_a_closed_model_says_so_and_ends_what_runs():
    llm = LLM("smollm2-135m", config=EngineConfig(max_model_len=512))
    stream = llm.stream("Write a long story.", max_tokens=400)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(Cancelled):
        list(stream)
    with pytest.raises(Cancelled):
        llm.generate("Hi")


def test_the_async_twin_gives_the_same_and_cancels_with_its_task(llm: LLM):
    async def main() -> None:
        async with AsyncLLM("smollm2-135m", config=EngineConfig(max_model_len=1024)) as twin:
            both = await asyncio.gather(*(twin.generate(ADA, schema=Person) for _ in range(2)))
            assert both == [llm.generate(ADA, schema=Person)] * 2
            ages: list[int] = []

            class Picky(BaseModel):
                age: int

                @field_validator("age")
                @classmethod
                def refuse_the_first(cls, age: int) -> int:
                    ages.append(age)
                    if len(ages) == 1:
                        raise ValueError("not this one")
                    return age

            again = await twin.generate_raw(ADA, schema=Picky)
            assert (again.num_attempts, again.value.age, len(ages)) == (2, ages[1], 2)
            pieces = [piece async for piece in twin.stream(ADA, schema=Person)]
            assert Person.model_validate_json("".join(pieces)) == both[0]
            assert [one async for one in twin.stream_partial(ADA, schema=Person)][-1] == both[0]
            moods = Annotated[list[Mood], Field(min_length=1, max_length=2)]
            assert [one async for one in twin.stream_items(ADA, schema=moods)][0] in Mood
            endless = asyncio.create_task(twin.generate("Write a long story.", max_tokens=900))
            await asyncio.sleep(0.3)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            with pytest.raises(GenerationError):
                await twin.generate(ADA, schema=Person, max_tokens=3)

    asyncio.run(main())


def test_a_process_that_never_closes_its_model_still_ends_cleanly():
    script = (
        "from structspec import LLM\n"
        "llm = LLM('smollm2-135m')\n"
        "print(llm.generate('Yes or no?', choices=['yes', 'no']))\n"
        "stream = llm.stream('Write a long story.')\n"
        "next(stream)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
