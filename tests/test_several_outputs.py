"""n=: several outputs of one prompt, which is computed once."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from structspec import LLM, AsyncLLM, Generation, InvalidRequest, NothingAllowed
from structspec.policy import sibling
from structspec.request import SamplingParams

STORY = "Once upon a time there was a fox who lived at the edge of a wood, near a small village."


class Fox(BaseModel):
    name: str
    age: int


def test_one_prompt_gives_a_list_and_several_a_list_each(llm: LLM) -> None:
    assert llm.generate("Say yes.", n=1, choices=["yes"]) == ["yes"]
    assert llm.generate("Say yes.", n=2, choices=["yes"]) == ["yes", "yes"]
    assert llm.generate(["Say yes.", "Say it."], n=2, choices=["yes"]) == [["yes", "yes"]] * 2
    assert llm.generate([], n=2) == []


def test_with_a_seed_each_output_has_its_own_and_the_first_is_that_of_the_seed(llm: LLM) -> None:
    options = {"temperature": 1.0, "seed": 5, "max_tokens": 12}
    texts = llm.generate(STORY, n=3, **options)
    assert len({*texts}) == 3
    assert texts == llm.generate(STORY, n=3, **options)
    assert texts[:2] == llm.generate(STORY, n=2, **options)
    assert texts[0] == llm.generate(STORY, **options)


def test_seeds_of_outputs_are_far_from_each_other_and_unseeded_ones_stay_so() -> None:
    params = SamplingParams(seed=3)
    seeds = [sibling(params, index).seed for index in range(4)]
    assert seeds[0] == 3 and len({*seeds, sibling(SamplingParams(seed=4), 1).seed}) == 5
    assert sibling(SamplingParams(), 2).seed is None


def test_the_prompt_is_computed_once_and_the_grammar_compiled_once(llm: LLM) -> None:
    # beginning as no other test's prompt does: that would be found
    prompt = f"Only here it begins so. {STORY} It walked down to the river. Describe it as JSON."
    outputs = llm.generate_raw(
        prompt, n=4, schema=Fox, schema_in_prompt="never", temperature=1.0, seed=1
    )
    num_prompt = outputs[0].usage.prompt_tokens
    cached = [one.stats.num_cached_tokens for one in outputs]
    assert cached[0] < num_prompt // 2 and all(num_prompt - n <= 16 for n in cached[1:])
    assert all(isinstance(one.value, Fox) for one in outputs)
    assert {one.stats.compile_ms for one in outputs} == {outputs[0].stats.compile_ms}


def test_outputs_are_told_one_by_one_and_errors_take_their_places(llm: LLM) -> None:
    told: list[int] = []
    results = llm.generate_raw(
        ["Say yes.", "Say no."],
        n=2,
        choices=["yes", "no"],
        bad_words=["yes", "no"],
        on_result=lambda index, result: told.append(index),
        return_errors=True,
    )
    assert sorted(told) == [0, 1, 2, 3]
    assert [len(of_one) for of_one in results] == [2, 2]
    assert all(isinstance(result, NothingAllowed) for of_one in results for result in of_one)


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "2"])
def test_what_is_no_number_of_outputs_is_refused(llm: LLM, n: object) -> None:
    with pytest.raises(InvalidRequest, match="n must be a number of at least 1"):
        llm.generate("x", n=n)  # type: ignore[call-overload]


def test_a_stream_has_one_output(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="n= goes with generate and generate_raw"):
        llm.stream("x", n=2)  # type: ignore[call-arg]


def test_the_async_twin_gives_the_same(llm: LLM) -> None:
    options = {"temperature": 1.0, "seed": 5, "max_tokens": 6}

    async def run() -> list[Generation]:
        async with AsyncLLM("smollm2-135m") as twin:
            return await twin.generate_raw(STORY, n=2, **options)

    texts = [one.text for one in asyncio.run(run())]
    assert texts == llm.generate(STORY, n=2, **options)
