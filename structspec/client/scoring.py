"""How likely a server's model finds each of several answers.

Our own server is asked just that. vLLM scores tokens it is given: the prompt's and an answer's come
from its tokenizer, and so does the token that ends an answer, which is what its chat template puts
behind one. Of all other kinds no API tells how likely a given text is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from structspec.choosing import compare
from structspec.client.answers import Said, read_usage
from structspec.client.exchange import Ask, Steps, ask
from structspec.client.reading import reading
from structspec.client.refusals import to_error
from structspec.client.servers import Server
from structspec.errors import InvalidRequest, ServerError
from structspec.prompts import Prompt, to_messages


def score(server: Server, prompt: Prompt, choices: Sequence[str], max_retries: int) -> Steps[Said]:
    """What was said, with the Chosen; raises InvalidRequest where the server cannot score texts."""
    messages = to_messages(prompt)
    if server.kind == "structspec":
        return (yield from _ours(server, messages, choices, max_retries))
    if server.kind == "vllm":
        return (yield from _vllm(server, messages, choices, max_retries))
    raise InvalidRequest(
        f"choose() needs a server that says how likely a given text is, and {server.kind} servers"
        " do not; generate(choices=...) has the model write one of them"
    )


def _ours(
    server: Server, messages: list[dict[str, Any]], choices: Sequence[str], max_retries: int
) -> Steps[Said]:
    body = {"model": server.model, "messages": messages, "choices": list(choices)}
    told = yield from _post("choose", body, max_retries)
    said = Said()
    with reading("scores", told):
        read_usage(said, told["usage"])
        found = {one["text"]: float(one["logprob"]) for one in told["choices"]}
        said.chosen = compare({choice: found[choice] for choice in choices}, said.usage)
    return said


def _vllm(
    server: Server, messages: list[dict[str, Any]], choices: Sequence[str], max_retries: int
) -> Steps[Said]:
    def tokens_of(**given: Any) -> Steps[list[int]]:
        body = {"model": server.model, **given}
        told = yield from _post(server.beside("/tokenize"), body, max_retries)
        with reading("tokens", told):
            return [int(token_id) for token_id in told["tokens"]]

    asked = yield from tokens_of(messages=messages, add_generation_prompt=True)
    answers = []
    for choice in choices:
        answers.append((yield from tokens_of(prompt=choice, add_special_tokens=False)))
    answered = [*messages, {"role": "assistant", "content": choices[0]}]
    whole = yield from tokens_of(messages=answered, add_generation_prompt=False)
    first = [*asked, *answers[0]]
    if whole[: len(first)] != first or len(whole) == len(first):
        raise InvalidRequest(
            "choose() cannot tell how this model's answers end: its chat template writes those that"
            " were given in another way than it asks for them"
        )
    end = whole[len(first)]
    texts = [[*asked, *answer, end] for answer in answers]
    body = {
        **{"model": server.model, "prompt": texts, "temperature": 0, "max_tokens": 1},
        **{"prompt_logprobs": 0, "add_special_tokens": False},
    }
    told = yield from _post("completions", body, max_retries)
    said = Said()
    with reading("scores", told):
        read_usage(said, told.get("usage"))
        by_index = {one["index"]: one["prompt_logprobs"] for one in told["choices"]}
        logprobs = {
            choice: _sum(by_index[index], texts[index], len(asked))
            for index, choice in enumerate(choices)
        }
        said.chosen = compare(logprobs, said.usage)
    return said


def _sum(logprobs: Sequence[Any], token_ids: Sequence[int], start: int) -> float:
    """Of the tokens from a place on."""
    pairs = [*zip(logprobs, token_ids, strict=True)][start:]
    return math.fsum(float(found[str(token_id)]["logprob"]) for found, token_id in pairs)


def _post(path: str, body: Mapping[str, Any], max_retries: int) -> Steps[Any]:
    answer = yield from ask(Ask("POST", path, body), max_retries)
    if answer.status == 404:
        raise ServerError(f"the server has no {path}: {answer.text[:300]}", status=404)
    if not answer.is_ok:
        raise to_error(answer, None)
    return answer.object
