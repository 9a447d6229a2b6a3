"""How likely a model finds each of several answers, all of them scored in one go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from structspec.errors import InvalidRequest
from structspec.generation import Generation
from structspec.options import GenerateOptions
from structspec.request import NO_USAGE, Usage

# the likeliest stop token ends each, and no default of the model's has a say
SCORING: GenerateOptions = {
    **{"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    **{"logprobs": 0, "reasoning": False},
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The likeliest of some answers, and how likely each is, in the order they were given in.

    `logprobs` are natural logarithms of the probabilities that the model itself, without a mask
    and at temperature 1, answers a prompt with exactly these tokens and then ends: the tokens that
    its tokenizer makes of the answer, and the likeliest stop token. `probs` are the same as shares
    of all answers given: they add up to 1. Of equally likely ones `best` is the first.
    """

    best: str
    probs: dict[str, float]
    logprobs: dict[str, float]
    usage: Usage


def check_choices(choices: Sequence[str]) -> None:
    """Raise InvalidRequest unless these are different strings, at least one."""
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise InvalidRequest(f"choices must be a list of at least one string, not {choices!r}")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise InvalidRequest(f"choices[{index}] must be a string, not {choice!r}")
        if choice in choices[:index]:
            raise InvalidRequest(f"choices[{index}] is there twice: {choice!r}")


def choose_among(
    choices: Sequence[str], written: Sequence[Generation], num_tokens: Sequence[int]
) -> Chosen:
    """Compare choices by the last `num_tokens` tokens of what was written of each."""
    logprobs = {}
    for choice, one, number in zip(choices, written, num_tokens, strict=True):
        assert one.logprobs is not None
        logprobs[choice] = math.fsum(token.logprob for token in one.logprobs[-number:])
    return compare(logprobs, sum((one.usage for one in written), NO_USAGE))


def compare(logprobs: Mapping[str, float], usage: Usage) -> Chosen:
    """What is chosen, by the logprobs of all choices in their order."""
    choices = list(logprobs)
    best = max(choices, key=lambda choice: logprobs[choice])
    weights = {choice: math.exp(logprobs[choice] - logprobs[best]) for choice in choices}
    total = math.fsum(weights.values())
    probs = {choice: weight / total for choice, weight in weights.items()}
    return Chosen(best, probs, dict(logprobs), usage)
