"""Options that a framework's model is set to: heeded by calls that they mean something to."""

from __future__ import annotations

from typing import Any

import pytest

from structspec import InvalidRequest
from structspec.chat.standing_options import check_standing, heeded
from structspec.options import resolve_options

STANDING = {"style": "compact", "max_attempts": 5, "top_p": 0.5, "seed": None}


@pytest.mark.parametrize(
    ("given", "has_tools", "kept"),
    [
        ({}, False, {"top_p"}),
        ({"regex": "a"}, False, {"top_p", "max_attempts", "regex"}),
        ({"schema": int}, False, {"top_p", "max_attempts", "style", "schema"}),
        ({}, True, {"top_p", "max_attempts"}),
        ({"schema": int}, True, {"top_p", "max_attempts", "style", "schema"}),
    ],
)
def test_each_call_has_those_that_go_with_it(
    given: dict[str, Any], has_tools: bool, kept: set[str]
) -> None:
    options: Any = heeded(STANDING, given, has_tools=has_tools)
    assert set(options) == kept
    if not has_tools:
        resolve_options(options)


def test_a_call_may_say_otherwise_and_what_it_says_itself_is_never_left_out() -> None:
    assert heeded(STANDING, {"top_p": 1.0})["top_p"] == 1.0
    assert heeded({}, {"style": "compact"}) == {"style": "compact"}  # which generate refuses


def test_a_standing_constraint_is_one() -> None:
    assert heeded({"regex": "a", "max_attempts": 2}, {}) == {"regex": "a", "max_attempts": 2}


@pytest.mark.parametrize(
    "standing",
    [{"style": "tight"}, {"max_attempts": 0}, {"regex": "a", "style": "compact"}, {"top_q": 1}],
)
def test_what_is_wrong_with_them_is_told_at_once(standing: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        check_standing(standing)


def test_what_only_means_something_to_some_calls_is_not_wrong() -> None:
    check_standing(STANDING)
