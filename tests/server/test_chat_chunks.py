"""Pieces of streamed answers, whose fixed parts are written once, are those of plain JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from structspec.server.chat_body import Chunks, Head

MODEL = 'a "content": "" model'


TEXTS = st.text() | st.text('a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\\"')


@given(st.lists(st.tuples(st.integers(0, 3), TEXTS), max_size=5), st.booleans())
def test_a_piece_of_text_reads_as_the_choice_it_is(
    pieces: list[tuple[int, str]], has_usage: bool
) -> None:
    head = Head(MODEL)
    chunks = Chunks(head, has_usage=has_usage)
    for index, text in pieces:
        said = chunks.delta(index, {"content": text}).decode()
        assert said.startswith("data: ") and said.endswith("\n\n")
        assert len(said.splitlines()) == 2  # by any reader's notion of a line
        choice = {"index": index, "delta": {"content": text}}
        assert json.loads(said.removeprefix("data: ")) == {
            **head.fields("chat.completion.chunk"),
            "choices": [{**choice, "logprobs": None, "finish_reason": None}],
            **({"usage": None} if has_usage else {}),
        }
