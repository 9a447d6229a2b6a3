"""Reasoning through the SDK: a tiny model whose chat template opens and closes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from structspec import LLM, AsyncLLM, EngineConfig, InvalidRequest, Reasoning, Tools, Truncated
from structspec.engine.loop import News
from structspec.options import resolve_options
from tests.models.reference import save_tiny_model

TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor -%}
<|im_start|>assistant
{% if enable_thinking is defined %}<think>
{% if not enable_thinking %}
</think>

{% endif %}{% endif %}"""
CONFIG = EngineConfig(max_model_len=256, num_blocks=64)
LEN = {"max_position_embeddings": 256}
PAIR = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("thinking")
    save_tiny_model(folder, "llama", **LEN)
    settings = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def thinking(folder: Path) -> Iterator[LLM]:
    with LLM(folder, device="cpu", config=CONFIG) as model:
        yield model


def test_a_request_reasons_within_its_bound_and_answers_in_its_schema(thinking: LLM) -> None:
    one = thinking.generate_raw("Hi", schema=PAIR, reasoning=True, max_reasoning_tokens=9)
    assert one.value == json.loads(one.text) and set(one.value) == {"a", "b"}
    assert one.reasoning is not None and len(one.reasoning) <= 9
    end = 9 + len("</think>")
    assert end <= one.usage.reasoning_tokens <= end + 1  # a line break may follow
    assert one.stats.constraint_start == one.usage.reasoning_tokens
    assert one.usage.completion_tokens == len(one.token_ids)


@pytest.mark.parametrize("wish", [True, None, {"answer_share": 0.5}])
def test_at_temperature_0_speculation_changes_nothing(thinking: LLM, wish: object) -> None:
    with_drafts, without = (
        thinking.generate_raw(
            "Hi", schema=PAIR, reasoning=wish, max_tokens=90, speculative=speculative
        )
        for speculative in (True, False)
    )
    assert with_drafts.token_ids == without.token_ids
    assert with_drafts.reasoning == without.reasoning
    assert with_drafts.value == without.value


def test_a_request_that_would_reason_for_ever_answers_in_time(thinking: LLM) -> None:
    one = thinking.generate_raw("Hi", schema=PAIR, reasoning=True, max_tokens=100)
    assert one.finish_reason == "stop" and one.usage.completion_tokens <= 100
    assert one.usage.reasoning_tokens <= 75


def test_without_reasoning_the_template_closes_it_and_the_grammar_holds_at_once(
    thinking: LLM,
) -> None:
    one = thinking.generate_raw("Hi", schema=PAIR, reasoning=False)
    assert one.reasoning is None and one.stats.constraint_start == 0
    assert one.usage.reasoning_tokens == 0


def test_free_text_has_its_bound_too_and_stop_strings_end_the_answer_alone(thinking: LLM) -> None:
    bound = thinking.generate_raw("Hi", reasoning=True, max_reasoning_tokens=20, max_tokens=60)
    assert bound.reasoning is not None and bound.report is None
    assert bound.value == bound.text
    stop = bound.reasoning[3]
    again = thinking.generate_raw(
        "Hi", reasoning=True, max_reasoning_tokens=20, max_tokens=60, stop=stop
    )
    assert again.reasoning == bound.reasoning and stop not in again.text


def test_pieces_of_a_stream_join_to_the_answer_and_news_tell_the_reasoning(
    thinking: LLM,
) -> None:
    options = {"schema": PAIR, "reasoning": True, "max_tokens": 90}
    whole = thinking.generate_raw("Hi", **options)
    assert "".join(thinking.stream("Hi", **options)) == whole.text
    news: list[News] = []
    service = thinking._service
    prepared = service.prepare("Hi", resolve_options(options))
    done = asyncio.run(_wait(service, prepared, news))
    assert done
    assert "".join(item.reasoning for item in news) == whole.reasoning
    assert "".join(item.text for item in news) == whole.text


async def _wait(service, prepared, news: list[News]) -> bool:
    finished = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen(item: News) -> None:
        news.append(item)
        if item.finished is not None:
            loop.call_soon_threadsafe(finished.set)

    service.start(prepared, listen, is_streamed=True)
    return await asyncio.wait_for(finished.wait(), 60)


def test_tool_calls_come_behind_reasoning(thinking: LLM) -> None:
    parameters = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    tools = Tools([{"name": "f", "parameters": parameters}], choice="required", parallel=False)
    one = thinking.generate_raw("Hi", grammar=tools, reasoning=True, max_reasoning_tokens=5)
    assert [call.name for call in one.value] == ["f"]
    assert one.reasoning is not None and one.stats.constraint_start > 5


def test_an_attempt_after_one_that_did_not_validate_reasons_anew(thinking: LLM) -> None:
    service = thinking._service
    first = service.prepare("Hi", resolve_options({"schema": PAIR, "reasoning": True}))
    progress = first.request.reasoning
    assert progress is not None
    progress.take(65, b"A")
    assert progress.fresh().num_tokens == 0 and progress.num_tokens == 1


def test_too_few_tokens_for_any_answer_are_an_error_that_says_so(thinking: LLM) -> None:
    with pytest.raises(Truncated, match="raise max_tokens"):
        thinking.generate("Hi", schema=PAIR, reasoning=True, max_tokens=4)


def test_markers_may_be_given_to_any_model(llm: LLM) -> None:
    own = Reasoning("on", start="<think>", end="</think>", max_tokens=4)
    one = llm.generate_raw("Say hi.", choices=["hello", "hi"], reasoning=own)
    assert one.value in ("hello", "hi") and one.reasoning
    with pytest.raises(InvalidRequest, match="names markers of reasoning"):
        llm.generate("Say hi.", reasoning=True)


def test_reasoning_is_an_option_of_the_async_class_too(folder: Path) -> None:
    async def ask() -> str:
        async with AsyncLLM(folder, device="cpu", config=CONFIG) as model:
            pieces = model.stream("Hi", choices=["yes", "no"], reasoning=True, max_tokens=60)
            return "".join([piece async for piece in pieces])

    assert asyncio.run(ask()) in ("yes", "no")
