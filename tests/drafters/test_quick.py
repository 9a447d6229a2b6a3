"""Drafts for all requests at once, and when there is no time for more."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.haste import Haste
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.grammars.base import MatcherFailed
from structspec.speculation import Speculation
from structspec.vocabulary import Vocabulary
from tests.drafters.test_hybrid import CONFIG, in_haste
from tests.drafters.toy import batch_of, start
from tests.engine.toy_grammar import CertainMatcher

BYTES = Vocabulary.bytes()
STOP = 256


def constrained(texts, prompt="", written="", request_id=0, **params):
    """A request whose matcher says which tokens are certain."""
    request = start(BYTES, None, prompt=prompt, request_id=request_id, **params)
    request.matcher = CertainMatcher(BYTES, [text.encode() for text in texts])
    for token_id in written.encode():
        assert request.matcher.accept(token_id)
        request.token_ids.append(token_id)
    return request


def draft(*requests, config=CONFIG, num_draft_slots=15) -> Draft:
    return in_haste(BYTES, config).propose(batch_of(*requests, num_draft_slots=num_draft_slots))


def test_what_is_certain_is_drafted_then_a_sure_match_then_what_is_certain_behind_it():
    # behind `key` any of four values may come; the prompt has `keyabc`
    texts = [f"key{value};end" for value in ("abc", "abd", "xyz", "xbc")]
    request = constrained(texts, prompt="... keyabc")
    found = draft(request, num_draft_slots=10)
    assert bytes(found.token_ids[0]) == b"keyabc;end"
    assert found.is_forced[0] == [True] * 3 + [False] * 3 + [True] * 4
    assert found.num_certain == [3]
    assert [(s.name, s.num_tokens) for s in found.sources[0]] == [
        ("forced", 3),
        ("ngram", 3),
        ("forced", 4),
    ]


def test_a_match_of_two_tokens_is_left_to_walks():
    request = constrained(["abcd", "abzz"], prompt="-abcd", written="ab")
    assert draft(request).token_ids == [[]]
    walked = HybridDrafter(BYTES, CONFIG).propose(batch_of(request))
    assert bytes(walked.token_ids[0][:2]) == b"cd"


def test_a_match_is_cut_where_the_grammar_refuses_it_and_what_is_certain_follows():
    texts = ["abcdefXYZ", "abcdegXYZ", "abcdehXYZ"]
    request = constrained(texts, prompt="abcdefQQQ", written="abcde")
    found = draft(request, num_draft_slots=4)
    assert bytes(found.token_ids[0]) == b"fXYZ"
    assert found.is_forced[0] == [False, True, True, True]


def test_requests_do_not_touch_each_other():
    def fail(token_id):
        raise MatcherFailed("limit reached")

    broken = constrained(["abcdef", "abcdeg"], prompt="abcdef", written="abcd")
    broken.matcher.accept = fail
    healthy = constrained(["abcd"], written="ab", request_id=1)
    free = start(BYTES, prompt="hello world", written=b"hello", request_id=2)
    found = draft(broken, healthy, free, num_draft_slots=4)
    assert found.token_ids == [[], [*b"cd", STOP], [*b" wor"]]


@pytest.mark.parametrize(
    ("drafters", "expected"),
    [
        (("ngram",), [*b"fg"]),
        (("forced",), []),
        (("forced", "ngram"), [*b"fgh", STOP]),
    ],
)
def test_a_request_is_drafted_by_those_of_its_chain(drafters, expected):
    request = constrained(
        ["abcdefgh", "abcdexyz"],
        prompt="abcdefg-",
        written="abcde",
        speculation=Speculation(drafters=drafters),
    )
    assert draft(request).token_ids == [expected]


def test_one_that_has_to_be_masked_guesses_nothing():
    request = constrained(["key=abc", "key=abd"], prompt="key=abc", written="key=")
    assert draft(request).token_ids == [[*b"abc", STOP]]
    request.needs_mask = True
    assert draft(request).token_ids == [[*b"ab"]]  # certain


@settings(deadline=None)
@given(prompt=st.text("ab", min_size=1, max_size=12), slots=st.integers(0, 8))
def test_free_text_that_is_sure_is_drafted_as_by_walks(prompt, slots):
    request = start(BYTES, prompt=prompt)
    walked = HybridDrafter(BYTES, CONFIG).propose(batch_of(request, num_draft_slots=slots))
    has_sure_match = prompt[-3:] in prompt[:-1] and len(prompt) > 3
    expected = list(walked.token_ids[0]) if has_sure_match else []
    assert list(draft(request, num_draft_slots=slots).token_ids[0]) == expected


def test_behind_a_stop_token_nothing_is_drafted_though_no_other_may_follow():
    request = constrained(["ab", "ac"], written="a")
    request.prediction_token_ids = [*b"ab", STOP, *b"a"]
    assert draft(request).token_ids == [[ord("b"), STOP]]


def test_where_nothing_was_found_it_is_not_looked_for_again():
    request, looks = constrained(["abcd", "abce"], prompt="abcx", written="abc"), []
    find_certain = request.matcher.forced_tokens
    request.matcher.forced_tokens = lambda limit: looks.append(limit) or find_certain(limit)
    assert draft(request).token_ids == [[]]
    assert len(looks) == 1


def test_what_is_certain_elsewhere_is_not_drafted():
    """A look may want forced text spelled otherwise from its middle on, as rows do there."""
    request = constrained(["abcz", "abdz"], prompt="0axc-0")
    request.matcher.forced_tokens = lambda limit: [7] if request.matcher.token_ids else [*b"ax"]
    assert draft(request).token_ids == [[*b"ax"]]


def test_a_request_whose_last_token_is_on_its_way_is_drafted_what_is_certain_behind_it():
    request = constrained(["abcdef"], written="a")
    request.num_unseen = 2  # `b` and `c` are being sampled
    ahead = ScheduledRequest(request, 1, 15, True, last_index=0)
    found = in_haste(BYTES).propose(Batch([ahead]))
    walked = HybridDrafter(BYTES, CONFIG).propose(Batch([ahead]))
    assert found.token_ids == walked.token_ids
    assert found.token_ids == [[*b"def", STOP]]
    assert found.num_certain == walked.num_certain == [4]


def test_guesses_keep_to_what_a_request_may_guess():
    request = constrained(["abcdeX1", "abcdeY2"], prompt="abcdeX1", written="abcde")
    for most in range(4):
        scheduled = ScheduledRequest(request, 1, 15, True, max_num_guesses=most)
        found = in_haste(BYTES).propose(Batch([scheduled]))
        assert found.is_forced[0].count(False) == min(most, 2)


@settings(deadline=None)
@given(
    texts=st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=4),
    prompt=st.text("ab", max_size=9),
    expected=st.lists(st.sampled_from([*b"ab", STOP]), max_size=9),
    slots=st.integers(0, 8),
    data=st.data(),
)
def test_laws(texts, prompt, expected, slots, data):
    requests = []
    for index in range(data.draw(st.integers(1, 3))):
        text = data.draw(st.sampled_from(texts))
        written = text[: data.draw(st.integers(0, len(text)))]
        requests.append(constrained(texts, prompt, written, index))
        requests[-1].prediction_token_ids = expected
    before = [list(request.matcher.token_ids) for request in requests]
    found = draft(*requests, config=SpeculativeConfig(), num_draft_slots=slots)
    for request, token_ids, tokens, certain, forced, sources in zip(
        requests,
        before,
        found.token_ids,
        found.num_certain,
        found.is_forced,
        found.sources or [()] * len(requests),
        strict=True,
    ):
        assert request.matcher.token_ids == token_ids
        assert len(tokens) == len(forced) == sum(source.num_tokens for source in sources) <= slots
        tokens = list(tokens)
        assert tokens[:certain] == request.matcher.forced_tokens(certain)
        assert all(forced[:certain])
        assert STOP not in tokens[:-1]
        for token_id, is_forced in zip(tokens, forced, strict=True):
            if is_forced:
                assert request.matcher.forced_tokens(1) == [token_id]
            assert request.matcher.accept(token_id)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def walk(haste: Haste, clock: Clock, num_walks: int, seconds: float) -> None:
    for _ in haste.timed(range(num_walks)):
        clock.now += seconds


def test_requests_are_walked_while_that_takes_less_than_half_of_a_step():
    clock = Clock()
    haste = Haste(lambda num_rows: 1.0, clock)
    assert haste.has_time_for(100), "nothing is known yet"
    walk(haste, clock, 4, 0.1)
    assert [haste.has_time_for(num_walks) for num_walks in (1, 4, 6, 100)] == [1, 1, 0, 0]


def test_a_moment_in_which_walks_took_long_is_forgotten():
    clock = Clock()
    haste = Haste(lambda num_rows: 1.0, clock)
    walk(haste, clock, 1, 2.0)
    num_steps = 0
    while not haste.has_time_for(1):
        num_steps += 1
    assert 100 < num_steps < 10_000
    walk(haste, clock, 100, 0.01)
    assert haste.has_time_for(10)


def test_without_a_known_step_there_is_always_time():
    clock = Clock()
    haste = Haste(None, clock)
    walk(haste, clock, 3, 1e9)
    assert haste.has_time_for(1000)
