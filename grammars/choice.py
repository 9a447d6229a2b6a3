"""Choices: what may stand in a list of texts to choose from."""

from __future__ import annotations

from structspec.constraint import Choice, find_half_character
from structspec.errors import GrammarError


def check_choices(constraint: Choice) -> tuple[str, ...]:
    """The choices, each once and in order; GrammarError where there is nothing to choose."""
    if isinstance(constraint.choices, str):
        raise GrammarError("choices is one string; pass a sequence of strings")
    if not constraint.choices:
        raise GrammarError("choices is empty; give at least one")
    for index, choice in enumerate(constraint.choices):
        if not isinstance(choice, str):
            raise GrammarError(f"choice {index} is {choice!r}, not a string")
        if not choice:
            raise GrammarError(f"choice {index} is the empty string; the model would write nothing")
        if find_half_character(choice) is not None:
            raise GrammarError(f"choice {index} holds half a surrogate pair: {choice!r}")
    return tuple(dict.fromkeys(constraint.choices))
