"""`token_details` of a chat: where each token came from, in whole answers and streamed ones."""

from __future__ import annotations

import math

import pytest

from tests.server.conftest import PERSON, Server, json_schema

ASKED = {"response_format": json_schema(PERSON), "token_details": 3}


def test_a_streamed_answer_tells_what_a_whole_one_does(server: Server) -> None:
    [choice] = server.chat(**ASKED)["choices"]
    chunks = [chunk["choices"][0] for chunk in server.stream(**ASKED)]
    told = [chunk["structspec"] for chunk in chunks if "structspec" in chunk]
    tokens = [token for one in told for token in one["tokens"]]
    written = b"".join(bytes(token["bytes"]) for token in tokens).decode()
    assert written == "".join(chunk["delta"].get("content", "") for chunk in chunks)
    assert written == choice["message"]["content"]
    whole = choice["structspec"]["tokens"]
    assert [one["token"] for one in tokens] == [one["token"] for one in whole]
    assert [bool(one.get("stats")) for one in told] == [False] * (len(told) - 1) + [True]
    origins = [token["origin"] for token in tokens]  # drafts hang on what was written before
    num_accepted = told[-1]["stats"]["num_accepted"]
    assert 0 < origins.count("forced") + origins.count("drafted") <= num_accepted


def test_a_token_is_told_with_both_its_likelihoods_and_what_else_was_allowed(
    server: Server,
) -> None:
    [choice] = server.chat(**ASKED)["choices"]
    first = choice["structspec"]["tokens"][0]
    assert first["origin"] == "forced" and first["drafter"] is None
    assert first["token"].startswith("{")
    assert first["logprob"] < first["masked_logprob"] <= 0
    for one in choice["structspec"]["tokens"]:
        assert 1 <= len(one["top"]) <= 3
        assert sum(math.exp(other["logprob"]) for other in one["top"]) <= 1 + 1e-4
        if len(one["top"]) == 1:
            assert one["top"][0]["bytes"] == one["bytes"]


def test_who_does_not_ask_is_told_nothing(server: Server) -> None:
    [choice] = server.chat(response_format=json_schema(PERSON))["choices"]
    assert "structspec" not in choice


@pytest.mark.parametrize(("given", "says"), [(21, "between 0 and 20"), ("5", "integer")])
def test_what_is_no_number_of_alternatives_is_refused(
    server: Server, given: object, says: str
) -> None:
    assert says in server.refused(token_details=given)["message"]
