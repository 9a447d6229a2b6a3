"""The laws of `Matcher`, on random walks over every backend, kind of constraint and vocabulary."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Grammar, Regex
from structspec.grammars.base import Backend, FillJob, Matcher, MatcherFailed
from structspec.grammars.drafts import fill_job
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.llguidance_matcher import LLGuidanceMatcher
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import CASE_IDS, CASES, VOCABULARIES, backend, compiled

MATCHERS = pytest.mark.parametrize(
    ("vocabulary_name", "library", "name"),
    [(v, library, name) for v in VOCABULARIES for library, name, _ in CASES],
    ids=[f"{v}-{case}" for v in VOCABULARIES for case in CASE_IDS],
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["go", "go", "go", "go", "try", "back"]), st.integers(0, 10**6)),
    min_size=1,
    max_size=25,
)
LIBRARIES = ["llguidance", "xgrammar", "outlines", "lm-format-enforcer"]
WALKS = settings(max_examples=15, deadline=None, derandomize=True)


def row_of(matcher: Matcher, vocabulary: Vocabulary) -> np.ndarray:
    """A freshly filled row, over bits that were all set."""
    bitmask = allocate_bitmask(2, vocabulary.vocab_size)
    bitmask[:] = -1
    matcher.fill(bitmask, 1)
    assert (bitmask[0] == -1).all(), "fill wrote into another row"
    return bitmask[1]


def pick(row: np.ndarray, vocabulary: Vocabulary, number: int) -> int:
    """One of the allowed tokens."""
    allowed = np.flatnonzero(unpack_row(row, vocabulary.vocab_size))
    return int(allowed[number % len(allowed)])


@MATCHERS
@WALKS
@given(steps=STEPS)
def test_a_row_says_exactly_what_accept_takes_and_rollback_restores_it(
    vocabulary_name, library, name, steps
):
    vocabulary = VOCABULARIES[vocabulary_name]()
    matcher = compiled(vocabulary_name, library, name).matcher()
    rows = [row_of(matcher, vocabulary)]
    for step, number in steps:
        if step == "go":
            assert matcher.accept(pick(rows[-1], vocabulary, number))
            rows.append(row_of(matcher, vocabulary))
        elif step == "try":
            token_id = number % (vocabulary.vocab_size + 64) - 32
            is_known = 0 <= token_id < vocabulary.vocab_size
            is_allowed = is_known and bool(unpack_row(rows[-1], vocabulary.vocab_size)[token_id])
            assert matcher.accept(token_id) == is_allowed
            if is_allowed:
                rows.append(row_of(matcher, vocabulary))
        else:
            num_back = number % len(rows)
            matcher.rollback(num_back)
            del rows[len(rows) - num_back :]
        np.testing.assert_array_equal(row_of(matcher, vocabulary), rows[-1])


@MATCHERS
@settings(WALKS, max_examples=30)
@given(steps=st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 10**6)), max_size=30))
def test_a_row_depends_on_the_tokens_alone_not_on_rows_filled_on_abandoned_branches(
    vocabulary_name, library, name, steps
):
    vocabulary = VOCABULARIES[vocabulary_name]()
    matcher = compiled(vocabulary_name, library, name).matcher()
    token_ids: list[int] = []
    for move, number in steps:
        if move < 0:
            num_back = min(-move, len(token_ids))
            matcher.rollback(num_back)
            del token_ids[len(token_ids) - num_back :]
            continue
        fresh = compiled(vocabulary_name, library, name).matcher()
        assert all(map(fresh.accept, token_ids))
        row = row_of(fresh, vocabulary)
        if number % 3 == 0:  # only now and then: what is not asked for is not computed either
            np.testing.assert_array_equal(row_of(matcher, vocabulary), row)
        token_ids.append(pick(row, vocabulary, number // 3))
        assert matcher.accept(token_ids[-1])


def test_a_mask_filled_on_one_branch_is_not_seen_on_another_of_equal_length():
    grammar = compiled("pieces", "llguidance", "json-union")
    vocabulary = VOCABULARIES["pieces"]()
    next_key = vocabulary.token_bytes.index(b'", "')  # inside a value: only if a key may follow
    last = b'{"tool": "send", "to": "xx'
    not_last = b'{"tool": "call", "to": "xx'

    def allows_next_key(matcher: Matcher) -> bool:
        return bool(unpack_row(row_of(matcher, vocabulary), vocabulary.vocab_size)[next_key])

    for depth in range(1, len(last) + 1):
        matcher = grammar.matcher()  # perhaps a used one
        for _ in range(2):
            for path in (last, not_last):
                assert all(map(matcher.accept, path[:depth]))
                row_of(matcher, vocabulary)
                matcher.rollback(depth)
                assert all(map(matcher.accept, not_last))
                assert allows_next_key(matcher)
                matcher.rollback(len(not_last))
                assert all(map(matcher.accept, last))
                assert not allows_next_key(matcher)
                matcher.rollback(len(last))


def test_a_mask_kept_of_one_branch_is_not_seen_on_another_that_was_gone_along_unmasked():
    """After `ax` and `bx` the lexer is in one state and the parser in two: x1 or x2 may follow."""
    token_bytes = (*(bytes([i]) for i in range(256)), None, b"x1", b"x2")
    vocabulary = Vocabulary(token_bytes, (256,), lambda text: [*text.encode()])
    branches = Grammar('start: "a" X "1" "q" | "b" X "2" "q"\nX: /[xy]+/')
    matcher = LLGuidanceBackend(vocabulary).compile(branches).matcher()
    row_of(matcher, vocabulary)  # from now on the library has a mask to keep
    assert all(map(matcher.accept, b"ax"))
    assert unpack_row(row_of(matcher, vocabulary), vocabulary.vocab_size)[257]
    matcher.rollback(2)
    assert all(map(matcher.accept, b"bx"))
    job, bitmask = FillJob(matcher, 0, [ord("y")]), allocate_bitmask(2, vocabulary.vocab_size)
    assert matcher.accept(ord("x"))
    matcher.rollback(1)
    assert LLGuidanceBackend(vocabulary).fill_drafts([job], bitmask) == [1]
    for row in (row_of(matcher, vocabulary), bitmask[0]):
        allowed = np.flatnonzero(unpack_row(row, vocabulary.vocab_size))
        assert allowed.tolist() == [ord("2"), ord("x"), ord("y"), 258]


def test_forced_tokens_are_those_that_rows_show_one_after_the_other():
    """`xabcd` is x a bc d, but a text that begins with `a` spells `bc` by letters."""

    def spell(text: str) -> list[int]:
        return [*text.encode()] if text[:1] == "a" else [*text.encode().replace(b"bc", b"\xff")]

    token_bytes = (*(bytes([i]) for i in range(255)), b"bc", None)
    backend = LLGuidanceBackend(Vocabulary(token_bytes, (256,), spell))
    matcher = backend.compile(Regex("xabcd")).matcher()
    forced = matcher.forced_tokens(9)
    assert backend.vocabulary.decode_bytes(forced) == b"xabcd"
    for place, token_id in enumerate(forced):
        assert matcher.forced_tokens(9) == forced[place:]
        row = unpack_row(row_of(matcher, backend.vocabulary), backend.vocabulary.vocab_size)
        assert np.flatnonzero(row).tolist() == [token_id]
        assert matcher.accept(token_id)
    assert matcher.forced_tokens(9) == [] and matcher.accept(256)


def test_looking_for_forced_tokens_leaves_the_text_alone_where_the_library_fails(monkeypatch):
    matcher = compiled("bytes", "llguidance", "regex-fixed").matcher()
    assert matcher.accept(ord("y"))
    consume, consumed = LLGuidanceMatcher._consume, []

    def fail_at_last(matcher: LLGuidanceMatcher, tokens: list[int]) -> int:
        consumed.extend(tokens)
        if bytes(consumed) == b"es":
            raise MatcherFailed("out of fuel")
        return consume(matcher, tokens)

    monkeypatch.setattr(LLGuidanceMatcher, "_consume", fail_at_last)
    with pytest.raises(MatcherFailed):
        matcher.forced_tokens(9)
    assert matcher.token_ids == [*b"y"]


def test_a_library_that_fails_along_the_drafts_of_a_text_drops_them_alone(monkeypatch):
    grammar = compiled("bytes", "llguidance", "regex-fixed")
    matcher, other = grammar.matcher(), grammar.matcher()
    make_scout = LLGuidanceMatcher.scout

    def astray(of: LLGuidanceMatcher) -> LLMatcher:
        scout = make_scout(of)
        if of is matcher:
            scout.consume_token(ord("n"))  # which the grammar refuses: from now on it fails
        return scout

    monkeypatch.setattr(LLGuidanceMatcher, "scout", astray)
    monkeypatch.setattr(matcher.original, "has_failed", False)  # others use it too
    bitmask = allocate_bitmask(6, 257)
    jobs = [FillJob(matcher, 0, [*b"ye"]), FillJob(other, 3, [*b"ye"])]
    assert grammar.backend.fill_drafts(jobs, bitmask) == [0, 2]
    allowed = [np.flatnonzero(unpack_row(row, 257)).tolist() for row in (bitmask[0], *bitmask[3:])]
    assert allowed == [[ord("y")], [ord("y")], [ord("e")], [ord("s")]]
    assert matcher.token_ids == [] and matcher.accept(ord("y"))


@MATCHERS
@WALKS
@given(steps=STEPS)
def test_only_text_is_allowed_until_stop_tokens_are_and_then_nothing_else(
    vocabulary_name, library, name, steps
):
    vocabulary = VOCABULARIES[vocabulary_name]()
    stops = set(vocabulary.stop_token_ids)
    matcher = compiled(vocabulary_name, library, name).matcher()
    is_stopped = False
    for _, number in steps:
        row = row_of(matcher, vocabulary)
        allowed = set(np.flatnonzero(unpack_row(row, 32 * vocabulary.num_words)).tolist())
        assert allowed, "a row allows nothing"
        assert not (allowed & vocabulary.special_token_ids) - stops
        assert max(allowed) < vocabulary.vocab_size
        assert allowed & stops in (set(), stops), "some stop tokens are allowed and others are not"
        assert not is_stopped or allowed == stops
        token_id = pick(row, vocabulary, number)
        assert matcher.accept(token_id)
        is_stopped = token_id in stops


@MATCHERS
@WALKS
@given(steps=STEPS)
def test_forced_text_starts_every_continuation(vocabulary_name, library, name, steps):
    vocabulary = VOCABULARIES[vocabulary_name]()
    stops = np.array(vocabulary.stop_token_ids)
    matcher = compiled(vocabulary_name, library, name).matcher()
    for _, number in steps:
        forced = matcher.forced(40)
        assert len(forced) <= 40
        assert matcher.forced(3) == forced[:3]
        row = row_of(matcher, vocabulary)
        allowed = unpack_row(row, vocabulary.vocab_size)
        if forced:
            assert not allowed[stops].any(), "text is forced where it may end"
            for token_id in np.flatnonzero(allowed):
                data = vocabulary.token_bytes[token_id]
                assert data.startswith(forced) or forced.startswith(data)
        assert matcher.accept(pick(row, vocabulary, number))


@MATCHERS
@WALKS
@given(steps=STEPS)
def test_each_forced_token_is_the_only_one_allowed(vocabulary_name, library, name, steps):
    vocabulary = VOCABULARIES[vocabulary_name]()
    matcher = compiled(vocabulary_name, library, name).matcher()
    for _, number in steps:
        before, forced = row_of(matcher, vocabulary), matcher.forced_tokens(40)
        np.testing.assert_array_equal(row_of(matcher, vocabulary), before)
        assert matcher.forced_tokens(2) == forced[:2]
        for token_id in forced:
            row = unpack_row(row_of(matcher, vocabulary), vocabulary.vocab_size)
            assert np.flatnonzero(row).tolist() == [token_id]
            assert matcher.accept(token_id)
        assert matcher.accept(pick(row_of(matcher, vocabulary), vocabulary, number))


@pytest.mark.parametrize(("library", "name"), [case[:2] for case in CASES], ids=CASE_IDS)
@WALKS
@given(numbers=st.lists(st.integers(0, 10**6), max_size=15))
def test_each_byte_of_forced_text_is_the_only_one_allowed(library, name, numbers):
    vocabulary = VOCABULARIES["bytes"]()
    matcher = compiled("bytes", library, name).matcher()
    for number in numbers:
        for byte in matcher.forced(40):
            row = unpack_row(row_of(matcher, vocabulary), vocabulary.vocab_size)
            assert np.flatnonzero(row).tolist() == [byte]
            assert matcher.accept(byte)
        assert matcher.accept(pick(row_of(matcher, vocabulary), vocabulary, number))


@pytest.mark.parametrize("vocabulary_name", VOCABULARIES)
@pytest.mark.parametrize(("library", "name"), [case[:2] for case in CASES], ids=CASE_IDS)
def test_matchers_of_one_grammar_do_not_share_their_state(vocabulary_name, library, name):
    vocabulary = VOCABULARIES[vocabulary_name]()
    grammar = compiled(vocabulary_name, library, name)
    one, other = grammar.matcher(), grammar.matcher()
    start = row_of(other, vocabulary)
    for number in range(6):
        assert one.accept(pick(row_of(one, vocabulary), vocabulary, 7919 * number))
    np.testing.assert_array_equal(row_of(other, vocabulary), start)
    del one  # what it leaves behind may be used again
    np.testing.assert_array_equal(row_of(grammar.matcher(), vocabulary), start)


@st.composite
def drafts(draw, grammar, vocabulary):
    """A matcher somewhere in its text, and drafts that are allowed, forbidden, stops or no ids."""
    matcher = grammar.matcher()
    for number in draw(st.lists(st.integers(0, 10**6), max_size=8)):
        matcher.accept(pick(row_of(matcher, vocabulary), vocabulary, number))
    num_walked, token_ids = 0, []
    for kind, number in draw(
        st.lists(
            st.tuples(st.sampled_from(["go"] * 5 + ["stop", "any"]), st.integers(0, 10**6)),
            max_size=6,
        )
    ):
        token_id = pick(row_of(matcher, vocabulary), vocabulary, number)
        if kind == "stop":
            token_id = vocabulary.stop_token_ids[number % len(vocabulary.stop_token_ids)]
        elif kind == "any":
            token_id = number % (vocabulary.vocab_size + 64) - 32
        num_walked += matcher.accept(token_id)
        token_ids.append(token_id)
    matcher.rollback(num_walked)
    return matcher, token_ids


@cache
def filler(vocabulary_name: str, library: str) -> Backend:
    """A backend that fills in parallel however little there is to do."""
    if library == "llguidance":
        return LLGuidanceBackend(VOCABULARIES[vocabulary_name](), parallel_above_s=0.0)
    return backend(vocabulary_name, library)


@pytest.mark.parametrize("vocabulary_name", VOCABULARIES)
@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_filling_many_requests_at_once_gives_the_rows_of_each_alone(vocabulary_name, library, data):
    vocabulary = VOCABULARIES[vocabulary_name]()
    names = [name for lib, name, _ in CASES if lib == library]
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6))
    jobs: list[FillJob] = []
    num_rows = 0
    for name in chosen:
        matcher, token_ids = data.draw(drafts(compiled(vocabulary_name, library, name), vocabulary))
        jobs.append(FillJob(matcher, num_rows, token_ids))
        num_rows += 1 + len(token_ids)
    alone = allocate_bitmask(num_rows, vocabulary.vocab_size)
    alone[:] = 0x5A5A5A5A
    together = alone.copy()
    before = [row_of(job.matcher, vocabulary) for job in jobs]
    counts = [fill_job(job, alone) for job in jobs]
    assert filler(vocabulary_name, library).fill_drafts(jobs, together) == counts
    np.testing.assert_array_equal(together, alone)
    for job, row in zip(jobs, before, strict=True):
        np.testing.assert_array_equal(row_of(job.matcher, vocabulary), row)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_behind_the_first_refused_draft_are_left_alone(library):
    vocabulary = VOCABULARIES["bytes"]()
    grammar = compiled("bytes", library, "regex-fixed")
    jobs = [FillJob(grammar.matcher(), 4 * i, list(b"yxs")) for i in range(2)]
    bitmask = allocate_bitmask(8, vocabulary.vocab_size)
    bitmask[:] = 77
    assert filler("bytes", library).fill_drafts(jobs, bitmask) == [1, 1]
    for job in jobs:
        first = job.first_row
        allowed = [np.flatnonzero(unpack_row(bitmask[first + i], 257)).tolist() for i in range(2)]
        assert allowed == [[ord("y")], [ord("e")]]
        assert (bitmask[first + 2 : first + 4] == 77).all()
