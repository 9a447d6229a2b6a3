"""What other libraries are given of a regex means to Python's `re` what the regex means."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.grammars.regex import translate
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.parse import parse_full

_PIECES = ["a", "-", "[ab-]", "[^a]", ".", r"\w", r"\s", r"\x00", r"[\x00-\x1f]", "[&~#:]", "é"]
_PATTERNS = st.recursive(
    st.sampled_from([*_PIECES, r"[^\u2028😀]", "[ -~]", r"\[", r"\b", "(?![ab])", "{", '"', "/"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(_PIECES), inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(st.sampled_from(_PIECES), st.sampled_from(["*", "+", "?", "{2}", "{1,3}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
).map(lambda pattern: f"(?:{pattern})|x")  # so that there is a text at all


@settings(deadline=None, max_examples=500)
@given(_PATTERNS, st.text('ab- \n\0é😀&~#:["/{1x\x1f', max_size=4))
def test_a_translated_regex_means_to_python_what_the_pattern_means(pattern, text):
    is_found = re.compile(translate(pattern)).fullmatch(text) is not None
    assert is_found == matches(parse_full(pattern), text)
