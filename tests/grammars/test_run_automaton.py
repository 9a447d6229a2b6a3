"""Which runs hide an end of another: told for many at once as for each alone, and as quickly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.constraint import JsonSchema
from structspec.grammars import boundaries, lark_losses, run_automaton
from structspec.grammars.form import Either, Form, Json, Pattern, Repeat, Sequence, Text
from structspec.grammars.run_automaton import Readings, hides, maximal, run_regex
from structspec.grammars.runs import group

RUNS = st.one_of(
    st.text("ab", min_size=1, max_size=4).map(Text),
    st.sampled_from(["[ab]+", "a*b", "(ab)+", "a?b?", "b{2,3}", "[^a]+"]).map(Pattern),
)
BYTES = st.frozensets(st.sampled_from(b"abc"))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(runs=st.lists(RUNS, max_size=9), ending=RUNS, following=BYTES)
def test_what_hides_an_end_is_found_among_many_as_one_by_one(runs, ending, following):
    alone = [
        number
        for number, run in enumerate(runs)
        if hides(run_regex(run), run_regex(ending), following)
    ]
    assert Readings(runs).hiding(ending, following) == alone


@settings(max_examples=100, deadline=None, derandomize=True)
@given(reading=RUNS, ending=st.text("ab", min_size=1, max_size=4), following=st.sampled_from("abc"))
def test_a_text_is_hidden_where_it_and_the_next_byte_begin_what_is_read(reading, ending, following):
    """By hand: try all longer texts of what is read that begin so."""
    pattern = re.escape(reading.text) if isinstance(reading, Text) else reading.pattern
    tails = ["", *(a + b for a in ["", "a", "b"] for b in "ab"), "aab", "bbb", "abab", "baba"]
    expected = any(re.fullmatch(pattern, ending + following + tail) for tail in tails)
    found = hides(run_regex(reading), run_regex(Text(ending)), frozenset(following.encode()))
    assert found == expected


@given(st.lists(st.frozensets(st.integers(0, 4)), max_size=8))
def test_groups_within_others_are_left_out_and_nothing_else(groups):
    kept = maximal(groups)
    assert len(set(kept)) == len(kept)
    assert all(any(one <= other for other in kept) for one in groups)
    assert not any(one < other for one in kept for other in kept)


def keywords_beside_a_name(count: int) -> str:
    words = " | ".join(f'"k{number:03d}" ID ";"' for number in range(count))
    return f'start: (line "\\n")*\nline: {words} | ID "=" ID\nID: /[a-z][a-z0-9]*/\n'


def tags_beside_a_name(count: int) -> Form:
    name, value = Pattern("[a-z][a-z0-9]*"), Json(JsonSchema("{}"))
    lines = [Sequence((Text(f"k{number:03d}"), value)) for number in range(count)]
    return group(Repeat(Either((*lines, Sequence((name, value)))), 0, None))


@pytest.mark.parametrize(
    "look",
    [
        lambda count: lark_losses.find_losses(keywords_beside_a_name(count)),
        lambda count: boundaries.find_losses(tags_beside_a_name(count)),
    ],
    ids=["grammar", "form"],
)
def test_the_states_looked_at_grow_with_the_keywords_not_with_their_pairs(monkeypatch, look):
    looks = 0
    transitions = run_automaton._transitions

    def counted(regex):
        nonlocal looks
        looks += 1
        return transitions(regex)

    monkeypatch.setattr(run_automaton, "_transitions", counted)
    needed = []
    for count in (40, 80, 160):
        looks = 0
        assert look(count)
        needed.append(looks)
    assert needed[1] < 2.8 * needed[0] and needed[2] < 2.8 * needed[1], needed
