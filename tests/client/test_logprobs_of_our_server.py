"""Over HTTP our own server tells of tokens just what an engine in this process does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from structspec import LLM, AsyncClient, Client, Generation, Tools
from structspec.chat.turns import Said, make_turn, stream
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from tests.client.serving import serving
from tests.server.toy import save_toy

PLAIN: dict[str, Any] = {"temperature": 0.0, "speculative": {"drafters": ["forced"]}}
CLOSED = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
PROMPT = "Where is Rome?"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"type": "string", "maxLength": 3}},
    "required": ["a", "b"],
}
ASKED: dict[str, dict[str, Any]] = {
    "free": {"max_tokens": 6, "ignore_eos": True},
    "schema": {"schema": SCHEMA, "schema_in_prompt": "never"},
    "regex": {"regex": "[é-ü]{2}"},
    "drawn": {"max_tokens": 6, "ignore_eos": True, "temperature": 1.0, "seed": 3, "top_k": 40},
}
TOLD: dict[str, dict[str, Any]] = {
    "none beside": {"logprobs": 0},
    "raw": {"logprobs": 3},
    "processed": {"logprobs": 3, "logprobs_mode": "processed"},
    "prompt": {"prompt_logprobs": 2, "logprobs": 1},
    "details": {"token_details": 3},
    "all": {"logprobs": 20, "prompt_logprobs": 0, "token_details": 0},
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(save_toy(tmp_path_factory.mktemp("toy"))) as llm:
        yield llm


@pytest.fixture(scope="module")
def url(toy: LLM) -> Iterator[str]:
    with serving(make_app(toy._service, ServerSettings("toy"))) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def of_answer(llm: LLM, told: tuple[Any, ...] | None) -> list[Any] | None:
    """What is told of the text: a server is silent about what ends it."""
    stops = llm._service.vocabulary.stop_token_ids
    return None if told is None else [one for one in told if one.token_id not in stops]


def check_same(llm: LLM, one: Generation, other: Generation) -> None:
    """All that is told, of the engine's and of the client's."""
    assert one.text == other.text
    check_told(of_answer(llm, one.logprobs), other.logprobs)
    check_told(one.prompt_logprobs, other.prompt_logprobs)
    check_told(of_answer(llm, one.token_details), other.token_details)


def check_told(told: Any, elsewhere: Any) -> None:
    """The same tokens, equally likely: JSON keeps every digit, batches of two shapes need not."""
    assert (told is None) == (elsewhere is None)
    for one, other in zip(told or (), elsewhere or (), strict=True):
        assert type(one) is type(other)
        assert tokens_of(one) == tokens_of(other)
        assert logprobs_of(one) == pytest.approx(logprobs_of(other), abs=1e-5)


def tokens_of(one: Any) -> Any:
    ids = (one.token_id, [token_id for token_id, _ in one.top])
    origin = (getattr(one, "origin", None), getattr(one, "drafter", None))
    return (*ids, *origin, one.text, one.data, one.top_texts, one.top_data)


def logprobs_of(one: Any) -> list[float]:
    masked = getattr(one, "masked_logprob", 0.0)
    return [one.logprob, masked, *(logprob for _, logprob in one.top)]


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("told", TOLD)
def test_a_client_is_told_what_the_engine_tells(
    toy: LLM, client: Client, what: str, told: str
) -> None:
    options = {**PLAIN, **ASKED[what], **TOLD[told]}
    one = toy.generate_raw(PROMPT, **options)
    check_same(toy, one, client.generate_raw(PROMPT, **options))
    assert (one.logprobs is None) == ("logprobs" not in options)


@pytest.mark.parametrize("what", ASKED)
def test_so_it_is_where_the_answer_is_streamed(toy: LLM, url: str, what: str) -> None:
    texts: list[str] = []
    hook = {"step": lambda event: texts.append(event.text)}  # who listens has it streamed
    options = {**PLAIN, **ASKED[what], "logprobs": 3, "token_details": 2}
    with Client(url, hooks=hook) as client:  # type: ignore[arg-type]
        streamed = client.generate_raw(PROMPT, **options)
    assert "".join(texts) == streamed.text
    check_same(toy, toy.generate_raw(PROMPT, **options), streamed)


def test_a_stream_tells_of_its_prompt_too(toy: LLM, client: Client) -> None:
    options = {**PLAIN, "regex": "ab", "prompt_logprobs": 2, "logprobs": 1}
    messages = [{"role": "user", "content": PROMPT}]
    turn = make_turn(client._service, messages, options)  # type: ignore[arg-type]
    *_, said = stream(client._service, turn)
    assert isinstance(said, Said) and said.generation.prompt_logprobs
    check_same(toy, toy.generate_raw(PROMPT, **options), said.generation)
    assert said.logprobs is not None  # in OpenAI's form, for frameworks
    assert [entry["bytes"] for entry in said.logprobs] == [[97], [98]]


def test_each_of_several_outputs_and_prompts_has_its_own(toy: LLM, client: Client) -> None:
    prompts = [PROMPT, "And Oslo?"]
    options = {**PLAIN, **ASKED["drawn"], "logprobs": 2, "prompt_logprobs": 1}
    here = toy.generate_raw(prompts, n=2, **options)
    elsewhere = client.generate_raw(prompts, n=2, **options)
    for of_prompt, others in zip(here, elsewhere, strict=True):
        for one, other in zip(of_prompt, others, strict=True):
            check_same(toy, one, other)
    assert len({one.text for of_prompt in elsewhere for one in of_prompt}) > 1


def test_so_it_is_awaited(toy: LLM, url: str) -> None:
    options = {**PLAIN, "regex": "ab", "logprobs": 2}

    async def main() -> Generation:
        async with AsyncClient(url) as client:
            return await client.generate_raw(PROMPT, **options)

    check_same(toy, toy.generate_raw(PROMPT, **options), asyncio.run(main()))


def test_calls_of_tools_are_told_of_token_by_token(client: Client) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": CLOSED}}
    tools = Tools([tool], choice="required", parallel=False)
    generation = client.generate_raw(PROMPT, grammar=tools, logprobs=0, **PLAIN)
    [call] = generation.value
    written = b"".join(one.data for one in generation.logprobs)
    assert call.name == "look" and b"look" in written and b'"a"' in written
    turn = make_turn(
        client._service,
        [{"role": "user", "content": PROMPT}],
        {"logprobs": 0, **PLAIN},
        [tool],
        "required",
        parallel=False,
    )
    *_, said = stream(client._service, turn)
    assert isinstance(said, Said) and said.calls[0].name == "look"
    assert b"look" in b"".join(bytes(entry["bytes"]) for entry in said.logprobs or ())
