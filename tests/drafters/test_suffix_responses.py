"""ResponseMemory: drafts from finished responses, those unused the longest forgotten."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.drafters.suffix_responses import ResponseMemory
from structspec.drafters.suffix_tree import SuffixSettings
from structspec.errors import InvalidRequest
from tests.drafters.test_suffix_tree import SETTINGS, TEXTS, slow_draft

SMALL = 2**17  # bytes: some 500 tokens in each of the four segments


def memory_of(*responses, rules=None, num=1000, num_bytes=SMALL):
    memory = ResponseMemory(rules or SuffixSettings(), num, num_bytes)
    for response in responses:
        memory.add(list(response))
    return memory


def draft_text(memory, context):
    return bytes(memory.draft(list(context), 15).token_ids)


def filler(number, size=20):
    """Tokens that no other response has."""
    return range(1000 + number * size, 1000 + (number + 1) * size)


def test_a_response_is_drafted_to_one_that_begins_like_it():
    memory = memory_of(b"the cat slept", b"a dog ran")
    assert draft_text(memory, b"one day the") == b" ca"
    assert draft_text(memory, b"one day the c") == b"at sl"
    assert draft_text(memory, b"one day the cow") == b""


def test_responses_are_texts_of_their_own():
    memory = memory_of(b"ab", b"cd")
    assert draft_text(memory, b"ab") == b""
    assert draft_text(memory, b"bc") == b"d"


@given(st.lists(TEXTS, max_size=5), TEXTS, SETTINGS, st.integers(0, 9), st.integers(1, 3))
def test_drafts_follow_the_definition(responses, context, rules, limit, min_match):
    guess = memory_of(*responses, rules=rules).draft(context, limit, min_match)
    expected, score = slow_draft(responses, context, limit, rules, min_match)
    assert (guess.token_ids, guess.score) == (expected, pytest.approx(score))


@given(TEXTS, st.integers(1, 5), TEXTS)
def test_a_response_that_comes_again_takes_no_more_nodes(response, num_times, context):
    once, often = memory_of(response), memory_of(*[response] * num_times)
    assert (once._heads[:, :2] == often._heads[:, :2]).all()  # nodes and edges
    assert once.draft(context, 9) == often.draft(context, 9)


def test_of_too_many_responses_the_oldest_go():
    memory = memory_of(b"abcdef", *map(filler, range(7)), num=8)
    assert draft_text(memory, b"abc") == b"def"
    memory.add([1])
    assert draft_text(memory, b"abc") == b""
    assert memory.num_responses == 7  # a segment holds two, and goes as a whole


def test_what_is_drafted_from_lives_on_and_what_is_not_goes():
    memory = memory_of(b"abcdef", b"uvwxyz", num=8)
    for number in range(60):
        assert draft_text(memory, b"abc") == b"def"
        memory.add(filler(number))
    assert draft_text(memory, b"uvw") == b""


def test_too_many_tokens_free_the_oldest_too():
    memory = memory_of(b"abcdef", *[filler(0, 450)] * 3)
    assert draft_text(memory, b"abc") == b"def"
    for number in range(4):
        memory.add(filler(number, 450))
    assert draft_text(memory, b"abc") == b""


def test_of_a_response_longer_than_a_segment_the_beginning_is_kept():
    long = list(range(5000))
    memory = memory_of(long)
    assert memory.draft(long[90:100], 5).token_ids == long[100:105]
    assert memory.draft(long[4000:4010], 5).token_ids == []


def test_memory_stays_bounded_over_ten_thousand_random_responses():
    numbers = random.Random(0)
    memory = memory_of(num=400)
    for _ in range(10_000):
        length, num_kinds = numbers.randrange(80), numbers.choice([2, 10, 5000])
        response = [numbers.randrange(num_kinds) for _ in range(length)]
        memory.draft(response, 9)
        memory.add(response)
        assert memory.num_responses <= 400
    assert memory.num_bytes <= SMALL + memory._out.nbytes


@pytest.mark.parametrize(("num", "num_bytes"), [(3, SMALL), (100, 1000)])
def test_a_memory_too_small_for_anything_is_refused(num, num_bytes):
    with pytest.raises(InvalidRequest, match="room for"):
        ResponseMemory(SuffixSettings(), num, num_bytes)
