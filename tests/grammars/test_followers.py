"""Followers: rows that threads of ours fill by llguidance's C interface, equal to the library's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import unpack_row
from structspec.constraint import Regex
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.llguidance_batch import inner_of
from structspec.grammars.llguidance_threads import can_fill, fill_threads
from tests.grammars.cases import VOCABULARIES, backend
from tests.grammars.followed import (
    NAMES,
    fill_all,
    followed_backend,
    followed_grammar,
    followed_matchers,
    pick,
    rows_of,
)

if not can_fill():
    pytest.skip("no C interface or no semaphores here", allow_module_level=True)

NUM_MATCHERS = 5
STEPS = st.lists(
    st.tuples(st.sampled_from(["go", "go", "go", "both", "back"]), st.integers(0, 10**6)),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("name", [name for name, _ in NAMES])
@pytest.mark.parametrize("vocabulary_name", VOCABULARIES)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(steps=STEPS)
def test_rows_of_followers_are_those_of_the_library(vocabulary_name, name, steps):
    """Whatever the matchers have gone through: both ways to fill, rollbacks, other branches."""
    filler = followed_backend(vocabulary_name)
    grammar, fresh = followed_grammar(vocabulary_name, name), backend(vocabulary_name, "llguidance")
    size = filler.vocabulary.vocab_size
    matchers = followed_matchers(grammar, NUM_MATCHERS)
    taken: list[list[int]] = [[] for _ in matchers]
    for kind, number in steps:
        if kind == "back":
            for matcher, token_ids in zip(matchers, taken, strict=True):
                num_tokens = number % (len(token_ids) + 1)
                matcher.rollback(num_tokens)
                del token_ids[len(token_ids) - num_tokens :]
            continue
        if number % 2:  # those that went astray get another one in time, or do without
            grammar.followers.wait()
        rows = fill_all(filler, matchers)
        if kind == "both":
            np.testing.assert_array_equal(rows, rows_of(filler, matchers))
        tokens = [[pick(row, size, number + 7 * i)] for i, row in enumerate(rows)]
        assert filler.take_shown([*zip(matchers, tokens, strict=True)]) == [None] * NUM_MATCHERS
        for token_ids, new in zip(taken, tokens, strict=True):
            token_ids += new
    again = fresh.compile(dict(NAMES)[name])
    same = [again.matcher() for _ in matchers]
    for matcher, token_ids in zip(same, taken, strict=True):
        assert all(matcher.accept(token_id) for token_id in token_ids)
    np.testing.assert_array_equal(fill_all(filler, matchers), rows_of(filler, same))
    assert [m.forced(20) for m in matchers] == [m.forced(20) for m in same]


def test_few_rows_too_are_filled_by_followers_that_are_there():
    filler = LLGuidanceBackend(VOCABULARIES["bytes"](), num_threads=2, has_followers=True)
    (matcher,) = followed_matchers(filler.compile(Regex("ab+c")), 1)
    assert filler.take_unseen([(matcher, b"abb")]) == [3]
    row = fill_all(filler, [matcher])[0]
    assert inner_of(matcher).has_followed_row
    assert np.flatnonzero(unpack_row(row, 257)).tolist() == [*b"bc"]


def test_tokens_that_followers_showed_are_only_noted_and_accept_knows_them():
    filler = followed_backend("pieces")
    grammar = filler.compile(Regex("ab+c"))
    matchers = followed_matchers(grammar, 2)
    letter = {c: filler.vocabulary.token_bytes.index(c) for c in (b"a", b"b", b"c")}
    for character in (b"a", b"b"):
        fill_all(filler, matchers)
        assert inner_of(matchers[0]).has_followed_row
        moves = [(matcher, [letter[character]]) for matcher in matchers]
        assert filler.take_shown(moves) == [None, None]
    assert not matchers[0].accept(letter[b"a"])
    assert matchers[0].accept(letter[b"c"])
    matchers[0].rollback(3)
    assert not matchers[0].accept(letter[b"b"])
    assert matchers[1].accept(letter[b"b"])


def test_a_follower_that_fails_is_dropped_and_the_library_fills_its_row():
    filler = followed_backend("pieces")
    grammar = followed_grammar("pieces", "json")
    matchers = followed_matchers(grammar, 3)
    rows = fill_all(filler, matchers)
    broken = inner_of(matchers[1]).follower
    broken.library.take(pick(rows[1], filler.vocabulary.vocab_size, 0))
    with pytest.raises(RuntimeError):
        for _ in range(300):  # no text holds this
            broken.library.take(filler.vocabulary.token_bytes.index(b"}"))
    np.testing.assert_array_equal(fill_all(filler, matchers), rows)
    assert inner_of(matchers[1]).ask_for_follower() is None
    assert inner_of(matchers[0]).follower is not None


def test_more_rows_than_one_call_of_the_threads_takes():
    filler = followed_backend("pieces")
    grammar = followed_grammar("pieces", "json")
    matchers = [m for _ in range(11) for m in followed_matchers(grammar, 100)]
    rows = fill_all(filler, matchers)
    assert (rows == rows_of(filler, matchers[:1])).all()


def test_threads_are_shared_by_all_that_want_as_many():
    assert fill_threads(2) is fill_threads(2)
    assert fill_threads(2) is not fill_threads(3)
