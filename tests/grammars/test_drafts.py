"""What can be done with many matchers by nothing but their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask
from structspec.grammars.base import DeadEnd, FillJob, Look, MatcherFailed, Seen
from structspec.grammars.drafts import count_taken, fill_job, look_each, taken_ahead
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import TextsMatcher

BYTES = Vocabulary.bytes()
TEXT = b"abcd"


@given(
    guesses=st.lists(st.sampled_from(TEXT), max_size=6) | st.just([*TEXT]),
    limit=st.integers(0, 6),
    fails_at=st.integers(0, 6),
)
def test_a_look_ahead_leaves_matchers_where_they_were_though_one_fails_on_its_way(
    guesses, limit, fails_at
):
    broken, healthy = (TextsMatcher(BYTES, [TEXT]) for _ in range(2))
    take = broken.accept

    def take_some(token_id):
        if len(broken.token_ids) == fails_at:
            raise MatcherFailed("limit reached")
        return take(token_id)

    broken.accept = take_some
    found = look_each([Look(broken, guesses, limit), Look(healthy, guesses, limit)])
    held = [a == b for a, b in zip(guesses, TEXT, strict=False)]
    num_taken = min(limit, [*held, False].index(False))
    has_failed = fails_at <= num_taken and fails_at < min(len(guesses), limit)
    assert isinstance(found[0], MatcherFailed) if has_failed else found[0] == Seen(num_taken, [])
    assert found[1] == Seen(num_taken, [])
    assert broken.token_ids == healthy.token_ids == []


def failing(places, error=MatcherFailed):
    """A matcher of the text that fails here: behind so many tokens, in this call."""
    matcher = TextsMatcher(BYTES, [TEXT])

    def fails(name):
        method = getattr(matcher, name)

        def call(*args):
            if (len(matcher.token_ids), name) in places:
                raise error("limit reached")
            return method(*args)

        return call

    matcher.accept, matcher.fill = fails("accept"), fails("fill")
    return matcher


PLACES = st.sets(st.tuples(st.integers(0, 4), st.sampled_from(["accept", "fill"])), max_size=2)


@given(guesses=st.lists(st.sampled_from(TEXT), max_size=6) | st.just([*TEXT]), places=PLACES)
def test_what_fails_behind_a_draft_costs_the_draft_and_not_the_text(guesses, places):
    matcher, healthy = failing(places, KeyError), TextsMatcher(BYTES, [TEXT])
    bitmask, expected = (allocate_bitmask(7, BYTES.vocab_size) for _ in range(2))
    num_valid = fill_job(FillJob(healthy, 0, guesses), expected)
    num_wanted = min([num_valid, *(n for n, name in places if name == "accept")])
    broken_rows = [n for n, name in places if name == "fill" and n <= num_wanted]
    if 0 in broken_rows:
        with pytest.raises(KeyError):
            fill_job(FillJob(matcher, 0, guesses), bitmask)
    else:
        num_wanted = min([num_wanted, *(n - 1 for n in broken_rows)])
        assert fill_job(FillJob(matcher, 0, guesses), bitmask) == num_wanted
        assert np.array_equal(bitmask[: num_wanted + 1], expected[: num_wanted + 1])
    assert matcher.token_ids == []


def test_the_draft_before_a_dead_end_is_taken():
    matcher = failing({(2, "fill")}, DeadEnd)
    assert fill_job(FillJob(matcher, 0, TEXT), allocate_bitmask(5, BYTES.vocab_size)) == 4


@given(tokens=st.lists(st.sampled_from(TEXT), max_size=6) | st.just([*TEXT]), places=PLACES)
def test_counting_tokens_ahead_leaves_a_matcher_where_it_was_though_it_fails(tokens, places):
    matcher = failing(places)
    counted = count_taken(matcher, tokens)
    taken = bytes(matcher.token_ids)
    assert taken == (b"" if isinstance(counted, Exception) else TEXT[:counted])
    matcher.rollback(len(taken))
    if isinstance(counted, Exception):
        with pytest.raises(MatcherFailed):
            taken_ahead(matcher, tokens)
    else:
        assert bytes(taken_ahead(matcher, tokens)) == taken
    assert matcher.token_ids == []
