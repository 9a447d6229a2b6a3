"""Many matchers at once: originals that are copied, and tokens taken in parallel."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import JsonSchema, Regex
from structspec.grammars.base import FillJob, Matcher
from structspec.grammars.drafts import take_each
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.llguidance_originals import Original, Originals
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import VOCABULARIES, backend, compiled

FREE_KEYS = JsonSchema({"type": "object", "additionalProperties": {"type": "integer"}})


class AtOnce(ThreadPoolExecutor):
    """Builds on the asking thread, so that what is built is known."""

    def __init__(self) -> None:
        self.num_built = 0

    def submit(self, build, /, *args, **kwargs) -> Future:
        self.num_built += 1
        future: Future = Future()
        future.set_result(build())
        return future


class User:
    """Whatever a copy is made for."""


def originals_of(threads: ThreadPoolExecutor, max_originals: int, build=object) -> Originals:
    return Originals(build, object(), threads, max_originals)


def take(originals: Originals, num_users: int) -> list[tuple[Original, User]]:
    taken = []
    for _ in range(num_users):
        original, user = originals.take(), User()
        original.note_user(user)
        taken.append((original, user))
    return taken


@pytest.mark.parametrize(("num_users", "num_originals"), [(1, 1), (2, 1), (3, 2), (6, 3), (99, 4)])
def test_two_users_share_an_original_until_there_are_as_many_as_threads(num_users, num_originals):
    taken = take(originals_of(AtOnce(), max_originals=4), num_users)
    users = [original.num_users for original in {original for original, _ in taken}]
    assert len(users) == num_originals
    assert sum(users) == num_users
    assert max(users) - min(users) <= 1


def test_an_original_whose_users_are_gone_is_taken_again():
    threads = AtOnce()
    originals = originals_of(threads, max_originals=4)
    for _ in range(20):
        taken = take(originals, 2)
        assert len({original for original, _ in taken}) == 1
        del taken
        gc.collect()
    assert threads.num_built == 0


def test_what_is_expected_is_built_before_it_is_asked_for():
    threads = AtOnce()
    originals = originals_of(threads, max_originals=9)
    for _ in range(8):
        originals.expect()
    assert threads.num_built == 3
    take(originals, 8)
    assert threads.num_built == 3


def test_another_original_is_waited_for_only_where_all_are_much_used():
    begin = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        originals = originals_of(threads, 4, build=lambda: begin.wait(60))
        for _ in range(9):
            originals.expect()
        first = take(originals, 8)  # does not wait
        assert len({original for original, _ in first}) == 1
        begin.set()
        assert originals.take() is not first[0][0]


def test_an_original_that_was_copied_often_or_has_failed_is_replaced():
    threads = AtOnce()
    originals = originals_of(threads, max_originals=1)
    original = originals.take()
    original.has_failed = True
    assert originals.take() is not original
    numbers = [take(originals, 1)[0][0].number for _ in range(600)]
    assert 2 <= len(set(numbers)) <= 4
    assert threads.num_built == len(set(numbers))


def row_of(matcher: Matcher, vocabulary: Vocabulary) -> np.ndarray:
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    matcher.fill(bitmask, 0)
    return bitmask[0]


def first_after(row: np.ndarray, vocabulary: Vocabulary, number: int) -> int:
    allowed = np.flatnonzero(unpack_row(row, vocabulary.vocab_size))
    return int(allowed[number % len(allowed)])


@pytest.mark.parametrize("num_matchers", [3, 40])  # one after the other; in parallel
@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
def test_tokens_that_rows_show_move_many_matchers_as_accept_does(library, num_matchers):
    vocabulary = VOCABULARIES["pieces"]()
    names = ["json", "json-union", "json-any", "regex-maybe-more", "choice-prefixes"]
    grammars = [compiled("pieces", library, name) for name in names]
    many = [grammars[i % 5].matcher() for i in range(num_matchers)]
    same = [grammars[i % 5].matcher() for i in range(num_matchers)]
    filler = backend("pieces", library)
    bitmask = allocate_bitmask(num_matchers, vocabulary.vocab_size)
    for step in range(25):
        filler.fill_drafts([FillJob(m, i, ()) for i, m in enumerate(many)], bitmask)
        tokens = [
            [first_after(row, vocabulary, 31 * step + 7 * i)] for i, row in enumerate(bitmask)
        ]
        for matcher, token_ids in list(zip(same, tokens, strict=True))[::3]:  # these take two
            assert matcher.accept(token_ids[0])
            token_ids.append(first_after(row_of(matcher, vocabulary), vocabulary, step))
            matcher.rollback(1)
        assert filler.take_shown([*zip(many, tokens, strict=True)]) == [None] * num_matchers
        assert take_each([*zip(same, tokens, strict=True)]) == [None] * num_matchers
        assert [m.forced(9) for m in many] == [m.forced(9) for m in same]
    for one, other in zip(many, same, strict=True):
        np.testing.assert_array_equal(row_of(one, vocabulary), row_of(other, vocabulary))
        one.rollback(25)
        other.rollback(25)
        np.testing.assert_array_equal(row_of(one, vocabulary), row_of(other, vocabulary))


def test_a_key_taken_unasked_is_not_offered_again():
    vocabulary = Vocabulary.bytes()
    filler = LLGuidanceBackend(vocabulary)
    matcher = filler.compile(FREE_KEYS).matcher()
    assert filler.take_shown([(matcher, b'{"a": 1, "a')]) == [None]
    assert not unpack_row(row_of(matcher, vocabulary), 257)[ord('"')]


@pytest.mark.parametrize("num_matchers", [2, 32])
def test_a_matcher_that_is_moved_by_what_it_forbids_fails_alone(num_matchers):
    filler = LLGuidanceBackend(Vocabulary.bytes())
    grammar = filler.compile(Regex("abc"))
    matchers = [grammar.matcher() for _ in range(num_matchers)]
    tokens = [b"x", *[b"a"] * (num_matchers - 1)]
    errors = filler.take_shown([*zip(matchers, tokens, strict=True)])
    assert [error is None for error in errors] == [False] + [True] * (num_matchers - 1)
    assert all(matcher.forced(9) == b"bc" for matcher in matchers[1:])
    assert grammar.matcher().forced(9) == b"abc"
