"""Habits: forced text is drafted in the tokens that the model was seen to spell it with."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters import habits
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.habits import Habits, Opening, Place
from structspec.drafters.hybrid import HybridDrafter
from tests.drafters.replay import replay
from tests.drafters.toy import batch_of, start, words_vocabulary, write

WORDS = words_vocabulary('{"', "name", '":', " {", "ab", "bc", "abc", "cd", "abcd")
OBJECT = ['{"name": 1', '{"name": 2']
BLANK = ["is: {", "is: 1"]


def ids(*tokens):
    """The ids of tokens given by their text."""
    return [WORDS.token_bytes.index(token.encode()) for token in tokens]


def draft(drafter, texts, written=(), vocabulary=WORDS):
    """What is drafted for a fresh request that has written so far, as text of tokens."""
    request = start(vocabulary, texts, written=written)
    drafted = drafter.propose(batch_of(request)).token_ids[0]
    return [vocabulary.token_bytes[token_id].decode() for token_id in drafted]


def see(drafter, texts, output, written=()):
    """Let a request write this output while the drafter drafts for it."""
    return replay(drafter, start(WORDS, texts, written=written), output)


def test_a_token_written_in_parts_is_drafted_in_parts_from_then_on():
    drafter = ForcedDrafter(WORDS)
    assert draft(drafter, OBJECT) == ['{"', "name", '":', " "]
    steps = see(drafter, OBJECT, ids("{", '"', "name", '":', " ", "1"))
    assert [step.num_accepted for step in steps] == [0, 4]
    assert draft(drafter, OBJECT) == ["{", '"', "name", '":', " "]


def test_tokens_written_as_one_are_drafted_as_one_from_then_on():
    drafter = ForcedDrafter(WORDS)
    texts = ["xbcd1", "xbcd2"]
    assert draft(drafter, texts) == ["x", "bc", "d"]
    see(drafter, texts, ids("x", "b", "cd", "1"))  # `c` `d` would be canonical behind `b`
    assert draft(drafter, texts) == ["x", "b", "cd"]


def test_a_habit_that_stops_being_true_is_given_up():
    drafter = ForcedDrafter(WORDS)
    canonical = ids('{"', "name", '":', " ", "1")
    see(drafter, OBJECT, ids("{", '"', "name", '":', " ", "1"))
    for _ in range(2):
        see(drafter, OBJECT, canonical)
    assert [step.num_accepted for step in see(drafter, OBJECT, canonical)] == [4]


def test_a_habit_seen_once_is_one_of_its_context():
    drafter = ForcedDrafter(WORDS)
    see(drafter, OBJECT, ids("{", '"', "name", '":', " ", "1"))
    assert draft(drafter, ['x{"name']) == ["x", '{"', "name"]


def test_a_habit_seen_in_two_contexts_is_one_of_all_where_nothing_else_is_known():
    drafter = ForcedDrafter(WORDS)
    for before in "x", "y":
        see(drafter, [before + '{"name'], ids(before, "{", '"', "name"))
    assert draft(drafter, ['z{"name']) == ["z", "{", '"', "name"]
    see(drafter, ['z{"name'], ids("z", '{"', "name"))
    assert draft(drafter, ['z{"name']) == ["z", '{"', "name"]
    assert draft(drafter, ['x{"name']) == ["x", "{", '"', "name"]


def test_a_last_token_that_merges_with_what_comes_next_is_left_out_there():
    drafter = ForcedDrafter(WORDS)
    assert draft(drafter, BLANK) == ["i", "s", ":", " "]
    see(drafter, BLANK, ids("i", "s", ":", " {"))
    assert draft(drafter, BLANK) == ["i", "s", ":"]
    # Elsewhere something else may come next: nothing is known of it there.
    assert draft(drafter, ["in: {", "in: 1"]) == ["i", "n", ":", " "]


def test_a_last_token_left_out_comes_back_when_the_model_writes_it():
    drafter = ForcedDrafter(WORDS)
    see(drafter, BLANK, ids("i", "s", ":", " {"))
    for _ in range(2):
        see(drafter, BLANK, ids("i", "s", ":", " ", "1"))
    assert draft(drafter, BLANK) == ["i", "s", ":", " "]


def test_where_the_last_token_is_left_out_the_hybrid_drafter_looks_it_up():
    drafter = HybridDrafter(WORDS, SpeculativeConfig())
    see(drafter, BLANK, ids("i", "s", ":", " {"))
    request = start(WORDS, BLANK, prompt="is: {", request_id=1)
    drafted = drafter.propose(batch_of(request))
    assert drafted.token_ids[0] == [*ids("i", "s", ":", " {"), *WORDS.stop_token_ids]
    assert drafted.is_forced[0] == [True, True, True, False, True]


def test_what_ends_a_copied_value_is_spelled_by_habit_too():
    drafter = HybridDrafter(WORDS, SpeculativeConfig())
    texts, prompt = ['Ada":1', 'Adam":1', 'Adax":2'], "We met Ada there."
    output = [*ids("a", '"', ":", "1"), *WORDS.stop_token_ids]
    drafted = []
    for request_id in range(2):
        request = start(WORDS, texts, prompt=prompt, written=ids("A", "d"), request_id=request_id)
        drafted.append(drafter.propose(batch_of(request)).token_ids[0][:3])
        replay(drafter, request, output)
    assert drafted == [ids("a", '":', "1"), ids("a", '"', ":")]


def test_tokens_of_another_text_teach_nothing():
    known = Habits(WORDS)
    opening = Opening(Place((), ids("abc")[0], is_last=True), b"abc")
    for token in "b", "x", "{", '{"':
        known.learn(opening, ids(token)[0])
    known.learn(opening, WORDS.stop_token_ids[0])
    assert not known._scores


def test_a_step_that_wrote_nothing_teaches_nothing():
    drafter, request = ForcedDrafter(WORDS), start(WORDS, OBJECT)
    for _ in range(3):
        assert drafter.propose(batch_of(request)).token_ids[0] == ids('{"', "name", '":', " ")


def test_the_last_step_of_a_request_teaches_too():
    drafter = ForcedDrafter(WORDS)
    see(drafter, OBJECT, ids("{"))
    assert draft(drafter, OBJECT)[:2] == ["{", '"']


def test_what_one_request_teaches_serves_the_others_from_the_next_step_on():
    drafter = ForcedDrafter(WORDS)
    first, second = (start(WORDS, OBJECT, request_id=index) for index in range(2))
    drafter.propose(batch_of(first, second))
    write(first, ids("{"))
    drafted = drafter.propose(batch_of(first, second)).token_ids
    assert [token_ids[:2] for token_ids in drafted] == [ids('"', "name"), ids("{", '"')]


def test_only_the_latest_places_are_remembered(monkeypatch):
    monkeypatch.setattr(habits, "_MAX_PLACES", 4)
    drafter = ForcedDrafter(WORDS)
    for before in "uvwxyz":
        see(drafter, [f"{before}: {{", f"{before}: 1"], ids(before, ":", " {"))
    left_out = [draft(drafter, [f"{c}: {{", f"{c}: 1"])[-1] == ":" for c in "uvwxyz"]
    assert left_out == [False, False, True, True, True, True]


def test_of_one_place_only_the_latest_evidence_is_remembered():
    vocabulary = words_vocabulary(*(f"a{c}{d}" for c in "bcdefgh" for d in "bcdefgh"))
    known, merged = Habits(vocabulary), range(256, vocabulary.vocab_size - 1)
    for token_id in merged:
        data = vocabulary.token_bytes[token_id]
        known.learn(Opening(Place((), ord("a"), is_last=False), data), token_id)
    assert max(map(len, known._scores.values())) < len(merged) / 2


ABC = st.text("abcd", min_size=1, max_size=8)


def spellings(text):
    """Any tokens that spell this text."""

    @st.composite
    def draw_tokens(draw):
        token_ids, rest = [], text.encode()
        while rest:
            token_id = draw(
                st.sampled_from(
                    [i for i, b in enumerate(WORDS.token_bytes) if b and rest.startswith(b)]
                )
            )
            token_ids.append(token_id)
            rest = rest[len(WORDS.token_bytes[token_id]) :]
        return token_ids

    return draw_tokens()


@settings(deadline=None)
@given(data=st.data(), slots=st.integers(1, 8))
def test_whatever_was_learned_a_draft_spells_a_prefix_of_the_forced_text(data, slots):
    drafters = [ForcedDrafter(WORDS), ForcedDrafter(WORDS)]
    for texts in data.draw(st.lists(st.lists(ABC, min_size=1, max_size=2), max_size=6)):
        output = data.draw(spellings(texts[0]))
        runs = [replay(drafter, start(WORDS, texts), output, slots) for drafter in drafters]
        assert runs[0] == runs[1], "the same history gives the same drafts"
        matcher = start(WORDS, texts).matcher
        for step in runs[0]:
            assert len(step.token_ids) <= slots
            forced = matcher.forced(100)
            assert forced.startswith(WORDS.decode_bytes(step.token_ids))
            for token_id in output[: step.num_accepted + 1]:
                assert matcher.accept(token_id)
            output = output[step.num_accepted + 1 :]


@settings(deadline=None)
@given(data=st.data(), slots=st.integers(1, 8))
def test_whatever_was_learned_the_grammar_takes_every_hybrid_draft(data, slots):
    drafter = HybridDrafter(WORDS, SpeculativeConfig())
    for request_id in range(data.draw(st.integers(1, 5))):
        texts = data.draw(st.lists(ABC, min_size=1, max_size=3))
        output = [*data.draw(spellings(texts[0])), *WORDS.stop_token_ids]
        request = start(WORDS, texts, prompt=texts[0], request_id=request_id)
        matcher = start(WORDS, texts).matcher
        for step in replay(drafter, request, output, slots):
            assert len(step.token_ids) <= slots
            assert all(map(matcher.accept, step.token_ids))
            matcher.rollback(len(step.token_ids))
            num_written = step.num_accepted + 1
            assert all(map(matcher.accept, output[:num_written]))
            output = output[num_written:]


@settings(deadline=None)
@given(data=st.data())
def test_one_spelling_is_learned_whatever_it_is(data):
    text = data.draw(st.permutations('{"name: tabcd').map("".join))  # no context comes twice
    output = data.draw(spellings(text))
    drafter = ForcedDrafter(WORDS)
    num_steps = [len(see(drafter, [text], output)) for _ in range(len(output) + 1)]
    assert num_steps[-1] == 1


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_more_frequent_of_two_spellings_is_drafted_most_of_the_time(share):
    whole, parts = ids('{"', "x"), ids("{", '"', "x")
    drafter, num_right = ForcedDrafter(WORDS), 0
    for index in range(100):
        output = whole if index % 5 < share * 5 else parts
        num_right += len(see(drafter, ['{"x'], output)) == 1
    assert num_right >= 60
