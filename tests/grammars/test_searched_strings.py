"""Strings in which a pattern is searched: written by two terminals, which must not be noticed."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import JsonSchema
from tests.grammars.cases import VOCABULARIES, backend
from tests.grammars.json_texts import matcher_of, takes

PATTERNS = pytest.mark.parametrize(
    "pattern", ["ab", r"\d{2}-\d", "b$", "^ab|b$", "a.*b", "[^a]b?", "(ab|ba)c", "é", ".", ""]
)
TEXTS = st.text(st.sampled_from("abc01-é\U0010ffff\n"), max_size=9)


@PATTERNS
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "to-the-letter"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(text=TEXTS, is_ascii=st.booleans())
def test_a_string_is_taken_exactly_if_the_pattern_is_found_in_it(
    pattern, is_closed, text, is_ascii
):
    matcher = matcher_of({"type": "string", "pattern": pattern}, closed=is_closed)
    is_found = re.search(pattern.replace("$", r"\Z"), text) is not None
    assert takes(matcher, json.dumps(text, ensure_ascii=is_ascii)) == is_found


@PATTERNS
@settings(max_examples=30, deadline=None, derandomize=True)
@given(text=TEXTS.filter(lambda text: "\n" not in text))
def test_text_may_always_go_on_and_ends_where_the_pattern_is_found(pattern, text):
    vocabulary = VOCABULARIES["pieces"]()
    schema = {"type": "string", "pattern": pattern}
    matcher = backend("pieces", "llguidance").compile(JsonSchema(schema)).matcher()
    texts = [
        i for i, data in enumerate(vocabulary.token_bytes) if data and data.isalnum() and i > 255
    ]
    assert texts
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    for end in range(len(text) + 1):
        for byte in ('"' + text)[end].encode():
            assert matcher.accept(byte)
        matcher.fill(bitmask, 0)
        row = unpack_row(bitmask[0], vocabulary.vocab_size)
        assert row[texts].all()
        assert row[ord('"')] == (re.search(pattern.replace("$", r"\Z"), text[:end]) is not None)
