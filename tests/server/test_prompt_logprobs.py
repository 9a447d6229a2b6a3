"""`prompt_logprobs` and `logprobs_mode` of a chat: vLLM's form, and what `generate_raw` tells."""

from __future__ import annotations

import pytest

from structspec import LLM
from tests.server.conftest import ASK, Server


def test_a_prompts_logprobs_are_those_of_the_engine(llm: LLM, server: Server) -> None:
    body = server.chat(prompt_logprobs=2, max_tokens=1)
    one = llm.generate_raw(ASK, prompt_logprobs=2, max_tokens=1)
    nothing, *told = body["prompt_logprobs"]
    assert nothing is None and one.prompt_logprobs is not None
    assert len(told) == len(one.prompt_logprobs) == body["usage"]["prompt_tokens"] - 1
    for found, own in zip(told, one.prompt_logprobs, strict=True):
        assert [*found][0] == str(own.token_id)
        assert found[str(own.token_id)]["logprob"] == pytest.approx(own.logprob, abs=1e-4)
        assert found[str(own.token_id)]["decoded_token"] == own.text
        ranked = {entry["rank"]: token_id for token_id, entry in found.items() if entry["rank"]}
        assert [int(ranked[rank]) for rank in sorted(ranked)] == [other for other, _ in own.top]


def test_a_stream_tells_them_once_before_its_text_with_several_choices_too(server: Server) -> None:
    [whole] = [server.chat(prompt_logprobs=1, max_tokens=2)["prompt_logprobs"]]
    chunks = server.stream(prompt_logprobs=1, max_tokens=2, n=2, stream_options={})
    places = [place for place, chunk in enumerate(chunks) if "prompt_logprobs" in chunk]
    assert places == [2]  # behind what begins both choices
    assert chunks[2]["choices"] == []
    told = chunks[2]["prompt_logprobs"]
    assert [one and [*one] for one in told] == [one and [*one] for one in whole]


def test_who_does_not_ask_is_told_nothing(server: Server) -> None:
    assert "prompt_logprobs" not in server.chat(max_tokens=1)


def test_logprobs_are_of_what_was_drawn_from_where_that_is_asked_for(server: Server) -> None:
    asked = {"regex": "abc", "logprobs": True, "top_logprobs": 2}
    told = {
        mode: server.chat(**asked, logprobs_mode=mode)["choices"][0]["logprobs"]["content"]
        for mode in ("raw", "processed")
    }
    ids = [[entry["id"] for entry in entries] for entries in told.values()]
    assert ids[0] == ids[1]
    for raw, processed in zip(*told.values(), strict=True):
        assert raw["logprob"] < processed["logprob"] <= 0
        allowed = {one["token"] for one in processed["top_logprobs"]}
        assert all("abc".find(token) >= 0 for token in allowed)
