"""Messages from clients as chat templates take them."""

from __future__ import annotations

from typing import Any

import pytest

from structspec.chat.messages import read_message


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (None, {}),
        ('{"a": ', '{"a": '),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=["whole", "empty", "none", "cut", "too_deep"],
)
def test_arguments_of_earlier_calls_are_parsed_where_they_can_be(arguments: Any, told: Any) -> None:
    function = {"name": "f", "arguments": arguments}
    message = read_message({"role": "assistant", "tool_calls": [{"function": function}]}, "m")
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": told}
