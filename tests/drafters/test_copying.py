"""Values are copied from the prompt's text, whatever tokens it was split into, and then closed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.copying import TextCopier, closing_text, value_span
from structspec.drafters.hybrid import HybridDrafter
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import batch_of, start

BYTES = Vocabulary.bytes()
STOP = 256


def copied(prompt, written, limit=60):
    request = start(BYTES, prompt=prompt, written=written.encode())
    token_ids = TextCopier(BYTES).continue_from(request, (), limit)
    return None if token_ids is None else bytes(token_ids).decode()


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("Ada Lovelace is 36", "Ada Lovelace"),
        ("Lovelace, 36", "Lovelace"),
        ("24.50 each", "24.50"),
        ("119.", "119"),
        ("2026-03-14 at 10:30", "2026-03-14"),
        ("Room 5 B, left", "Room 5 B"),
        ("São Paulo in", "São Paulo"),
        ("", ""),
        (" is", ""),
    ],
)
def test_a_value_ends_where_the_span_of_names_and_numbers_ends(text, span):
    assert value_span(text.encode()).decode() == span


@pytest.mark.parametrize(
    ("prompt", "written", "rest"),
    [
        ("Ada Lovelace is 36.", '{"name": "Ad', "a Lovelace"),
        ("from Munich to Oslo", '{"to": "O', "slo"),
        ("It costs 24.50 each", '{"price": 2', "4.50"),
        ("from Munich to Oslo", '{"to": "Oslo', ""),  # whole: only its end is missing
        ("from Munich to Oslo", '{"to": "', None),  # nothing to go by
        ("from Munich to Oslo", '{"to": "X', None),
        ("mathematician", '{"job": "tic', None),  # the end of another word
    ],
)
def test_a_value_begun_is_copied_from_where_it_stands(prompt, written, rest):
    assert copied(prompt, written) == rest


def test_nothing_is_copied_across_a_special_token():
    request = start(BYTES, prompt="", written=b"")
    request.token_ids = [*b"Ad", STOP, *b"a Ad"]
    assert TextCopier(BYTES).continue_from(request, (), 20) == []


@given(st.text("Ad e1-", max_size=20), st.text("Ad e1-", max_size=12), st.integers(0, 6))
def test_a_copy_goes_on_in_the_prompt_where_the_word_stands_and_keeps_its_limit(
    prompt, written, limit
):
    rest = copied(prompt, written, limit)
    if rest:
        word = written.split(" ")[-1]
        assert f"{word}{rest}" in f"{prompt}{written}"
        assert len(rest) <= limit


def test_the_next_call_sees_what_was_written_since():
    copier = TextCopier(BYTES)
    request = start(BYTES, prompt="Ada Lovelace, Bob Dylan. ", written=b"A")
    assert bytes(copier.continue_from(request, (), 20)) == b"da Lovelace"
    request.token_ids += b"lan B"
    assert bytes(copier.continue_from(request, b"o", 20)) == b"b Dylan"
    assert bytes(copier.continue_from(request, (), 20)) == b"ob Dylan"


def test_a_value_is_closed_with_what_the_grammar_takes_and_what_it_then_forces():
    texts = ['{"name": "Ada", "age": 3}', '{"name": "Adam", "age": 4}', '{"name": "Ad", "age": 3}']
    matcher = start(BYTES, texts, written=b'{"name": "Ada').matcher
    assert closing_text(matcher, BYTES) == b'", "age": 3}'
    assert matcher.accept(ord("m"))  # where it was


def test_nothing_closes_a_value_that_must_go_on():
    assert closing_text(start(BYTES, ["Ada", "Adb"], written=b"Ad").matcher, BYTES) == b""


def test_a_hybrid_draft_goes_on_behind_the_copied_value():
    texts = ['{"name": "Ada Lovelace", "age": 36}', '{"name": "Adam", "age": 4}']
    request = start(BYTES, texts, prompt="We met Ada Lovelace there.", written=b'{"name": "Ad')
    config = SpeculativeConfig(num_speculative_tokens=40, max_guess_rows=40)
    draft = HybridDrafter(BYTES, config).propose(batch_of(request, num_draft_slots=40))
    assert bytes(draft.token_ids[0][:-1]) == b'a Lovelace", "age": 36}'


def test_guesses_are_shared_by_the_requests_of_a_step():
    requests = [start(BYTES, prompt="abcdefgh abc", request_id=index) for index in range(4)]
    config = SpeculativeConfig(max_guess_rows=12)
    draft = HybridDrafter(BYTES, config).propose(batch_of(*requests, num_draft_slots=10))
    assert [bytes(token_ids) for token_ids in draft.token_ids] == [b"de"] * 4
