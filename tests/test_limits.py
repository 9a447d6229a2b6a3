"""Limits: what their rows allow, said once more by hand, and the laws of `Matcher`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.errors import InvalidRequest
from structspec.grammars.base import DeadEnd, FillJob, Matcher
from structspec.grammars.drafts import fill_job
from structspec.grammars.wrapping import FreeMatcher, WrappedMatching
from structspec.limits import Limiter, Limits
from structspec.request import SamplingParams
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import VOCABULARIES, compiled

# 0..3 text, 4 and 5 stop tokens, 6 special
SMALL = Vocabulary((b"a", b"b", b"c", b"ab", None, None, None), (4, 5), lambda text: [0])
WALKS = settings(max_examples=60, deadline=None, derandomize=True)
INNER = ("free", "regex-may-be-empty", "regex-maybe-more", "choice-prefixes", "json-compact")


@cache
def limiter(name: str) -> Limiter:
    return Limiter(SMALL if name == "small" else VOCABULARIES[name]())


def limited(inner: Matcher, vocabulary: Vocabulary, **limits: object) -> Matcher:
    is_constrained = not isinstance(inner, FreeMatcher)
    (made,) = Limiter(vocabulary).limit(SamplingParams(**limits), is_constrained=is_constrained)
    return made.around(inner)


def allowed_by(matcher: Matcher, vocabulary: Vocabulary) -> set[int]:
    """What a row allows, over bits that were all set; nothing for a dead end."""
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    bitmask[:] = -1
    try:
        matcher.fill(bitmask, 0)
    except DeadEnd:
        return set()
    ids = np.flatnonzero(unpack_row(bitmask[0], 32 * vocabulary.num_words))
    assert not len(ids) or ids[-1] < vocabulary.vocab_size
    return {*ids.tolist()}


def free(vocabulary: Vocabulary = SMALL, **limits: object) -> Matcher:
    return limited(FreeMatcher(vocabulary), vocabulary, **limits)


def test_without_a_constraint_exactly_the_allowed_tokens_may_stand() -> None:
    assert allowed_by(free(allowed_token_ids=(0, 3)), SMALL) == {0, 3}
    assert allowed_by(free(allowed_token_ids=(0, 4)), SMALL) == {0, 4}


def test_a_constraint_may_end_though_no_stop_token_is_among_the_allowed_tokens() -> None:
    inner = compiled("bytes", "llguidance", "regex-may-be-empty").matcher()
    vocabulary = VOCABULARIES["bytes"]()
    matcher = limited(inner, vocabulary, allowed_token_ids=(97, 98, 200))
    assert allowed_by(matcher, vocabulary) == {97, 98, 256}


@pytest.mark.parametrize(
    ("written", "allowed"),
    [([], {0, 1, 2, 4, 5, 6}), ([0], {0, 2, 4, 5, 6}), ([0, 6], {0, 2, 4, 5, 6})],
    ids=["at the start", "behind its beginning", "behind a special token, which is no text"],
)
def test_no_token_completes_a_bad_word(written: Sequence[int], allowed: set[int]) -> None:
    matcher = free(bad_words=("ab",))
    assert all(map(matcher.accept, written))
    assert allowed_by(matcher, SMALL) == allowed


def test_a_bad_word_within_another_one_and_one_that_begins_again_are_both_found() -> None:
    matcher = free(bad_words=("aac", "bacb", "ac"))
    assert all(map(matcher.accept, (1, 0)))  # `ba`, where `bacb` and `ac` have begun
    assert allowed_by(matcher, SMALL) == {0, 1, 3, 4, 5, 6}
    assert matcher.accept(0)  # `baa`
    assert allowed_by(matcher, SMALL) == {0, 1, 3, 4, 5, 6}


def test_min_tokens_forbids_stop_tokens_of_every_kind_until_then() -> None:
    matcher = free(min_tokens=2, stop_token_ids=(2,))
    assert matcher.accept(0)
    assert allowed_by(matcher, SMALL) == {0, 1, 3, 6}
    assert matcher.accept(0)
    assert allowed_by(matcher, SMALL) == {0, 1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("min_tokens", [1, 64])
def test_min_tokens_against_a_finished_grammar_never_gives_an_empty_row(min_tokens: int) -> None:
    vocabulary = VOCABULARIES["bytes"]()
    for name, text in (("regex-fixed", b"yes"), ("choice-prefixes", b"abc")):
        inner = compiled("bytes", "llguidance", name).matcher()
        matcher = limited(inner, vocabulary, min_tokens=min_tokens)
        assert all(map(matcher.accept, text))
        assert allowed_by(matcher, vocabulary) == {256}
        assert matcher.accept(256) and allowed_by(matcher, vocabulary) == {256}


def test_min_tokens_beside_limits_that_leave_only_the_end_lets_it_end() -> None:
    assert allowed_by(free(min_tokens=3, allowed_token_ids=(4,)), SMALL) == {4}


def test_a_stop_token_of_its_own_is_masked_inside_unfinished_text() -> None:
    vocabulary = VOCABULARIES["bytes"]()
    inner = compiled("bytes", "llguidance", "regex-maybe-more").matcher()  # ab(cd)*
    matcher = limited(inner, vocabulary, stop_token_ids=(ord("b"), ord("d"), ord("x")))
    assert matcher.accept(ord("a"))
    assert allowed_by(matcher, vocabulary) == set()  # only `b` might follow, and that ends texts
    matcher.rollback(1)
    inner = compiled("bytes", "llguidance", "regex-maybe-more").matcher()
    matcher = limited(inner, vocabulary, stop_token_ids=(ord("d"), ord("x")))
    assert all(map(matcher.accept, b"ab"))
    assert allowed_by(matcher, vocabulary) == {ord("c"), ord("d"), ord("x"), 256}
    assert matcher.accept(ord("x")) and allowed_by(matcher, vocabulary) == {100, 120, 256}
    matcher.rollback(1)
    assert matcher.accept(ord("c")) and allowed_by(matcher, vocabulary) == set()


def test_ignored_stop_tokens_do_not_end_the_text_and_those_of_the_request_do() -> None:
    matcher = free(ignore_eos=True, min_tokens=1, stop_token_ids=(2,))
    assert matcher.accept(0)
    assert allowed_by(matcher, SMALL) == {0, 1, 2, 3, 6}
    assert matcher.accept(2) and allowed_by(matcher, SMALL) == {2}


def test_where_nothing_is_left_the_error_names_the_limits_and_the_row_holds_stop_tokens() -> None:
    vocabulary = VOCABULARIES["bytes"]()
    inner = compiled("bytes", "llguidance", "regex-fixed").matcher()
    matcher = limited(inner, vocabulary, bad_words=("es",), allowed_token_ids=tuple(b"yesx"))
    assert matcher.accept(ord("y")) and matcher.accept(ord("e"))
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    with pytest.raises(DeadEnd, match=r"allowed_token_ids and bad_words leave no token .* first 2"):
        matcher.fill(bitmask, 0)
    assert np.flatnonzero(unpack_row(bitmask[0], 257)).tolist() == [256]
    assert not matcher.accept(256) and not matcher.accept(ord("s"))


def test_a_stop_token_that_the_text_needs_is_named_too() -> None:
    vocabulary = VOCABULARIES["bytes"]()
    inner = compiled("bytes", "llguidance", "regex-fixed").matcher()
    matcher = limited(inner, vocabulary, stop_token_ids=(ord("s"),))
    assert matcher.tokens_to_end() is None
    assert matcher.accept(ord("y")) and matcher.accept(ord("e"))
    with pytest.raises(DeadEnd, match="^stop_token_ids leave no token"):
        matcher.fill(allocate_bitmask(1, vocabulary.vocab_size), 0)


def test_a_dead_end_behind_a_draft_fails_nobody_before_it_is_gone_to() -> None:
    vocabulary = VOCABULARIES["bytes"]()
    inner = compiled("bytes", "llguidance", "regex-fixed").matcher()
    matcher = limited(inner, vocabulary, bad_words=("es",))
    many, bitmask = WrappedMatching(vocabulary), allocate_bitmask(3, vocabulary.vocab_size)
    assert many.fill_drafts([FillJob(matcher, 0, [*b"ye"])], bitmask) == [2]
    assert np.flatnonzero(unpack_row(bitmask[0], 257)).tolist() == [ord("y")]
    (error,) = many.take_shown([(matcher, [*b"ye", 256])])
    assert isinstance(error, DeadEnd)


def test_forced_tokens_are_promised_as_far_as_the_limits_allow_them() -> None:
    vocabulary = VOCABULARIES["bytes"]()
    grammar = compiled("bytes", "llguidance", "regex-fixed")
    assert grammar.matcher().forced_tokens(9) == [*b"yes"]
    matcher = limited(grammar.matcher(), vocabulary, bad_words=("ye",))
    assert matcher.forced_tokens(9) == [*b"y"]
    assert allowed_by(matcher, vocabulary) == {ord("y")}


def test_equal_limits_are_made_once_and_none_where_none_are_asked() -> None:
    make = Limiter(SMALL).limit
    once, again = (make(SamplingParams(min_tokens=1), is_constrained=True) for _ in range(2))
    assert once[0] is again[0]
    assert make(SamplingParams(), is_constrained=True) == ()
    assert make(SamplingParams(stop_token_ids=(1,)), is_constrained=False) == ()


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"allowed_token_ids": ()}, "allowed_token_ids must be at least one"),
        ({"allowed_token_ids": (-1,)}, "allowed_token_ids must be made of token ids"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids must be made of token ids"),
        ({"bad_words": ("a", "")}, "bad_words must be made of non-empty"),
        ({"bad_words": ("\ud800",)}, "bad_words must be made of whole characters"),
        ({"min_tokens": -1}, "min_tokens must be at least 0"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens must be at most max_tokens, which is 4"),
    ],
)
def test_limits_that_mean_nothing_are_refused(params: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        SamplingParams(**params)


@st.composite
def some_limits(draw: st.DrawFn, vocabulary: Vocabulary) -> dict[str, object]:
    """Limits under which texts of a few letters come to something now and then."""
    token_ids = st.integers(0, vocabulary.vocab_size - 1)
    words = st.text(st.sampled_from('abcdxy"é: 0'), min_size=1, max_size=3)
    limits = {
        "bad_words": tuple(draw(st.lists(words, max_size=3))),
        "min_tokens": draw(st.integers(0, 6)),
        "stop_token_ids": tuple(draw(st.lists(token_ids, max_size=2))),
    }
    if draw(st.booleans()):
        forbidden = draw(st.sets(token_ids, max_size=vocabulary.vocab_size - 1))
        limits["allowed_token_ids"] = tuple({*range(vocabulary.vocab_size)} - forbidden)
    return limits


def expected(
    inner: set[int],
    written: Sequence[int],
    limits: dict[str, object],
    vocabulary: Vocabulary,
    *,
    is_free: bool,
) -> set[int]:
    """What may stand behind these tokens, the matcher inside allowing `inner`."""
    stops = {*vocabulary.stop_token_ids, *limits["stop_token_ids"]}
    if stops & {*written}:
        return stops
    allowed = {*limits.get("allowed_token_ids", range(vocabulary.vocab_size))}
    text = {t for t in inner & allowed if t not in stops}
    text -= {
        t
        for t in text
        if any(w.encode() in vocabulary.decode_bytes([*written, t]) for w in limits["bad_words"])
    }
    ends = stops if inner & {*vocabulary.stop_token_ids} else set()
    ends = ends & allowed if is_free else ends
    return text if text and len(written) < limits["min_tokens"] else text | ends


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("vocabulary_name", ["bytes", "pieces"])
@WALKS
@given(data=st.data())
def test_rows_are_what_the_limits_say_and_accept_and_rollback_keep_their_laws(
    vocabulary_name: str, name: str, data: st.DataObject
) -> None:
    vocabulary, is_free = VOCABULARIES[vocabulary_name](), name == "free"

    def start() -> Matcher:
        if is_free:
            return FreeMatcher(vocabulary)
        return compiled(vocabulary_name, "llguidance", name).matcher()

    limits = data.draw(some_limits(vocabulary))
    made = limiter(vocabulary_name).limit(SamplingParams(**limits), is_constrained=not is_free)
    if not made:
        return
    inner, matcher = start(), made[0].around(start())
    rows, written = [], []
    for _ in range(data.draw(st.integers(1, 9))):
        ended = bool({*vocabulary.stop_token_ids, *limits["stop_token_ids"]} & {*written})
        row = expected(
            set() if ended else allowed_by(inner, vocabulary),
            written,
            limits,
            vocabulary,
            is_free=is_free,
        )
        assert allowed_by(matcher, vocabulary) == row == allowed_by(matcher, vocabulary)
        wide = made[0].widen(None)
        if wide is not None:
            assert row <= {*np.flatnonzero(unpack_row(wide, vocabulary.vocab_size)).tolist()}
        for token_id in matcher.forced_tokens(1):
            assert row == {token_id}
        for token_id in data.draw(
            st.lists(st.integers(-2, vocabulary.vocab_size + 40), max_size=5)
        ):
            assert matcher.accept(token_id) == (token_id in row)
            if token_id in row:
                matcher.rollback(1)
        rows.append(row)
        if not row:
            break
        token_id = data.draw(st.sampled_from(sorted(row)))
        assert matcher.accept(token_id)
        if not ended and token_id not in limits["stop_token_ids"]:
            assert inner.accept(token_id)
        written.append(token_id)
    while written:
        matcher.rollback(1)
        del written[-1]
        del rows[len(written) + 1 :]
        assert allowed_by(matcher, vocabulary) == rows[len(written)]


def test_a_row_that_nothing_narrows_is_passed_on_as_it_is() -> None:
    row = np.full(1, 5, np.int32)
    assert Limits(SMALL, min_tokens=3).widen(row) is row
    assert Limits(SMALL, min_tokens=3).widen(None) is None
    some = Limits(SMALL, allowed_token_ids=(0, 3))
    assert some.widen(None) is some.widen(None)
    assert unpack_row(some.widen(row), 7).nonzero()[0].tolist() == [0]


@pytest.mark.parametrize("name", INNER)
@WALKS
@given(data=st.data())
def test_filling_many_limited_matchers_at_once_gives_the_rows_of_each_alone(
    name: str, data: st.DataObject
) -> None:
    vocabulary = VOCABULARIES["pieces"]()
    backend = None if name == "free" else compiled("pieces", "llguidance", name).backend
    jobs: list[FillJob] = []
    num_rows = 0
    for _ in range(data.draw(st.integers(1, 3))):
        limits = data.draw(some_limits(vocabulary))
        made = limiter("pieces").limit(SamplingParams(**limits), is_constrained=backend is not None)
        matcher: Matcher = FreeMatcher(vocabulary)
        if backend is not None:
            matcher = compiled("pieces", "llguidance", name).matcher()
        for wrapper in made:
            matcher = wrapper.around(matcher)
        drafts, num_walked = [], 0
        for _ in range(data.draw(st.integers(0, 4))):
            row = sorted(allowed_by(matcher, vocabulary)) or [0]
            drafts.append(data.draw(st.sampled_from([*row[:9], *row[-9:], 97, 300])))
            num_walked += matcher.accept(drafts[-1])
        matcher.rollback(num_walked)
        if allowed_by(matcher, vocabulary):
            jobs.append(FillJob(matcher, num_rows, drafts))
            num_rows += 1 + len(drafts)
    one_by_one = allocate_bitmask(num_rows, vocabulary.vocab_size)
    at_once = one_by_one.copy()
    counts = [fill_job(job, one_by_one) for job in jobs]
    assert WrappedMatching(vocabulary, backend).fill_drafts(jobs, at_once) == counts
    for job, count in zip(jobs, counts, strict=True):
        rows = slice(job.first_row, job.first_row + 1 + count)
        np.testing.assert_array_equal(at_once[rows], one_by_one[rows])
