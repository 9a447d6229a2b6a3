"""choose: the probabilities are those that softmax gives by hand, token by token."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from structspec import LLM, AsyncLLM, EngineConfig, InvalidRequest, PromptTooLong
from structspec.choosing import choose_among
from structspec.request import Usage
from structspec.token_logprob import TokenLogprob
from tests.models.reference import reference_logits, save_tiny_model

CHOICES = ["yes", "no", "yes, sir", "ü"]
PROMPT = "Say it."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> torch.nn.Module:
    return save_tiny_model(folder, "llama")


@pytest.fixture(scope="module")
def tiny(folder: Path, model: torch.nn.Module) -> LLM:
    with LLM(folder, config=EngineConfig(block_size=4)) as llm:
        yield llm


def by_hand(llm: LLM, model: torch.nn.Module, choice: str) -> float:
    """The sum of log softmax over the tokens of a choice, and over the likeliest stop token."""
    tokenizer = llm._service.tokenizer
    prompt = tokenizer.encode_chat([{"role": "user", "content": PROMPT}])
    written = tokenizer.encode(choice)
    logprobs = reference_logits(model, prompt + written).double().log_softmax(-1)
    of_tokens = [float(logprobs[len(prompt) - 1 + i, token]) for i, token in enumerate(written)]
    return sum(of_tokens) + float(logprobs[-1, list(tokenizer.stop_token_ids)].max())


def test_probabilities_are_what_softmax_gives_by_hand(tiny: LLM, model: torch.nn.Module) -> None:
    chosen = tiny.choose(PROMPT, CHOICES)
    expected = {choice: by_hand(tiny, model, choice) for choice in CHOICES}
    assert chosen.logprobs == pytest.approx(expected, abs=1e-3)
    total = sum(math.exp(one) for one in expected.values())
    assert chosen.probs == pytest.approx(
        {choice: math.exp(one) / total for choice, one in expected.items()}, abs=1e-3
    )
    assert sum(chosen.probs.values()) == pytest.approx(1)
    assert chosen.best == max(expected, key=lambda choice: expected[choice])
    assert list(chosen.probs) == CHOICES


def test_they_do_not_hang_on_what_else_is_scored_or_was_before(tiny: LLM) -> None:
    whole = tiny.choose(PROMPT, CHOICES)
    for choice in CHOICES:
        alone = tiny.choose(PROMPT, [choice])
        assert (alone.best, alone.probs) == (choice, {choice: 1.0})
        assert alone.logprobs[choice] == pytest.approx(whole.logprobs[choice], abs=1e-4)


def test_the_empty_answer_is_scored_by_its_end_alone(tiny: LLM, model: torch.nn.Module) -> None:
    assert tiny.choose(PROMPT, [""]).logprobs[""] == pytest.approx(
        by_hand(tiny, model, ""), abs=1e-3
    )


def test_a_sure_thing_is_chosen_by_a_real_model(llm: LLM) -> None:
    prompt = "Which city is the capital of France? Answer with its name alone."
    chosen = llm.choose(prompt, ["Bern", "Paris", "Oslo"])
    assert chosen.best == "Paris" and chosen.probs["Paris"] > 0.5


def test_it_can_be_awaited(tiny: LLM, folder: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(folder, config=EngineConfig(block_size=4)) as twin:
            chosen = await twin.choose(PROMPT, CHOICES)
            assert chosen.logprobs == pytest.approx(tiny.choose(PROMPT, CHOICES).logprobs, abs=1e-4)

    asyncio.run(main())


@pytest.mark.parametrize("choices", [[], "yes", ["a", "b", "a"], ["a", 3], None])
def test_what_is_no_list_of_different_strings_is_refused(tiny: LLM, choices: object) -> None:
    with pytest.raises(InvalidRequest, match="choices"):
        tiny.choose(PROMPT, choices)  # type: ignore[arg-type]


def test_a_prompt_without_room_is_refused(tiny: LLM) -> None:
    with pytest.raises(PromptTooLong):
        tiny.choose("x" * 200, ["yes"])


def test_answers_that_are_hardly_likely_at_all_are_compared_all_the_same() -> None:
    """Their probabilities are zero as floats: e^-2000 and e^-2001."""
    written = [
        SimpleNamespace(logprobs=(TokenLogprob(1, -2000.0 - i),), usage=Usage(1, 1))
        for i in range(2)
    ]
    chosen = choose_among(["a", "b"], written, [1, 1])  # type: ignore[arg-type]
    assert chosen.probs["a"] == pytest.approx(math.e / (math.e + 1))
    assert chosen.usage == Usage(2, 2)
