"""A grammar of one token sequence keeps the laws of every matcher."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.token_sequence import TokenSequence
from structspec.vocabulary import Vocabulary

VOCABULARY = Vocabulary.bytes()
STOPS = list(VOCABULARY.stop_token_ids)


def allowed(matcher) -> list[int]:
    bitmask = allocate_bitmask(2, VOCABULARY.vocab_size)
    bitmask[:] = -1
    matcher.fill(bitmask, 1)
    assert (bitmask[0] == -1).all()
    return np.flatnonzero(unpack_row(bitmask[1], VOCABULARY.vocab_size)).tolist()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 255), max_size=5),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12),
)
def test_each_token_follows_its_place_and_only_stop_tokens_follow_the_last(
    token_ids: list[int], steps: list[tuple[bool, int]]
) -> None:
    matcher = TokenSequence(token_ids, VOCABULARY).matcher()
    place = 0
    for is_forward, number in steps:
        if is_forward:
            expected = token_ids[place : place + 1] or STOPS
            assert not matcher.accept((expected[0] + 1) % 256)
            assert matcher.accept(expected[0])
            place += 1
        else:
            matcher.rollback(min(number, place))
            place -= min(number, place)
        assert allowed(matcher) == (token_ids[place : place + 1] or STOPS)
        assert matcher.forced_tokens(3) == token_ids[place : place + 3]
        assert matcher.tokens_to_end() == max(0, len(token_ids) + 1 - place)


def test_matchers_of_one_grammar_share_no_state() -> None:
    grammar = TokenSequence([7, 8], VOCABULARY)
    first, second = grammar.matcher(), grammar.matcher()
    assert first.accept(7)
    assert (allowed(first), allowed(second)) == ([8], [7])
