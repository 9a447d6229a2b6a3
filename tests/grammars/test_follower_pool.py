"""Followers that lie ready: how many, for whom, and that used ones are as good as new."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask
from structspec.constraint import JsonSchema, Regex
from structspec.grammars import llguidance_pool
from structspec.grammars.base import MatcherFailed
from structspec.grammars.drafts import take_each
from structspec.grammars.llguidance_batch import inner_of
from structspec.grammars.llguidance_pool import FollowerPool
from structspec.grammars.llguidance_threads import can_fill
from tests.grammars.cases import VOCABULARIES, backend
from tests.grammars.followed import (
    NAMES,
    fill_all,
    followed_backend,
    followed_matchers,
    pick,
    rows_of,
)

if not can_fill():
    pytest.skip("no C interface or no semaphores here", allow_module_level=True)


class Later:
    """Threads that work when they are told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future, object]] = []

    def submit(self, job, /) -> Future:
        self.jobs.append((Future(), job))
        return self.jobs[-1][0]

    def work(self) -> None:
        while self.jobs:
            future, job = self.jobs.pop()
            future.set_result(job())


def pool_of(threads, text: str = "a[bc]{9}d", build=None) -> FollowerPool:
    filler = followed_backend("bytes")
    grammar = filler.compile(Regex(text))._grammar
    return FollowerPool(
        build or (lambda: filler.new_native_matcher(grammar)), threads, filler.vocabulary
    )


def test_who_was_expected_has_a_follower_at_once_and_nothing_is_made_meanwhile():
    threads = Later()
    pool = pool_of(threads)
    for _ in range(20):
        pool.expect()
    assert len(threads.jobs) == 1
    threads.work()
    claims = [pool.claim() for _ in range(20)]
    assert len({claim.follower.handle for claim in claims}) == 20


def test_who_came_too_early_has_a_follower_once_it_is_made_and_the_dead_get_none():
    threads = Later()
    pool = pool_of(threads)
    for _ in range(3):
        pool.expect()
    claims = [pool.claim() for _ in range(3)]
    assert [claim.ask() for claim in claims] == [None] * 3
    del claims[1]
    threads.work()
    assert all(claim.ask() is not None for claim in claims)
    lying_there = pool.claim().ask()
    assert lying_there is not None
    assert lying_there not in [claim.follower for claim in claims]


def test_a_grammar_that_one_request_wants_has_no_template_and_a_follower_after_a_while():
    threads, builds = Later(), []
    filler = followed_backend("bytes")
    grammar = filler.compile(Regex("ab+"))._grammar

    def build():
        builds.append(1)
        return filler.new_native_matcher(grammar)

    pool = pool_of(threads, build=build)
    pool.expect()
    alone = pool.claim()
    for _ in range(15):
        assert alone.ask() is None
    assert not threads.jobs
    assert alone.ask() is None  # but now it is ordered
    threads.work()
    assert alone.ask() is not None
    assert len(builds) == 1
    assert pool.num_bytes == 0
    pool.expect()
    threads.work()
    assert len(builds) == 2
    assert pool.claim().follower is not None


def test_a_matcher_that_nobody_expected_takes_a_follower_only_when_it_asks():
    pool = pool_of(threads := Later())
    for _ in range(2):
        pool.expect()
    threads.work()
    unexpected = [pool.claim() for _ in range(5)][2:]
    assert all(claim.follower is None for claim in unexpected)
    threads.work()
    assert all(claim.ask() is not None for claim in unexpected[:2])


def test_of_many_waiting_requests_the_last_get_a_follower_when_a_step_asks(monkeypatch):
    monkeypatch.setattr(llguidance_pool, "_MAX_EARLY", len(llguidance_pool._in_use) + 3)
    pool = pool_of(threads := Later())
    for _ in range(6):
        pool.expect()
    threads.work()
    claims = [pool.claim() for _ in range(6)]
    assert [claim.follower is not None for claim in claims] == [True] * 3 + [False] * 3
    assert all(claim.ask() is not None for claim in claims)


def test_matchers_that_were_expected_and_never_came_are_forgotten(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(llguidance_pool.time, "monotonic", lambda: now[0])
    pool = pool_of(threads := Later())
    for _ in range(50):
        pool.expect()
    threads.work()
    num_bytes = pool.num_bytes
    for _ in range(3):
        now[0] += 61
        pool.expect()
        pool.claim()
        threads.work()
    claims = [pool.claim() for _ in range(50)]
    assert sum(claim.is_seen for claim in claims) == 0
    assert pool.num_bytes <= num_bytes


def test_a_follower_comes_back_and_is_used_again_but_not_for_ever():
    pool = pool_of(threads := Later())
    num_uses = []
    for _ in range(100):
        pool.expect()
        threads.work()
        claim = pool.claim()
        num_uses.append(claim.ask().num_uses if claim.ask() else 0)
        del claim
    assert max(num_uses) == llguidance_pool._WORN


def test_a_grammar_that_cannot_be_held_is_tried_once(caplog):
    tried = []

    def build():
        tried.append(1)
        raise MatcherFailed("no")

    pool = pool_of(threads := Later(), build=build)
    for _ in range(3):
        pool.expect()
        pool.expect()
        threads.work()
        assert pool.claim().ask() is None
    assert len(tried) == 1
    assert "cannot hold" in caplog.text


def test_pools_that_take_too_much_or_lie_still_are_freed_and_fill_again(monkeypatch):
    shelf, threads = llguidance_pool._Shelf(), Later()
    monkeypatch.setattr(llguidance_pool, "_SHELF", shelf)
    monkeypatch.setattr(llguidance_pool, "_LOOK_EVERY_S", 0.0)
    pools = [pool_of(threads) for _ in range(3)]

    def use(pool: FollowerPool) -> None:
        for _ in range(4):
            pool.expect()
        threads.work()

    use(pools[0])
    monkeypatch.setattr(llguidance_pool, "_MAX_BYTES", 2 * pools[0].num_bytes)
    use(pools[1])
    assert [pool.num_bytes > 0 for pool in pools] == [True, True, False]
    use(pools[2])
    assert [pool.num_bytes > 0 for pool in pools] == [False, True, True]
    monkeypatch.setattr(llguidance_pool, "_MAX_IDLE_S", -1.0)
    shelf.note(pools[1])
    assert sum(pool.num_bytes for pool in pools) == 0
    monkeypatch.setattr(llguidance_pool, "_MAX_IDLE_S", 60.0)
    use(pools[1])
    assert all(claim.follower for claim in [pools[1].claim() for _ in range(4)])


def test_a_used_follower_does_not_take_a_row_for_one_of_the_text_before():
    """After a call's `to` the object has to go on, after that of `send` it may end: `"}`."""
    filler = followed_backend("smollm2")
    grammar = filler.compile(dict(NAMES)["json-union"])
    texts = [
        filler.vocabulary.encode_text(f'{{"tool": "{tool}", "to": "Ann')
        for tool in ("send", "send", "call", "call")  # two lie ready, and two come back
    ]
    assert len(texts[0]) == len(texts[1])
    tools: dict[int, set[int]] = {}  # that each follower has seen
    for text in texts:
        matchers = followed_matchers(grammar, 2)
        for matcher in matchers:
            tools.setdefault(inner_of(matcher).follower.handle, set()).add(text[4])
        others = [backend("smollm2", "llguidance").compile(dict(NAMES)["json-union"]).matcher()]
        assert filler.take_unseen([(m, text) for m in matchers]) == [len(text)] * 2
        assert take_each([(others[0], text)]) == [None]
        rows = fill_all(filler, matchers)
        assert all(inner_of(matcher).has_followed_row for matcher in matchers)
        np.testing.assert_array_equal(rows, np.repeat(rows_of(filler, others), 2, 0))
        del matchers
    assert 2 in map(len, tools.values())


@pytest.mark.parametrize("name", [name for name, _ in NAMES])
@pytest.mark.parametrize("vocabulary_name", VOCABULARIES)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(texts=st.lists(st.lists(st.integers(0, 10**6), max_size=12), min_size=2, max_size=5))
def test_used_followers_show_what_new_ones_do(vocabulary_name, name, texts):
    """One text after the other, each by the follower of the one before."""
    filler = followed_backend(vocabulary_name)
    grammar = filler.compile(dict(NAMES)[name])
    fresh = backend(vocabulary_name, "llguidance").compile(dict(NAMES)[name])
    size, num_uses = filler.vocabulary.vocab_size, []
    followed_matchers(grammar, 1)
    for numbers in texts:
        (matcher,), other = followed_matchers(grammar, 1), fresh.matcher()
        num_uses.append(inner_of(matcher).follower.num_uses)
        for number in numbers:
            row = rows_of(filler, [other])
            if number % 3 == 0:  # no row is asked for elsewhere, as where tokens are drawn unseen
                np.testing.assert_array_equal(fill_all(filler, [matcher]), row)
            token_id = pick(row[0], size, number)
            assert filler.take_unseen([(matcher, [token_id])]) == [1]
            assert other.accept(token_id)
        np.testing.assert_array_equal(fill_all(filler, [matcher]), rows_of(filler, [other]))
        del matcher
    assert max(num_uses) > 1 or len(texts) < 4


def test_many_threads_may_expect_claim_and_drop_at_once():
    """Every text that any of them takes and every row is that of a matcher alone."""
    filler = followed_backend("pieces")
    grammar = filler.compile(JsonSchema({"type": "object", "properties": {"a": {"type": "null"}}}))
    expected = allocate_bitmask(1, filler.vocabulary.vocab_size)
    grammar.matcher().fill(expected, 0)
    wrong: list[int] = []
    begin = threading.Barrier(4)

    def use() -> None:
        begin.wait()
        for _ in range(40):
            for _ in range(3):
                grammar.expect()
            matchers = [grammar.matcher() for _ in range(3)]
            if not (fill_all(filler, matchers) == expected).all():
                wrong.append(1)
            if filler.take_unseen([(m, [-1]) for m in matchers]) != [0] * 3:
                wrong.append(2)

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(use) for _ in range(4)]:
            future.result()
    assert wrong == []


def test_the_follower_of_a_request_in_a_cycle_lives_on_when_the_cycle_is_collected():
    """The collector frees what hangs on weak references before it lets anything say farewell."""
    pool = pool_of(threads := Later())
    pool.expect()
    pool.expect()
    threads.work()
    claim = pool.claim()
    follower = claim.follower
    handle = follower.handle
    cycle = [claim]
    cycle.append(cycle)
    del claim, follower, cycle
    gc.collect()
    pool.expect()
    threads.work()
    again = [pool.claim().follower for _ in range(2)]
    assert handle in [follower.handle for follower in again]
    assert not any(follower.library.is_freed for follower in again)
