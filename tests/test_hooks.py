"""Hooks hear of what happens in its order, and hurt nobody; retries may be told what was wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from structspec import (
    LLM,
    AsyncLLM,
    EngineConfig,
    Generation,
    HookEvent,
    InvalidRequest,
    OutputInvalid,
)
from structspec.hooks import Hooks
from structspec.options import resolve_options
from structspec.prompting import feedback_on
from structspec.service import TokenPrompt
from tests.models.reference import save_tiny_model

NAMES = ("request", "compiled", "first_token", "step", "done", "retry")
CONFIG = EngineConfig(block_size=4)
told: list[HookEvent] = []


def never(value: int) -> int:
    raise ValueError("never right")


NEVER = Annotated[int, AfterValidator(never)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama", max_position_embeddings=512)
    return folder


@pytest.fixture(scope="module")
def heard(folder: Path) -> Iterator[LLM]:
    with LLM(folder, config=CONFIG, hooks=dict.fromkeys(NAMES, told.append)) as llm:
        yield llm


def kinds() -> list[str]:
    """What was told: `compiled` comes from another thread, at any time, and steps are many."""
    found = [one.kind for one in told if one.kind != "compiled"]
    return [one for i, one in enumerate(found) if found[i - 1 : i] != [one] or one != "step"]


def test_a_request_is_heard_of_from_its_start_to_its_end(heard: LLM) -> None:
    told.clear()
    one = heard.generate_raw("Hi", regex="[a-z]{9}")
    assert kinds() == ["request", "first_token", "step", "done"]
    [compiled] = [event for event in told if event.kind == "compiled"]
    assert compiled.report is not None and compiled.report.exact
    done = told[-1]
    assert done.result is one and done.usage == one.usage and done.attempt == 1
    steps = [event for event in told if event.kind == "step"]
    assert "".join(event.text for event in steps) == one.text
    assert [event.seconds for event in steps] == sorted(event.seconds for event in steps)


def test_each_attempt_is_heard_of(heard: LLM) -> None:
    told.clear()
    with pytest.raises(OutputInvalid):
        heard.generate("Hi", schema=NEVER, max_attempts=2)
    one = ["request", "first_token", "step", "done"]
    assert [kind for kind in kinds() if kind != "retry"] == one * 2
    [retry] = [event for event in told if event.kind == "retry"]
    assert isinstance(retry.result, OutputInvalid) and retry.attempt == 1
    assert [event.attempt for event in told if event.kind == "done"] == [1, 2]


def test_streams_and_batches_give_the_same_with_and_without_hooks(heard: LLM, folder: Path) -> None:
    with LLM(folder, config=CONFIG) as silent:
        for llm in (silent, heard):
            assert "".join(llm.stream("Hi", regex="[a-z]{9}")) == heard.generate(
                "Hi", regex="[a-z]{9}"
            )


def test_what_a_hook_raises_is_logged_and_changes_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: HookEvent) -> None:
        raise RuntimeError(f"no {event.kind}")

    with (
        caplog.at_level(logging.ERROR, "structspec"),
        LLM(folder, config=CONFIG, hooks=dict.fromkeys(NAMES, fail)) as llm,
    ):
        assert len(llm.generate("Hi", regex="[a-z]{9}")) == 9
        with pytest.raises(OutputInvalid):
            llm.generate("Hi", schema=NEVER, max_attempts=2)
    for name in NAMES:
        assert any(f"the hook '{name}' failed" in one.getMessage() for one in caplog.records)


@pytest.mark.parametrize("hooks", [{"finished": print}, {"done": 3}])
def test_an_unknown_hook_is_refused_before_a_model_is_loaded(hooks: Any) -> None:
    with pytest.raises(InvalidRequest, match="hook"):
        LLM("no-such-model", hooks=hooks)


def test_nobody_asks_for_text_where_nobody_listens() -> None:
    assert not Hooks(None).wants_text
    assert not Hooks({"done": print}).wants_text
    assert Hooks({"first_token": print}).wants_text


def prompts_of(llm: LLM, prompt: Any, **options: Any) -> list[str]:
    """The prompts of all attempts at an output that is never valid."""
    service = llm._service
    prepared = service.prepare(prompt, resolve_options({"schema": NEVER, **options}))
    prompts = []
    error = OutputInvalid("no", text="12", errors=("#: never right",), usage=prepared.spent)
    while prepared is not None:
        prompts.append(service.tokenizer.decode(prepared.request.prompt_token_ids))
        last, prepared = prepared, service.next_attempt(prepared, error)
    assert last.attempt == last.task.max_attempts
    return prompts


def test_a_further_attempt_is_told_what_was_wrong_where_that_is_asked_for(heard: LLM) -> None:
    first, second, third = prompts_of(heard, "Hi", max_attempts=3, retry_feedback=True)
    assert first in second and second in third
    assert second.removeprefix(first).count("never right") == 1
    assert third.count("never right") == 2 and "12" in third
    assert len(set(prompts_of(heard, "Hi", max_attempts=3))) == 1


def test_where_there_is_no_room_or_no_message_attempts_are_as_the_first(heard: LLM) -> None:
    long = "x" * 400
    assert len(set(prompts_of(heard, long, max_attempts=2, retry_feedback=True))) == 1
    tokens = TokenPrompt((1, 2, 3))
    assert len(set(prompts_of(heard, tokens, max_attempts=2, retry_feedback=True))) == 1


def test_the_feedback_names_every_place() -> None:
    error = OutputInvalid("no", text='{"a": 1}', errors=("#/a: too small", "#/b: missing"))
    shown, told = feedback_on(error)
    assert shown == {"role": "assistant", "content": '{"a": 1}'}
    assert "#/a: too small\n#/b: missing" in told["content"]


def test_feedback_reaches_the_next_attempt_and_the_seed_draws_it_again(heard: LLM) -> None:
    seen: list[int] = []

    def second_time(value: int) -> int:
        seen.append(value)
        if len(seen) < 2:
            raise ValueError("not yet")
        return value

    kind = Annotated[int, AfterValidator(second_time)]
    one = heard.generate_raw("Hi", schema=kind, retry_feedback=True)
    assert isinstance(one, Generation)
    assert (one.num_attempts, one.value) == (2, seen[-1])
    assert told[-1].usage.prompt_tokens > len("Hi")


def test_it_is_an_option_of_constraints_alone(heard: LLM) -> None:
    with pytest.raises(InvalidRequest, match="retry_feedback="):
        heard.generate("Hi", retry_feedback=True)
    with pytest.raises(InvalidRequest, match="retry_feedback must be bool"):
        heard.generate("Hi", schema=int, retry_feedback=1)  # type: ignore[arg-type]


def test_hooks_of_the_async_twin_hear_of_it_too(folder: Path) -> None:
    told.clear()

    async def main() -> None:
        async with AsyncLLM(folder, config=CONFIG, hooks={"done": told.append}) as twin:
            await twin.generate(["a", "b"], regex="[a-z]{3}")

    asyncio.run(main())
    assert [one.kind for one in told] == ["done", "done"]
