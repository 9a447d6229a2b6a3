"""TokenIndex: the latest of the longest earlier matches, however its texts came to it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.drafters.token_index import Ask, TokenIndex
from structspec.request import Request, RequestStatus, SamplingParams


def a_request(request_id=0):
    return Request(request_id, [0], SamplingParams(), 100)


def defined(tokens, min_match, max_match):
    """Where the match goes on, by its definition; 0 where there is none."""
    for length in range(max_match, min_match - 1, -1):
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[-length:]:
                return start + length
    return 0


# Few tokens, so that much repeats; one far away that shares no slot but by its hash.
TOKENS = st.lists(st.sampled_from([0, 1, 2, 151_000]), max_size=12)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=8),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_the_search_follows_its_definition(steps, min_match, extra):
    """Tokens come in pieces, each step with a draft that the next one knows nothing of."""
    index, request, known, limit = TokenIndex(), a_request(), [], 5
    for new, draft in steps:
        known += new
        text = known + draft
        if known:
            expected = defined(text, min_match, min_match + extra)
            ask = Ask(request, new, draft, limit, min_match, min_match + extra)
            if len(draft) % 2:
                assert index.draft([ask]) == [text[expected:][:limit] if expected else []]
            else:
                start, tokens = index.find(ask)
                assert (start, tokens.tolist()) == (expected, text)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 7), TOKENS, st.booleans()), max_size=60))
def test_requests_come_and_go_and_never_see_each_other(events):
    """Rows are used again, and there are more and longer ones with time."""
    index, texts, requests = TokenIndex(), {}, {}
    for number, (slot, new, is_finished) in enumerate(events):
        if slot not in requests:
            requests[slot], texts[slot] = a_request(number), []
        new = [7, *new]
        texts[slot] += new
        others = [Ask(one, [], [], 4, 1, 3) for key, one in requests.items() if key != slot]
        mine, *_ = index.draft([Ask(requests[slot], new, [], 4, 1, 3), *others])
        place = defined(texts[slot], 1, 3)
        assert mine == (texts[slot][place : place + 4] if place else [])
        if is_finished:
            requests.pop(slot).status = RequestStatus.FINISHED
        index.forget_finished()
        assert index.num_requests == len(requests)


def test_a_long_text_keeps_its_links_as_it_grows():
    index, request = TokenIndex(), a_request()
    period = list(range(1000))
    for _ in range(5):
        [drafted] = index.draft([Ask(request, period, [], 3, 2, 5)])
    assert drafted == [0, 1, 2]
    assert index.draft([Ask(request, [17, 18], [19], 3, 2, 5)]) == [[20, 21, 22]]


def test_nothing_is_found_in_no_text():
    assert TokenIndex().draft([]) == []
    assert TokenIndex().draft([Ask(a_request(), [], [], 3, 1, 3)]) == [[]]
    assert TokenIndex().draft([Ask(a_request(), [1], [], 0, 1, 3)]) == [[]]
