"""POST /v1/choose: what LLM.choose says, over HTTP."""

from __future__ import annotations

import pytest

from structspec import LLM
from tests.server.conftest import ASK, MODEL, Server

CHOICES = ["1815", "1815 ", "Ada", ""]


def test_scores_are_those_of_the_engine(server: Server, llm: LLM) -> None:
    told = server.post("/v1/choose", messages=ASK, choices=CHOICES)
    chosen = llm.choose(ASK, CHOICES)
    assert told["best"] == chosen.best and told["model"] == MODEL
    assert [one["text"] for one in told["choices"]] == CHOICES
    logprobs = [one["logprob"] for one in told["choices"]]
    assert logprobs == pytest.approx([*chosen.logprobs.values()], abs=1e-3)
    assert sum(one["prob"] for one in told["choices"]) == pytest.approx(1)
    assert told["usage"]["prompt_tokens"] == chosen.usage.prompt_tokens


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": ASK}, "choices"),
        ({"messages": ASK, "choices": []}, "choices"),
        ({"messages": ASK, "choices": ["a", "a"]}, "choices"),
        ({"messages": ASK, "choices": ["a"], "regex": "b"}, "regex"),
        ({"messages": [{"role": "x", "content": ""}], "choices": ["a"]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": "x " * 9999}], "choices": ["a"]}, "messages"),
    ],
)
def test_what_is_wrong_is_named(server: Server, body: dict[str, object], param: str) -> None:
    told = server.post("/v1/choose", 400, **body)["error"]
    assert (told["param"] or "").startswith(param)


def test_another_model_is_not_there(server: Server) -> None:
    assert server.post("/v1/choose", 404, model="x", messages=ASK, choices=["a"])
