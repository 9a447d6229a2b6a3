"""ngram_search: the kernels follow the reference, and that its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from structspec.kernels.ngram_search import ngram_search_reference, ngram_search_triton

BOTH = pytest.mark.parametrize(
    "search", [ngram_search_reference, ngram_search_triton], ids=["reference", "triton"]
)


def call(search, texts, min_match=1, max_match=3, num_drafts=4, device="cpu", **options):
    """The drafts of each text; rows are in disorder, and what is behind a text is noise."""
    width = max((len(text) for text in texts), default=0) + 3
    table = torch.full((len(texts) + 2, width), 7, dtype=torch.int32, device=device)
    rows = [(3 * i + 1) % len(table) if len(table) % 3 else i for i in range(len(texts))]
    for row, text in zip(rows, texts, strict=True):
        table[row, : len(text)] = torch.tensor(text, dtype=torch.int32, device=device)
    numbers = [
        torch.tensor(values, dtype=torch.int64, device=device)
        for values in (rows, list(map(len, texts)))
    ]
    drafts, counts = search(table, *numbers, min_match, max_match, num_drafts, **options)
    assert drafts.shape == (len(texts), num_drafts) and counts.shape == (len(texts),)
    for draft, count in zip(drafts.tolist(), counts.tolist(), strict=True):
        assert all(token_id == -1 for token_id in draft[count:])
    return [d[:n] for d, n in zip(drafts.tolist(), counts.tolist(), strict=True)]


@BOTH
@pytest.mark.parametrize(
    ("text", "draft"),
    [
        pytest.param([5, 6, 8, 9, 5, 6], [8, 9, 5, 6], id="goes-on-behind-the-match"),
        pytest.param([1, 2, 3, 9, 4, 3, 8, 2, 3], [9, 4, 3, 8], id="the-longer-match-counts"),
        pytest.param([3, 1, 3, 2, 3], [2, 3], id="of-equals-the-last"),
        pytest.param([4, 4, 4, 4], [4], id="a-match-may-overlap-itself"),
        pytest.param([1, 2, 3], [], id="none"),
        pytest.param([1], [], id="one-token"),
        pytest.param([], [], id="no-token"),
    ],
)
def test_what_is_drafted(search, text, draft, device):
    assert call(search, [text], device=device) == [draft]


@BOTH
def test_a_short_match_is_none(search, device):
    texts = [[1, 2, 9, 2], [1, 2, 9, 1, 2]]
    assert call(search, texts, 2, 3, device=device) == [[], [9, 1, 2]]


@BOTH
def test_no_requests(search, device):
    assert call(search, [], device=device) == []


@BOTH
def test_no_drafts(search, device):
    assert call(search, [[1, 1]], num_drafts=0, device=device) == [[]]


def defined(text, min_match, max_match, num_drafts):
    for length in range(max_match, min_match - 1, -1):
        for start in range(len(text) - length - 1, -1, -1):
            if text[start : start + length] == text[-length:]:
                return text[start + length :][:num_drafts]
    return []


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=20), max_size=4),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 5),
)
def test_the_reference_follows_the_definition(texts, min_match, extra, num_drafts):
    found = call(ngram_search_reference, texts, min_match, min_match + extra, num_drafts)
    assert found == [defined(text, min_match, min_match + extra, num_drafts) for text in texts]


@pytest.mark.parametrize("longest", [5, 1023, 1024, 1025, 3000])
def test_the_kernels_give_what_the_reference_does_over_many_blocks(longest, device):
    random = torch.Generator().manual_seed(longest)
    texts = [
        torch.randint(0, kinds, (longest - cut,), generator=random).tolist()
        for kinds, cut in ((2, 0), (40, 1), (1000, 2), (1000, 3))
    ]
    expected = call(ngram_search_reference, texts, 1, 5, 9)
    assert call(ngram_search_triton, texts, 1, 5, 9, device=device) == expected
    found = call(ngram_search_triton, texts, 1, 5, 9, device=device, max_length=longest)
    assert found == expected
