"""A dozen tokens to reason with, and what a text of them is, told without any state.

a b c   letters            < t > /   pieces of the markers <t> and </t>
<t>     one token          ></       ends `</t>` and goes on, as `>a` does
\\n      a line break       S         special, no text; then a token that pads, and the stop token
"""

from __future__ import annotations

from collections.abc import Sequence

from structspec.reasoning_boundary import Boundary
from structspec.vocabulary import Vocabulary, greedy_encoder

TEXTS = (b"a", b"b", b"c", b"<", b"t", b">", b"/", b"</", b"t>", b">a", b"></", b"<t>", b"\n")
SPECIAL, PADDING, STOP = range(len(TEXTS), len(TEXTS) + 3)
VOCABULARY = Vocabulary((*TEXTS, None, None, None), (STOP,), greedy_encoder(TEXTS), {"S": SPECIAL})
BOUNDARY = Boundary(VOCABULARY, "<t>", "</t>", line_breaks=1)
END = b"</t>"


def spell(text: str) -> list[int]:
    """The longest tokens first."""
    return VOCABULARY.encode_text(text)


def ids(*texts: bytes) -> list[int]:
    """These very tokens."""
    return [TEXTS.index(text) for text in texts]


def bytes_of(token_ids: Sequence[int]) -> bytes:
    """Their text; a special token stands for no byte that a marker has."""
    return b"".join(TEXTS[t] if t < len(TEXTS) else b"\xff" for t in token_ids)
