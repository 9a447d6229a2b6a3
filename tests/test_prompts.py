"""What may be passed as a prompt, and what is said about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from structspec import InvalidRequest
from structspec.prompts import split_prompts, to_messages

HI = {"role": "user", "content": "hi"}
TOOL_CALL = {"role": "assistant", "content": None, "tool_calls": []}


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("hi", (["hi"], False)),
        ([HI], ([[HI]], False)),
        (["hi", [HI]], (["hi", [HI]], True)),
        ((), ([], True)),
    ],
    ids=["string", "messages", "several", "none"],
)
def test_list_of_messages_is_one_prompt(prompts: Any, expected: tuple[list[Any], bool]) -> None:
    assert split_prompts(prompts) == expected


@pytest.mark.parametrize("prompts", [3, None, b"hi", {"role": "user"}, [HI, "hi"]], ids=repr)
def test_what_is_no_prompt_is_refused(prompts: Any) -> None:
    with pytest.raises(InvalidRequest):
        split_prompts(prompts)


def test_messages_are_copied() -> None:
    assert to_messages("hi") == [HI]
    copies = to_messages([HI, TOOL_CALL])
    assert copies == [HI, TOOL_CALL]
    assert copies[0] is not HI


WRONG = {
    "number": (3, "a prompt is a string or a list of messages, not 3"),
    "bytes": (b"hi", "a prompt is a string"),
    "no messages": ([], "at least one message"),
    "strings": (["a", "b"], r"messages\[0\] must be a dict with a 'role' and a 'content', not 'a'"),
    "no content": ([{"role": "user"}], r"messages\[0\] must have a 'role'"),
    "role of another type": ([{"role": 1, "content": "hi"}], r"messages\[0\] must have a 'role'"),
    "content of another type": ([HI, {"role": "user", "content": 5}], r"messages\[1\]: 'content'"),
}


@pytest.mark.parametrize(("prompt", "says"), WRONG.values(), ids=WRONG.keys())
def test_wrong_prompt_is_named_in_the_error(prompt: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        to_messages(prompt)
