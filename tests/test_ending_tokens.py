"""What is known of a vocabulary's tokens to end texts, beside what each says of itself."""

from __future__ import annotations

import json
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.ending_tokens import EndingTokens
from structspec.vocabulary import Vocabulary

PIECES = st.sampled_from(
    [b"a", b"bc", b"1", b" ", b"\n", b'"', b"\\", b"{", b"]", b",", b"_", "é".encode(), b"\xc3"]
)
TEXTS = st.lists(st.none() | st.lists(PIECES, max_size=5).map(b"".join), max_size=12)


def tokens_of(texts: list[bytes | None]) -> EndingTokens:
    alphabet = [bytes([byte]) for byte in range(256)]
    return EndingTokens(Vocabulary((*alphabet, *texts, None), (256 + len(texts),), lambda text: []))


def shape(text: bytes) -> str:
    """By the book: a sign for each run of letters, digits, blanks and others; what structures."""
    signs = [
        chr(byte)
        if chr(byte) in '"\\{}[]:,.-'
        else "0"
        if 48 <= byte < 58
        else "a"
        if byte >= 128 or chr(byte).isalpha()
        else " "
        if chr(byte) in " \t\r\n"
        else "#"
        for byte in text
    ]
    return "".join(sign if sign in "a0 #" else sign * len([*run]) for sign, run in groupby(signs))


@given(TEXTS)
def test_tokens_that_look_alike_and_no_others_have_one_shape(texts: list[bytes | None]) -> None:
    tokens = tokens_of(texts)
    found: dict[str, int] = {}
    for token_id in range(256, tokens.vocab_size):
        text = tokens.bytes_of(token_id)
        assert found.setdefault(shape(text), tokens.shape_of(token_id)) == tokens.shape_of(token_id)
    assert len(set(found.values())) == len(found)
    groups = [group.tolist() for group in tokens.by_shape(np.arange(256, tokens.vocab_size))]
    assert sorted(i for group in groups for i in group) == [*range(256, tokens.vocab_size)]
    assert len(groups) == len(found) and all(group == sorted(group) for group in groups)


@given(TEXTS)
def test_a_token_is_found_by_its_text(texts: list[bytes | None]) -> None:
    tokens = tokens_of(texts)
    for text in {text for text in texts if text}:
        spelled = [i for i in range(tokens.vocab_size) if tokens.bytes_of(i) == text]
        assert tokens.ids(text) == spelled
    assert tokens.ids(b"not there") == []


@given(TEXTS)
def test_what_stays_in_a_string_is_what_a_json_string_may_hold(texts: list[bytes | None]) -> None:
    """Of whole tokens: those with half a character or half an escape are asked for behind both."""
    tokens = tokens_of(texts)
    for token_id in range(tokens.vocab_size):
        text = tokens.bytes_of(token_id)
        is_plain, is_partial = tokens.plain[token_id], tokens.partial[token_id]
        assert not (is_plain and is_partial)
        try:
            value = json.loads(b'"' + text + b'"')
        except (json.JSONDecodeError, UnicodeDecodeError):
            assert not is_plain
        else:
            assert is_plain == bool(text and "\\" not in json.dumps(value, ensure_ascii=False))
        if tokens.escaping[token_id]:
            assert b"\\" in text and not is_plain and not is_partial
        assert tokens.stays_in_string(token_id) == (
            is_plain or is_partial or tokens.escaping[token_id]
        )


@pytest.mark.parametrize(
    ("text", "is_escaping"),
    [
        (rb"\n", True),
        (rb"\"", True),
        (rb"a\\", True),
        (b"\\", True),
        (b'\\\\"', False),
        (b'\\"", ', False),
    ],
)
def test_an_escaped_backslash_escapes_no_quote(text: bytes, is_escaping: bool) -> None:
    tokens = tokens_of([text])
    assert tokens.escaping[tokens.ids(text)[0]] == is_escaping
