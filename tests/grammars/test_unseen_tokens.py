"""Tokens drawn without a row: followers take exactly what a row would have shown."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask
from structspec.constraint import Regex
from structspec.grammars.base import FillJob, Look, Matcher, MatcherFailed, Seen
from structspec.grammars.drafts import is_allowed, look_each, take_each
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.llguidance_batch import inner_of
from structspec.grammars.llguidance_threads import can_fill
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import VOCABULARIES, compiled
from tests.grammars.followed import (
    NAMES,
    SPECIAL,
    fill_all,
    followed_backend,
    followed_grammar,
    followed_matchers,
    pick,
    rows_of,
    special_grammars,
)

if not can_fill():
    pytest.skip("no C interface or no semaphores here", allow_module_level=True)


def starts_of(text: bytes, vocabulary: Vocabulary) -> list[int]:
    """The tokens that a text may begin with."""
    ids = ids_by_text(vocabulary)
    return [ids[text[:end]] for end in range(1, len(text) + 1) if text[:end] in ids]


@cache
def ids_by_text(vocabulary: Vocabulary) -> dict[bytes | None, int]:
    return {data: token_id for token_id, data in enumerate(vocabulary.token_bytes)}


def some_tokens(matcher: Matcher, vocabulary: Vocabulary, number: int) -> tuple[list[int], int]:
    """Tokens, and how many of them rows allow one behind the other; the matcher is moved by those.

    Most are allowed. Others may be any number, or begin the forced text otherwise than rows do, and
    something may come behind them.
    """
    choose = random.Random(number)
    token_ids: list[int] = []
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    for count in range(choose.randint(1, 4)):
        matcher.fill(bitmask, 0)
        token_id = pick(bitmask[0], vocabulary.vocab_size, choose.randrange(10**6))
        if choose.random() < 0.25:
            starts = starts_of(matcher.forced(12), vocabulary)
            token_id = choose.choice([choose.randint(-1, vocabulary.vocab_size), *starts])
        token_ids.append(token_id)
        if not is_allowed(bitmask, 0, token_id):
            return token_ids + choose.choices(range(vocabulary.vocab_size), k=count), count
        assert matcher.accept(token_id)
    return token_ids, len(token_ids)


def some_choice(matcher: Matcher, vocabulary: Vocabulary, number: int) -> tuple[list[int], int]:
    """Tokens, and which is the first that a row allows; the matcher is moved by that one."""
    choose = random.Random(number)
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    matcher.fill(bitmask, 0)
    token_ids = choose.choices([-1, vocabulary.vocab_size, *vocabulary.stop_token_ids], k=2)
    token_ids += choose.choices(range(vocabulary.vocab_size), k=2)
    token_ids += [pick(bitmask[0], vocabulary.vocab_size, choose.randrange(10**6))]
    token_ids = choose.sample(token_ids, choose.randint(0, 5))
    allowed = [i for i, token_id in enumerate(token_ids) if is_allowed(bitmask, 0, token_id)]
    if not allowed:
        return token_ids, len(token_ids)
    assert matcher.accept(token_ids[allowed[0]])
    return token_ids, allowed[0]


def up_to_stop(token_ids: list[int], vocabulary: Vocabulary) -> list[int]:
    """The tokens up to the first that ends a text, that one included."""
    stops = [place for place, i in enumerate(token_ids, 1) if i in vocabulary.stop_token_ids]
    return token_ids[: stops[0]] if stops else token_ids


MIXED_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["unseen", "unseen", "choice", "choice", "shown", "rows", "drafts", "ahead", "back"]
        ),
        st.integers(0, 10**6),
    ),
    min_size=1,
    max_size=16,
)


def walk_along(
    filler: LLGuidanceBackend, matchers: list[Matcher], same: list[Matcher], steps
) -> list[list[int]]:
    """Move matchers in all ways, and `same` by what their own rows allow; all tokens taken."""
    taken: list[list[int]] = [[] for _ in matchers]
    for kind, number in steps:
        some = [some_tokens(m, filler.vocabulary, number + 7 * i) for i, m in enumerate(same)]
        allowed = [token_ids[:count] for token_ids, count in some]
        counts = [count for _, count in some]
        if kind == "unseen":
            moves = [(m, token_ids) for m, (token_ids, _) in zip(matchers, some, strict=True)]
            assert filler.take_unseen(moves) == counts
        else:
            for matcher, count in zip(same, counts, strict=True):
                matcher.rollback(count)
        if kind == "drafts":
            jobs = [FillJob(m, 9 * i, some[i][0]) for i, m in enumerate(matchers)]
            bitmask = allocate_bitmask(9 * len(jobs), filler.vocabulary.vocab_size)
            assert filler.fill_drafts(jobs, bitmask) == counts
        if kind in ("rows", "shown"):
            rows = fill_all(filler, matchers)
            np.testing.assert_array_equal(rows, rows_of(filler, same))
        if kind == "shown":
            allowed = [[pick(row, filler.vocabulary.vocab_size, number)] for row in rows]
            assert filler.take_shown([*zip(matchers, allowed, strict=True)]) == [None] * len(same)
            assert take_each([*zip(same, allowed, strict=True)]) == [None] * len(same)
        if kind == "choice":
            some = [some_choice(m, filler.vocabulary, number + 7 * i) for i, m in enumerate(same)]
            moves = [(m, token_ids) for m, (token_ids, _) in zip(matchers, some, strict=True)]
            assert filler.take_first(moves) == [place for _, place in some]
            allowed = [token_ids[place : place + 1] for token_ids, place in some]
        if kind == "ahead":
            guesses = [up_to_stop(token_ids, filler.vocabulary) for token_ids, _ in some]
            limits = [(number + 5 * i) % 140 for i in range(len(same))]
            looks = [Look(*look) for look in zip(matchers, guesses, limits, strict=True)]
            expected = look_each([Look(*look) for look in zip(same, guesses, limits, strict=True)])
            assert filler.look_ahead(looks) == expected
        if kind in ("unseen", "shown", "choice"):
            for token_ids, new in zip(taken, allowed, strict=True):
                token_ids += new
        if kind == "back":
            for matcher, other, token_ids in zip(matchers, same, taken, strict=True):
                num_tokens = number % (len(token_ids) + 1)
                matcher.rollback(num_tokens)
                other.rollback(num_tokens)
                del token_ids[len(token_ids) - num_tokens :]
    return taken


def check_rows(filler: LLGuidanceBackend, matchers, fresh, taken: list[list[int]]) -> None:
    """As those of matchers that were moved by the same tokens and nothing else."""
    same = [fresh.matcher() for _ in matchers]
    assert take_each([*zip(same, taken, strict=True)]) == [None] * len(same)
    np.testing.assert_array_equal(fill_all(filler, matchers), rows_of(filler, same))
    np.testing.assert_array_equal(rows_of(filler, matchers), rows_of(filler, same))
    assert [m.forced(20) for m in matchers] == [m.forced(20) for m in same]


@pytest.mark.parametrize("name", [name for name, _ in NAMES])
@pytest.mark.parametrize("vocabulary_name", VOCABULARIES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(steps=MIXED_STEPS)
def test_unseen_tokens_are_taken_exactly_as_rows_allow_them(vocabulary_name, name, steps):
    filler, fresh = followed_backend(vocabulary_name), compiled(vocabulary_name, "llguidance", name)
    grammar = followed_grammar(vocabulary_name, name)
    # one has no follower, until rows are filled
    matchers = [grammar.matcher(), *followed_matchers(grammar, 2)]
    same = [fresh.matcher() for _ in matchers]
    check_rows(filler, matchers, fresh, walk_along(filler, matchers, same, steps))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=MIXED_STEPS)
@pytest.mark.parametrize("name", SPECIAL)
def test_unseen_names_and_keys_are_taken_exactly_as_rows_allow_them(name, steps):
    """Of tokens that are no text those that the grammar names, of keys those not yet there."""
    filler, grammar, fresh = special_grammars(name)
    matchers, same = followed_matchers(grammar, 2), [fresh.matcher() for _ in range(2)]
    check_rows(filler, matchers, fresh, walk_along(filler, matchers, same, steps))


@pytest.mark.parametrize(
    ("name", "text", "num_taken"),
    [
        ("keys", [*b'{"a": 1, "b": 2}', 258, 258], 18),
        ("keys", [*b'{"a": 1, "a": 2}', 258], 11),
        ("keys", [*b'{"a": 1, ', 257], 9),
        ("keys", [*b'{"a"', 258], 4),
        ("keys", [*b"{}", 258, 258, *b"{"], 4),
        ("keys", [], 0),
        ("names", [256, *b'[{"name": "ab", "arguments": {}}', 257], 33),
        ("names", [256, *b'[{"name": "ab", "arguments": {}}]', 257, 258], 36),
        ("names", [257, 256], 0),
        ("names", [*b"[TOOL", 256], 0),
    ],
)
def test_unseen_tokens_by_hand(name, text, num_taken):
    filler, grammar, _ = special_grammars(name)
    for has_follower in (True, False):
        matcher = followed_matchers(grammar, 1)[0] if has_follower else grammar.matcher()
        assert filler.take_unseen([(matcher, text)]) == [num_taken]
        matcher.rollback(num_taken)
        assert filler.take_unseen([(matcher, text[:1])]) == [min(num_taken, 1)]


@pytest.mark.parametrize(
    ("guesses", "limit", "seen"),
    [
        (b"", 9, Seen(0, [])),  # any digit may come
        (b"2024", 9, Seen(4, [ord("-")])),
        (b"2024", 4, Seen(4, [])),
        (b"2024", 2, Seen(2, [])),
        (b"20x4-", 9, Seen(2, [])),
        (b"2024-1", 9, Seen(6, [])),
    ],
)
def test_a_look_ahead_by_hand(guesses, limit, seen):
    """Of a date: what is taken of the guesses, and what is certain behind them."""
    filler, grammar = followed_backend("bytes"), followed_grammar("bytes", "regex-date")
    matchers = [grammar.matcher(), *followed_matchers(grammar, 2)]
    assert filler.look_ahead([Look(m, guesses, limit) for m in matchers]) == [seen] * 3
    assert filler.take_unseen([(matcher, b"2024-") for matcher in matchers]) == [5] * 3


def test_a_follower_that_fails_while_it_looks_ahead_is_dropped():
    filler, grammar = followed_backend("bytes"), followed_grammar("bytes", "regex-date")
    matchers = followed_matchers(grammar, 2)
    with pytest.raises(MatcherFailed):
        inner_of(matchers[0]).follower.library.take(ord("x"))
    looks = [Look(matcher, b"2024", 9) for matcher in matchers]
    assert filler.look_ahead(looks) == [Seen(4, [ord("-")])] * 2
    assert [inner_of(m).follower is not None for m in matchers] == [False, True]


def test_a_follower_that_fails_while_it_looks_is_dropped_and_its_matcher_takes_the_tokens():
    filler, grammar = followed_backend("bytes"), followed_grammar("bytes", "regex-date")
    matchers = followed_matchers(grammar, 3)
    followers = [inner_of(matcher).follower for matcher in matchers]
    with pytest.raises(MatcherFailed):
        followers[1].library.take(ord("x"))
    moves = [(matcher, b"2024-x") for matcher in matchers]
    assert filler.take_unseen(moves) == [5, 5, 5]
    assert [inner_of(m).follower is not None for m in matchers] == [True, False, True]
    assert [m.forced(3) for m in matchers] == [b""] * 3
    assert filler.take_unseen([(matcher, b"12") for matcher in matchers]) == [2, 2, 2]
    assert [m.forced(3) for m in matchers] == [b"-"] * 3
    with pytest.raises(MatcherFailed):
        followers[2].library.take(ord("x"))
    assert filler.take_first([(matcher, b"x-") for matcher in matchers]) == [1, 1, 1]
    assert [inner_of(m).follower is not None for m in matchers] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "text", "some", "place"),
    [
        ("keys", b"{", [*b"xy}"], 2),
        ("keys", b"{", [*b"xyz"], 3),
        ("keys", b"{", [258, 257], 2),
        ("keys", b"{}", [*b"}", 256, 258, 257], 2),
        ("keys", b'{"a": 1, "a', [*b'"b'], 1),
        ("names", b"", [258, *b"[", 256], 2),
        ("names", b"", [], 0),
    ],
)
def test_choices_by_hand(name, text, some, place):
    filler, grammar, _ = special_grammars(name)
    for has_follower in (True, False):
        matcher = followed_matchers(grammar, 1)[0] if has_follower else grammar.matcher()
        assert filler.take_unseen([(matcher, text)]) == [len(text)]
        assert filler.take_first([(matcher, some)]) == [place]
        matcher.rollback(place < len(some))
        assert filler.take_first([(matcher, some[place:])]) == [0]


def test_a_row_is_not_taken_for_that_of_another_branch_of_equal_length():
    """After a call's `to` the object has to go on, after that of `send` it may end: `"}`."""
    filler, grammar = followed_backend("smollm2"), followed_grammar("smollm2", "json-union")
    fresh = compiled("smollm2", "llguidance", "json-union")
    matchers = followed_matchers(grammar, 2)
    texts = [
        filler.vocabulary.encode_text(f'{{"tool": "{tool}", "to": "Ann')
        for tool in ("send", "call")
    ]
    assert len(texts[0]) == len(texts[1])
    for text in texts:
        assert filler.take_unseen([(m, text) for m in matchers]) == [len(text)] * 2
        check_rows(filler, matchers, fresh, [text] * 2)
        for matcher in matchers:
            matcher.rollback(len(text))


def test_many_matchers_ask_for_followers_when_unseen_tokens_are_looked_at():
    """Few do not: they are moved as quickly without."""
    filler, grammar = followed_backend("bytes"), followed_backend("bytes").compile(Regex("[0-9]+"))
    matchers = [grammar.matcher() for _ in range(8)]
    assert filler.take_unseen([(matcher, b"1") for matcher in matchers[1:]]) == [1] * 7
    grammar.followers.wait()
    assert all(inner_of(m).follower is None for m in matchers)
    assert filler.take_unseen([(matcher, b"2") for matcher in matchers]) == [1] * 8
    grammar.followers.wait()
    assert filler.take_unseen([(matcher, b"x") for matcher in matchers]) == [0] * 8
    assert all(inner_of(m).follower is not None for m in matchers)
    check_rows(filler, matchers, grammar, [[*b"2"], *[[*b"12"]] * 7])
