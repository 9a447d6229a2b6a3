"""Bias, penalties and logprobs on the command line."""

from __future__ import annotations

import dataclasses
import json

import pytest

from structspec.cli import main
from structspec.cli.generate import as_json
from structspec.generation import Generation
from structspec.request import RequestStats, Usage
from structspec.token_logprob import TokenLogprob
from tests.test_cli import FakeLLM, fake

__all__ = ["fake"]


def test_they_are_passed_on_as_python_says_them(fake: type[FakeLLM]) -> None:
    given = ["--logit-bias", "42=-5", "--logit-bias", "7=1.5", "--presence-penalty", "0.5"]
    given += ["--frequency-penalty", "-0.5", "--repetition-penalty", "1.1", "--logprobs", "3"]
    given += ["--logprobs-mode", "processed", "--prompt-logprobs", "0", "--token-details", "5"]
    assert main(["generate", "--prompt", "Hi", *given]) == 0
    assert fake.asked == {
        "model": "smollm2-135m",
        "prompt": "Hi",
        "logit_bias": {"42": -5.0, "7": 1.5},
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "logprobs": 3,
        "logprobs_mode": "processed",
        "prompt_logprobs": 0,
        "token_details": 5,
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--logit-bias", "42"], "--logit-bias takes ID=N, such as 42=-5, not '42'"),
        (["--logit-bias", "4=1", "--logit-bias", "4=2"], "--logit-bias names the token 4 twice"),
        (["--logit-bias", "the=1"], "logit_bias: 'the' is no token id"),
        (["--logprobs", "99"], "logprobs must be between 0 and 20"),
    ],
)
def test_mistakes_are_named(
    fake: type[FakeLLM], capsys: pytest.CaptureFixture[str], given: list[str], says: str
) -> None:
    assert main(["generate", "--prompt", "Hi", *given]) == 2
    assert says in capsys.readouterr().err


def test_raw_output_holds_them_where_they_were_asked_for() -> None:
    generation = Generation("a", "a", (5,), "stop", Usage(1, 1), RequestStats(), None)
    assert "logprobs" not in json.loads(as_json(generation, is_json=False))
    half = TokenLogprob(5, -0.5, ((5, -0.5),), "\ufffd", b"\xc3", ("\ufffd",), (b"\xc3",))
    told = dataclasses.replace(generation, logprobs=(half,))
    spelling = {"text": "\ufffd", "data": [195], "top_texts": ["\ufffd"], "top_data": [[195]]}
    assert json.loads(as_json(told, is_json=False))["logprobs"] == [
        {"token_id": 5, "logprob": -0.5, "top": [[5, -0.5]], **spelling}
    ]
