"""SuffixDrafter: trees of running requests, and a memory of finished ones."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.drafters.suffix import SuffixDrafter
from structspec.drafters.suffix_tree import SuffixSettings
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.request import RequestStatus
from structspec.vocabulary import Vocabulary
from tests.drafters.replay import replay
from tests.drafters.toy import batch_of, start, write

VOCABULARY = Vocabulary.bytes()
BYTES = 2**16  # of memory, in tests


def drafter_of(settings=None, **sizes):
    return SuffixDrafter(settings, max_cached_bytes=BYTES, **sizes)


def request_of(prompt="", written="", request_id=0, **params):
    return start(
        VOCABULARY, prompt=prompt, written=written.encode(), request_id=request_id, **params
    )


def draft(drafter, request, **batch):
    return bytes(drafter.propose(batch_of(request, **batch)).token_ids[0])


def finish(request):
    request.status = RequestStatus.FINISHED


def test_prompt_and_output_are_drafted_from():
    assert draft(drafter_of(), request_of("hello world", "hello")) == b" worl"
    assert draft(drafter_of(), request_of("x", "abcabc")) == b"abc"


def test_what_a_request_wrote_is_drafted_to_others_once_it_is_finished():
    drafter, first = drafter_of(), request_of("one", "hello world")
    drafter.propose(batch_of(first))
    assert draft(drafter, request_of("two", "hel", request_id=1)) == b""
    finish(first)
    assert draft(drafter, request_of("two", "hel", request_id=1)) == b"lo "
    assert list(drafter._known) == [1]


def test_an_output_is_drafted_from_its_first_token_on_where_the_prompts_end_alike():
    drafter, first = drafter_of(), request_of("weather in Rome? Answer:", "sunny")
    drafter.propose(batch_of(first))
    finish(first)
    assert draft(drafter, request_of("weather in Oslo? Answer:", request_id=1)) == b"sunny"


def test_without_room_for_responses_nothing_is_remembered():
    drafter, first = drafter_of(max_cached_requests=0), request_of("one", "hello world")
    drafter.propose(batch_of(first))
    finish(first)
    assert draft(drafter, request_of("two", "hel", request_id=1)) == b""


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        pytest.param("hello wyoming", b" wyom", id="its-own-text-among-equals"),
        pytest.param("hello hens hello wyoming", b" worl", id="what-is-likelier"),
    ],
)
def test_of_own_text_and_memory_the_likelier_is_drafted(prompt, expected):
    drafter, first = drafter_of(), request_of("one", "hello world")
    drafter.propose(batch_of(first))
    finish(first)
    assert draft(drafter, request_of(prompt, "hello", request_id=1)) == expected


def test_a_request_that_sits_out_a_step_keeps_its_tree_and_is_not_remembered():
    drafter, held, other = drafter_of(), request_of("abcdef"), request_of("x", "abc", request_id=1)
    draft(drafter, held)
    tree = drafter._known[0].tree
    assert draft(drafter, other) == b""
    draft(drafter, held)
    assert drafter._known[0].tree is tree


def test_a_prompt_is_taken_in_as_it_is_computed():
    drafter, request = drafter_of(), request_of("hello world, hel")
    for first, num_tokens, known in ((0, 7, 7), (7, 5, 12)):
        part = ScheduledRequest(request, num_tokens, 0, False, first_position=first)
        assert drafter.propose(Batch([part])).token_ids == [[]]
        assert drafter._known[0].tree.num_tokens == known
    assert draft(drafter, request) == b"lo "


def test_the_second_round_of_a_loop_is_drafted_nearly_whole():
    answer = [*b'{"tool": "search", "query": "weather", "limit": 10}']
    drafter, first = drafter_of(), request_of("round one. Answer: ")
    first_steps = replay(drafter, first, answer)
    finish(first)
    second_steps = replay(drafter, request_of("round two. Answer: ", request_id=1), answer)
    assert len(second_steps) <= 6 < len(first_steps)


def test_a_copy_is_drafted_whole():
    text = "It is 21 degrees in Utrecht; Maud Keller, born 1948, reads by the river."
    drafter = drafter_of(SuffixSettings(max_spec_factor=4.0))
    steps = replay(drafter, request_of(text), [*text.encode()])
    assert sum(step.num_accepted for step in steps) + len(steps) == len(text)
    assert len(steps) < len(text) / 8


@pytest.mark.parametrize(
    ("slots", "is_sampled", "speculative"), [(0, True, True), (5, False, True), (5, True, False)]
)
def test_nothing_is_drafted_without_slots_or_wish(slots, is_sampled, speculative):
    request = request_of("hello hel", speculative=speculative)
    assert draft(drafter_of(), request, num_draft_slots=slots, is_sampled=is_sampled) == b""


def test_memory_stays_bounded_over_ten_thousand_random_requests():
    numbers, drafter, running = random.Random(0), drafter_of(), []
    for key in range(10_000):
        tokens = numbers.choices(range(numbers.choice([2, 50, 250])), k=numbers.randrange(40))
        running.append(start(VOCABULARY, written=tokens, request_id=key))
        drafts = drafter.propose(batch_of(*running[-2:], num_draft_slots=9)).token_ids
        assert all(len(draft) <= 9 for draft in drafts)
        if len(running) == 4:  # of which two sit out
            finish(running.pop(numbers.randrange(4)))
    drafter.observe(batch_of())
    assert len(drafter._known) == len(running) == 3
    assert drafter._memory.num_bytes <= BYTES + drafter._memory._out.nbytes


TEXTS = st.text("ab", max_size=12)


@settings(deadline=None)
@given(TEXTS, st.lists(st.tuples(TEXTS, st.integers(0, 3), st.booleans()), max_size=12), TEXTS)
def test_whatever_comes_and_goes_drafts_fit_and_are_the_same_again(prompt, moves, drafted):
    drafter, requests = drafter_of(), {}
    for text, key, is_finished in moves:
        request = requests.setdefault(key, request_of(prompt + str(key), request_id=key))
        write(request, text.encode())
        drafts = drafter.propose(batch_of(*requests.values(), num_draft_slots=4)).token_ids
        assert all(len(draft) <= 4 for draft in drafts)
        assert drafter.propose(batch_of(*requests.values(), num_draft_slots=4)).token_ids == drafts
        whole = drafter.continue_from(request, [*drafted.encode()], 3)
        written = request_of(prompt + str(key), request_id=9)
        written.token_ids = [*request.token_ids]
        assert drafter.continue_from(written, [*drafted.encode()], 3) == whole
        finish(written)
        drafter._known.pop(9)
        if is_finished:
            finish(requests.pop(key))
    drafter.observe(batch_of(*requests.values()))
    assert drafter._known.keys() == requests.keys()
