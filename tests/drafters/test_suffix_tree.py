"""SuffixTree: counts of what followed, and drafts by them, against a search of the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.drafters.suffix_tree import SuffixSettings, SuffixTree
from structspec.errors import InvalidRequest

SETTINGS = st.builds(
    SuffixSettings,
    max_tree_depth=st.integers(2, 8),
    max_spec_factor=st.sampled_from([0.5, 1.0, 2.0]),
    max_spec_offset=st.sampled_from([-1.0, 0.0, 3.0]),
    min_token_prob=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
)
TEXTS = st.integers(1, 4).flatmap(lambda most: st.lists(st.integers(0, most), max_size=60))


def followers(texts, match):
    """Every token that follows `match` anywhere, in order."""
    size = len(match)
    return [
        text[start + size]
        for text in texts
        for start in range(len(text) - size)
        if text[start : start + size] == match
    ]


def longest_match(texts, context, max_order):
    """The longest suffix of at most `max_order` tokens that something follows."""
    for size in range(min(max_order, len(context)), 0, -1):
        if followers(texts, context[-size:]):
            return context[-size:]
    return []


def slow_draft(texts, context, limit, rules, min_match=1):
    """The definition: always what most often followed the longest match, the latest of equals."""
    match = longest_match(texts, context, rules.max_tree_depth - 1)
    if len(match) < min_match:
        return [], 0.0
    limit = min(limit, int(rules.max_spec_factor * len(match) + rules.max_spec_offset))
    drafted, score, prob = [], 0.0, 1.0
    while match and len(drafted) < limit:
        after = followers(texts, match)
        token = max(reversed(after), key=after.count)
        prob *= after.count(token) / len(after)
        if prob < rules.min_token_prob:
            break
        drafted.append(token)
        score += prob
        match = longest_match(texts, context + drafted, rules.max_tree_depth - 1)
    return drafted, score


def tree_of(*pieces, rules=None):
    tree = SuffixTree(rules or SuffixSettings())
    for piece in pieces:
        tree.extend(list(piece))
    return tree


def draft_text(text, **rules):
    tree = tree_of(text.encode(), rules=SuffixSettings(**rules))
    return bytes(tree.draft((), 15).token_ids)


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        pytest.param("hello world, hel", b"lo ", id="as-many-tokens-as-match"),
        pytest.param("abc,abd;abd.ab", b"d.", id="the-most-frequent"),
        pytest.param("abc,abd;ab", b"d;", id="the-latest-of-equals"),
        pytest.param("1abcX bcY bcY 1abc", b"X bc", id="a-longer-match-beats-a-more-frequent-one"),
        pytest.param("abcx", b"", id="no-match"),
        pytest.param("aaaaaa", b"aaaaa", id="a-match-may-overlap-itself"),
        pytest.param("xabab", b"ab", id="behind-the-end-it-goes-on-with-a-shorter-match"),
        pytest.param("", b"", id="nothing"),
    ],
)
def test_what_is_drafted(text, draft):
    assert draft_text(text) == draft


def test_the_score_is_how_many_tokens_may_be_expected_to_hold():
    # Behind `ab` came c, c, d: 2 of 3; and behind `abc` both times a comma.
    tree = tree_of(b"abc,abc,abd;ab")
    assert tree.draft((), 2) == (list(b"c,"), pytest.approx(2 / 3 + 2 / 3))


@pytest.mark.parametrize(("least", "draft"), [(0.66, b"c,"), (0.67, b"")])
def test_no_draft_less_likely_than_the_least(least, draft):
    assert draft_text("abc,abc,abd;ab", min_token_prob=least) == draft


@pytest.mark.parametrize(
    ("factor", "offset", "num_drafted"), [(1, 0, 3), (2, 0, 6), (0.5, 0, 1), (1, 2, 5), (0, 0, 0)]
)
def test_the_draft_is_as_long_as_factor_times_match_plus_offset(factor, offset, num_drafted):
    rules = {"max_spec_factor": factor, "max_spec_offset": offset}
    assert draft_text("abcdefghijk abc", **rules) == b"defghijk"[:num_drafted]


def test_a_copy_is_drafted_whole_once_it_matches():
    text = list(range(200))
    tree = tree_of(text, text[:20])
    for written in range(20, 180, 15):
        assert tree.draft((), 15).token_ids == text[written : written + 15]
        tree.extend(text[written : written + 15])


@given(TEXTS, SETTINGS, st.integers(0, 9), st.integers(1, 3))
def test_drafts_follow_their_definition(text, rules, limit, min_match):
    token_ids, score = tree_of(text, rules=rules).draft((), limit, min_match)
    expected, expected_score = slow_draft([text], text, limit, rules, min_match)
    assert token_ids == expected
    assert score == pytest.approx(expected_score)


@given(TEXTS, st.lists(st.integers(0, 5), max_size=9), SETTINGS)
def test_what_is_drafted_already_is_context_and_never_text(text, drafted, rules):
    tree = tree_of(text, rules=rules)
    before = tree.draft((), 9)
    guess = tree.draft(drafted, 9)
    expected, score = slow_draft([text], text + drafted, 9, rules)
    assert (guess.token_ids, guess.score) == (expected, pytest.approx(score))
    assert tree.draft((), 9) == before


@given(st.lists(TEXTS, max_size=6), SETTINGS)
def test_it_matters_not_in_what_pieces_a_text_comes(pieces, rules):
    whole = tree_of(sum(pieces, []), rules=rules)
    assert tree_of(*pieces, rules=rules).draft((), 9) == whole.draft((), 9)
    assert whole.num_tokens == sum(map(len, pieces))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 30, 100_000]))
def test_long_texts_grow_the_arrays_and_take_bounded_memory(seed, num_kinds):
    mixed = [(seed + i * i * 2654435761 >> 7) % num_kinds for i in range(3000)]
    tree = tree_of(mixed)
    assert tree.num_bytes < 160 * (3000 + 128) + 1000
    tree.extend(mixed[:50])
    assert (
        tree.draft((), 9).token_ids
        == slow_draft([mixed + mixed[:50]], mixed + mixed[:50], 9, SuffixSettings())[0]
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tree_depth", 1),
        ("max_spec_factor", -1.0),
        ("max_spec_factor", float("nan")),
        ("max_spec_offset", float("inf")),
        ("min_token_prob", 1.5),
    ],
)
def test_settings_that_mean_nothing_are_refused(name, value):
    with pytest.raises(InvalidRequest, match=name):
        SuffixSettings(**{name: value})
