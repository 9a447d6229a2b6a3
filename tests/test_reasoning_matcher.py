"""The bound around a matcher keeps the laws, and is what its few sentences say it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.errors import InvalidRequest
from structspec.grammars.base import FillJob, Matcher
from structspec.grammars.drafts import fill_job
from structspec.grammars.wrapping import FreeMatcher
from structspec.reasoning_boundary import BEFORE, REASONING, Boundary, State
from structspec.reasoning_matcher import ReasoningBound, ReasoningMatcher
from structspec.reasoning_progress import ReasoningProgress
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import TextsMatcher
from tests.reasoning_toy import BOUNDARY, END, PADDING, SPECIAL, STOP, VOCABULARY, bytes_of, ids

ANSWERS = (b"ab", b"<b", b"<t", b"\nc")
WALKS = settings(max_examples=40, deadline=None, derandomize=True)
STEPS = st.lists(st.integers(0, 10**6), max_size=20)
KINDS = st.sampled_from(["go", "go", "try", "back"])
STARTS = {
    "open": (State(REASONING), False),
    "undecided": (State(BEFORE), False),
    "required": (State(BEFORE), True),
}
EVERY_START = pytest.mark.parametrize("start", STARTS)
EVERY_LIMIT = pytest.mark.parametrize("limit", [0, 1, 4, 99])


def inner_matcher(*texts: bytes) -> Matcher:
    return TextsMatcher(VOCABULARY, list(texts or ANSWERS))


def make(start: str, limit: int = 99, inner: Matcher | None = None) -> ReasoningMatcher:
    state, is_required = STARTS[start]
    return ReasoningMatcher(
        inner or inner_matcher(), BOUNDARY, state, limit, is_required=is_required
    )


def row_of(matcher: Matcher, budget: int | None = None) -> list[int]:
    bitmask = allocate_bitmask(3, VOCABULARY.vocab_size)
    bitmask[:] = -1
    matcher.fill(bitmask, 1, budget)
    assert (bitmask[[0, 2]] == -1).all(), "fill wrote into another row"
    return np.flatnonzero(unpack_row(bitmask[1], 32 * VOCABULARY.num_words)).tolist()


def allowed_by_definition(start: str, limit: int, written: Sequence[int]) -> list[int]:
    """What may follow, from the whole text each time."""
    return [t for t in range(VOCABULARY.vocab_size) if is_allowed(start, limit, [*written, t])]


def is_allowed(start: str, limit: int, token_ids: Sequence[int]) -> bool:
    """Whether a text whose last token alone is in question may stand."""
    *before, last = token_ids
    begin = 0
    if start != "open":
        text = bytes_of(token_ids)
        if start == "required" and not before:
            return last == ids(b"<t>")[0]
        if text.startswith(b"<t>"):
            begin = next(n for n in range(99) if bytes_of(token_ids[:n]).startswith(b"<t>"))
            if begin == len(token_ids):
                return True
        elif b"<t>".startswith(text):
            return True
        else:
            return is_answer(token_ids)
    lead = bytes_of(token_ids[:begin])[3:]
    reasoned = [lead + bytes_of(token_ids[begin:n]) for n in range(begin, len(token_ids) + 1)]
    over = next((n for n, text in enumerate(reasoned) if END in text), None)
    if over is None or over == len(reasoned) - 1:  # the token stands in reasoning, or ends it
        if last in (STOP, PADDING) or (over is not None and not reasoned[-1].endswith(END)):
            return False
        if len(token_ids) - 1 - begin < limit:
            return True
        return last == forced_next(reasoned[-2])
    answer = list(token_ids[begin + over :])
    if answer[0] in ids(b"\n"):
        answer = answer[1:]
    return not answer or is_answer(answer)


def forced_next(reasoned: bytes) -> int:
    """The token of the end marker behind what stands of it."""
    there = next(n for n in (3, 2, 1, 0) if reasoned.endswith(END[:n]))
    return ids({0: b"</", 1: b"/", 2: b"t>", 3: b">"}[there])[0]


def is_answer(token_ids: Sequence[int]) -> bool:
    matcher = inner_matcher()
    return all(map(matcher.accept, token_ids))


@EVERY_START
@EVERY_LIMIT
@WALKS
@given(steps=STEPS)
def test_a_row_allows_what_the_definition_does(start, limit, steps):
    matcher, written = make(start, limit), []
    for number in [*steps, 0]:
        allowed = row_of(matcher)
        assert allowed == allowed_by_definition(start, limit, written)
        written.append(allowed[number % len(allowed)])
        assert matcher.accept(written[-1])


@EVERY_START
@EVERY_LIMIT
@WALKS
@given(steps=st.lists(st.tuples(KINDS, st.integers(0, 10**6)), max_size=30))
def test_accept_takes_what_the_row_allows_and_rollback_restores_it(start, limit, steps):
    matcher = make(start, limit)
    rows = [row_of(matcher)]
    for step, number in steps:
        if step == "back":
            num_back = number % len(rows)
            matcher.rollback(num_back)
            del rows[len(rows) - num_back :]
        else:
            token_id = (
                number % VOCABULARY.vocab_size
                if step == "try"
                else rows[-1][number % len(rows[-1])]
            )
            is_allowed = token_id in rows[-1]
            assert matcher.accept(token_id) == is_allowed
            if is_allowed:
                rows.append(row_of(matcher))
        assert row_of(matcher) == rows[-1] == row_of(matcher)


@EVERY_START
@EVERY_LIMIT
@WALKS
@given(steps=STEPS)
def test_forced_tokens_are_the_only_ones_and_forced_text_begins_all(start, limit, steps):
    matcher = make(start, limit, inner_matcher(b"abc"))
    for number in steps:
        before, forced, text = row_of(matcher), matcher.forced_tokens(40), matcher.forced(40)
        assert row_of(matcher) == before
        assert matcher.forced_tokens(2) == forced[:2] and matcher.forced(3) == text[:3]
        if text:
            assert STOP not in before
            for token_id in before:
                data = VOCABULARY.token_bytes[token_id]
                assert data.startswith(text) or text.startswith(data)
        for token_id in forced:
            assert row_of(matcher) == [token_id]
            assert matcher.accept(token_id)
        matcher.rollback(len(forced))
        assert matcher.accept(before[number % len(before)])


class CountedTexts(TextsMatcher):
    """Knows how many tokens its shortest text lacks."""

    def tokens_to_end(self) -> int:
        left = [len(t) - len(self.written) for t in self.texts if t.startswith(self.written)]
        return 0 if self.is_stopped else min(left) + 1

    def fill(self, bitmask, row, budget=None):
        super().fill(bitmask, row)
        for token_id in range(self.vocabulary.vocab_size):
            if budget is not None and self.accept(token_id):
                if self.tokens_to_end() > budget - 1:
                    bitmask[row].view("uint32")[0] &= ~np.uint32(1 << token_id)
                self.rollback(1)


@EVERY_START
@EVERY_LIMIT
@WALKS
@given(steps=STEPS, spare=st.integers(0, 5))
def test_a_text_ends_within_the_budget_that_its_rows_are_filled_with(start, limit, steps, spare):
    matcher = make(start, limit, CountedTexts(VOCABULARY, [b"ab", b"abbb"]))
    num_left = matcher.tokens_to_end() + spare
    for number in [*steps, *range(99)]:
        allowed = row_of(matcher, num_left)
        assert allowed, "a row allows nothing"
        assert set(allowed) <= set(row_of(matcher))
        if allowed == [STOP]:
            break
        assert matcher.accept(allowed[number % len(allowed)])
        num_left -= 1
        assert matcher.tokens_to_end() <= num_left
    else:
        raise AssertionError("it does not end")


@EVERY_START
@WALKS
@given(steps=STEPS, max_tokens=st.integers(1, 30), share=st.floats(0, 1), data=st.data())
def test_the_answer_has_its_share_of_the_tokens_and_what_it_needs(
    start, steps, max_tokens, share, data
):
    state, is_required = STARTS[start]
    limit = data.draw(st.none() | st.integers(0, 30))
    bound = ReasoningBound(BOUNDARY, state, max_tokens, limit, share, is_required=is_required)
    matcher = bound.around(CountedTexts(VOCABULARY, [b"ab"]))
    progress, num_written = ReasoningProgress(BOUNDARY, state), 0
    numbers = iter([*steps, *range(200)])
    while not progress.is_over:
        allowed = row_of(matcher)
        markers = [t for t in allowed if b"<t>".startswith(bytes_of([t]))]
        choices = markers if start == "undecided" and num_written < 3 and markers else allowed
        token_id = choices[next(numbers) % len(choices)]
        assert matcher.accept(token_id)
        progress.take(token_id, VOCABULARY.token_bytes[token_id] or b"")
        num_written += 1
    assert limit is None or progress.num_tokens <= limit + 3 + 4 + 1
    room = 3 * (start != "open") + 4 + 1  # of markers spelled by letters and a line break
    if max_tokens >= room + 3 and progress.num_tokens:
        assert max_tokens - num_written - 1 >= min(3, max_tokens - room)
        assert max_tokens - num_written >= min(share * max_tokens, max_tokens - room)


@pytest.mark.parametrize("start", ["undecided", "open"])
@WALKS
@given(numbers=st.lists(st.integers(0, 15), max_size=20))
def test_what_the_matcher_inside_has_seen_is_the_text_of_the_answer(start, numbers):
    """And it is the same text, whatever was drafted and rolled back between."""
    inner = FreeTexts(VOCABULARY)
    matcher, progress = make(start, 5, inner), ReasoningProgress(BOUNDARY, STARTS[start][0])
    answer = b""
    for token_id in numbers:
        if token_id == STOP or not matcher.accept(token_id):
            continue
        matcher.rollback(sum(map(matcher.accept, ids(b"<", b"t", b">", b"a"))))  # drafts
        answer += progress.take(token_id, VOCABULARY.token_bytes[token_id] or b"")
    answer += progress.finish()
    if progress.is_over:
        assert inner.written == answer


class FreeTexts(FreeMatcher):
    """Any text, remembered."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self.token_ids: list[int] = []

    @property
    def written(self) -> bytes:
        return VOCABULARY.decode_bytes(self.token_ids)

    def accept(self, token_id: int) -> bool:
        is_taken = super().accept(token_id)
        self.token_ids += [token_id] * is_taken
        return is_taken

    def rollback(self, num_tokens: int) -> None:
        super().rollback(num_tokens)
        assert num_tokens <= len(self.token_ids)
        del self.token_ids[len(self.token_ids) - num_tokens :]


def test_what_is_no_token_is_refused():
    matcher = make("open")
    assert not any(map(matcher.accept, [-1, -5, 16, 99, 10**9]))
    assert matcher.accept(SPECIAL) and not matcher.accept(PADDING) and not matcher.accept(STOP)


def test_drafts_across_the_end_marker_have_rows_of_both_sides():
    matcher = make("open", 99)
    drafts = ids(b"a", b"</", b"t>", b"a", b"b", b"c")
    bitmask = allocate_bitmask(7, VOCABULARY.vocab_size)
    assert fill_job(FillJob(matcher, 0, drafts), bitmask) == 5
    rows = [
        np.flatnonzero(unpack_row(bitmask[i], VOCABULARY.vocab_size)).tolist() for i in range(6)
    ]
    for place, row in enumerate(rows):
        assert row == row_of(matcher), place
        if place < 5:
            assert matcher.accept(drafts[place])
    assert len(rows[0]) == len(rows[1]) == 14
    assert set(rows[1]) - set(rows[2]) == set(), "`></` begins no marker that stands"
    assert rows[3] == sorted(ids(b"a", b"<", b"\n"))  # the answers' first letters, or a line break
    assert rows[4:] == [ids(b"b"), [STOP]]


@pytest.mark.parametrize("texts", [(b"</", b"t"), (b"</", b"t", b">")])
def test_a_token_may_end_the_marker_and_not_go_on_behind_it(texts):
    matcher = make("open")
    assert all(map(matcher.accept, ids(b"a", *texts)))
    beyond = ids(b">a", b"></") if len(texts) == 2 else []
    assert set(ids(b">a", b"></")) & set(row_of(matcher)) == set()
    assert not any(map(matcher.accept, beyond))


def test_a_marker_that_begins_again_in_its_own_beginning_is_found():
    """In `aab` behind `aa` another `a` leaves `aa`."""
    boundary = Boundary(VOCABULARY, "", "aab")
    matcher = ReasoningMatcher(inner_matcher(b"c"), boundary, State(REASONING), 99)
    assert all(map(matcher.accept, ids(b"a", b"a", b"a", b"b")))
    assert row_of(matcher) == ids(b"c")


def test_a_forced_marker_completes_what_stands_of_it_and_does_not_begin_anew():
    matcher = make("open", limit=3)
    assert all(map(matcher.accept, ids(b"a", b"b", b"</")))
    assert matcher.forced_tokens(9) == ids(b"t>") and matcher.forced(9) == b"t>"
    assert matcher.accept(ids(b"t>")[0])
    assert row_of(matcher) == sorted(ids(b"a", b"<", b"\n"))


def test_behind_a_forced_marker_what_the_answer_forces_is_certain_too():
    boundary = Boundary(VOCABULARY, "<t>", "</t>")

    class Certain(TextsMatcher):
        def forced_tokens(self, limit: int) -> list[int]:
            return ids(b"a", b"b")[:limit]

    inner = Certain(VOCABULARY, [b"ab"])
    matcher = ReasoningMatcher(inner, boundary, State(BEFORE), 0, is_required=True)
    assert matcher.forced_tokens(9) == ids(b"<t>", b"</", b"t>", b"a", b"b")
    assert matcher.forced_tokens(4) == ids(b"<t>", b"</", b"t>", b"a")
    assert row_of(matcher) == ids(b"<t>")


def test_special_tokens_are_markers_and_their_names_as_text_are_not():
    texts = (b"a", b"[", b"/", b"E", b"]", None, None, None)
    vocabulary = Vocabulary(texts, (7,), lambda text: [], {"[E]": 5, "[/E]": 6})
    boundary = Boundary(vocabulary, "[E]", "[/E]")
    matcher = ReasoningMatcher(FreeMatcher(vocabulary), boundary, State(BEFORE), 99)
    assert matcher.accept(5)
    assert all(map(matcher.accept, [1, 2, 3, 4])) and not matcher.accept(7)
    assert matcher.accept(6) and matcher.accept(7)


@pytest.mark.parametrize("marker", ["x", "</x>", "S!"])
def test_markers_that_no_tokens_spell_are_refused_by_name(marker):
    with pytest.raises(InvalidRequest, match=marker):
        Boundary(VOCABULARY, "<t>", marker)


def test_a_marker_made_of_a_stop_token_is_refused():
    vocabulary = Vocabulary((b"a", None), (1,), lambda text: [0] * len(text), {"</s>": 1})
    with pytest.raises(InvalidRequest, match="end its output"):
        Boundary(vocabulary, "a", "</s>")


def test_what_a_step_costs_does_not_grow_with_what_stands():
    """Of a long text the matcher asks nothing: the bytes it reads are those of new tokens."""
    matcher = make("open", 10**6)
    num_read = 0

    class Counting(Boundary):
        def symbols_of(self, token_id: int) -> bytes:
            nonlocal num_read
            symbols = super().symbols_of(token_id)
            num_read += len(symbols)
            return symbols

    matcher._boundary = Counting(VOCABULARY, "<t>", "</t>", 1)
    row_of(matcher)
    num_read = 0
    for _ in range(2000):
        assert matcher.accept(ids(b"<t>")[0])
        row_of(matcher)
    assert num_read == 3 * 2000
