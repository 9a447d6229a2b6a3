"""Wide rows in the mask of a step, and what the GPU's sampler makes of them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.constraint import Regex
from structspec.engine.batch import Batch, Draft, Mask, ScheduledRequest, guessed
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.grammars.wide_rows import WideRows
from structspec.masking import Masker
from structspec.request import Request
from tests.test_masking import STOP, VOCABULARY, allowed, make_batch, make_draft, make_request

WIDE_ROWS = WideRows(VOCABULARY)


def widely(pattern: str) -> Request:
    """A request at the start of its output, as the engine has it from the compiler."""
    request = make_request(Regex(pattern))
    request.wide_row = WIDE_ROWS.of(Regex(pattern))
    assert request.wide_row is not None
    return request


def test_requests_that_are_not_masked_share_the_row_of_their_alphabet() -> None:
    """Alphabets ab, xy, ab, none: one row for the first and the third."""
    requests = [widely("ab"), widely("xy"), widely("(a|b)+"), make_request(Regex("q")), widely("b")]
    masker, batch = Masker(VOCABULARY), make_batch(*requests, make_request(), unsampled=(4,))
    draft = make_draft(b"bb", b"", b"z", b"q", b"", b"k")
    mask = masker.fill(batch, draft, [False, False, False, True, False, False])
    # logits rows: 0 1 2 | 3 | 4 5 | 6 7 masked first | (unsampled: none) | 8 9 free
    places = dict(zip(mask.rows.tolist(), mask.places.tolist(), strict=True))
    assert places == {0: 0, 1: 0, 2: 0, 3: 1, 4: 0, 5: 0, 6: 2, 7: 3}
    assert [allowed(row) for row in mask.bitmask] == [[97, 98, STOP], [120, 121, STOP], [113],
                                                      [STOP]]  # fmt: skip
    assert mask.num_valid == [2, 0, 1, 1, 0, 1]  # nobody was asked about the guesses of the others
    assert mask.jobs.keys() == {3}


def test_a_request_that_is_masked_needs_no_wide_row() -> None:
    mask = Masker(VOCABULARY).fill(make_batch(widely("ab"), widely("b")), make_draft(b"", b""))
    assert [allowed(row) for row in mask.bitmask] == [[97], [98]]
    assert (mask.rows.tolist(), mask.places.tolist(), mask.wide) == ([0, 1], [0, 1], [])


PATTERNS = ("[a-c]{9}", "[a-c]+", "[x-z]{9}", "[a-z]{9}", r"\d{9}")
STEPS = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 2)), max_size=6),
    min_size=2,
    max_size=8,
)


class CountingLanes(Lanes):
    """Tells how often the host has sent rows."""

    num_copies = 0

    def copying(self):
        self.num_copies += 1
        return super().copying()


def mixed_step(masker: Masker, step: list[tuple[int, bool, int]]) -> tuple[Batch, Draft, Mask]:
    """Requests by pattern (the last: free), whether they are masked, how much they guess."""
    requests = [widely(PATTERNS[i]) if i < 5 else make_request() for i, _, _ in step]
    batch, draft = make_batch(*requests), guessed([[97] * n for _, _, n in step])
    is_masked = [i < 5 and masked for i, masked, _ in step]
    return batch, draft, masker.fill(batch, draft, is_masked)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_was_in_the_steps_before_each_row_is_masked_by_its_own(steps) -> None:
    masker, last = Masker(VOCABULARY), torch.zeros(32, dtype=torch.int64)
    sampler = DeviceSampler(
        VOCABULARY, [32], 2, last, Lanes(torch.device("cpu")), lambda rows: rows
    )
    plain = RejectionSampler(VOCABULARY.vocab_size, VOCABULARY.stop_token_ids)
    for number, step in enumerate(steps):
        batch, draft, mask = mixed_step(masker, step)
        place_of = dict(zip(mask.rows.tolist(), mask.places.tolist(), strict=True))
        row = 0
        for index, (pattern, masked, num_guesses) in enumerate(step):
            for place in [place_of.get(r) for r in range(row, row + 1 + num_guesses)]:
                if pattern == 5:
                    assert place is None
                elif not masked:
                    wide = batch.requests[index].request.wide_row
                    assert (mask.bitmask[place].numpy() == wide).all()
            if pattern < 5 and masked:
                fresh = Masker(VOCABULARY).fill(make_batch(widely(PATTERNS[pattern])),
                                                make_draft(b""))  # fmt: skip
                assert torch.equal(mask.bitmask[place_of[row]], fresh.bitmask[0])
            row += 1 + num_guesses
        generator = torch.Generator().manual_seed(number)
        logits = torch.randn(row, VOCABULARY.vocab_size, generator=generator)
        expected = plain(logits.clone(), batch, draft, mask).read()
        output = sampler(logits, batch, draft, mask).read()
        assert [*map(list, output.token_ids)] == [*map(list, expected.token_ids)]
        assert list(output.num_accepted) == list(expected.num_accepted)


def test_wide_rows_travel_once() -> None:
    """Requests a b, then b a c (a new row), then a alone: its place is another's now."""
    masker, lanes = Masker(VOCABULARY), CountingLanes(torch.device("cpu"))
    last = torch.zeros(8, dtype=torch.int64)
    sampler = DeviceSampler(VOCABULARY, [8], 0, last, lanes, lambda rows: rows)
    copies = []
    a, b, c = (widely(f"{letter}+") for letter in "abc")
    for requests in ([a, b], [a, b], [a, b], [a], [a, b, c], [b], [b], [make_request()], [b]):
        batch, draft = make_batch(*requests), make_draft(*[b""] * len(requests))
        mask = masker.fill(batch, draft, [False] * len(requests))
        logits = torch.randn(len(requests), VOCABULARY.vocab_size)
        before = lanes.num_copies
        output = sampler(logits, batch, draft, mask).read()
        copies.append(lanes.num_copies - before)
        for request, (token,) in zip(requests, output.token_ids, strict=True):
            if request.wide_row is not None:
                assert token in (STOP, {a: 97, b: 98, c: 99}[request])
    assert copies == [1, 0, 0, 0, 1, 1, 0, 0, 0]


def test_runners_up_of_a_wide_row_are_among_its_tokens() -> None:
    request = widely("[abc]{3}")
    batch, draft = Batch([ScheduledRequest(request, 1, 0, True)]), make_draft(b"")
    logits = torch.zeros(1, VOCABULARY.vocab_size)
    logits[0, list(b"zyxcab")] = torch.tensor([9.0, 8, 7, 3, 2, 1])
    last = torch.zeros(1, dtype=torch.int64)
    lanes = Lanes(torch.device("cpu"))
    sampler = DeviceSampler(VOCABULARY, [1], 0, last, lanes, lambda rows: rows, num_runners_up=4)
    mask = Masker(VOCABULARY).fill(batch, draft, [False])
    output = sampler(logits, batch, draft, mask).read()
    assert output.token_ids == [[99]]
    assert output.runners_up[0] == [97, 98, STOP]


def test_a_first_token_is_masked_by_the_row_at_the_start_and_no_later_one_is() -> None:
    first, guessing, masked = widely("ab"), make_request(Regex("xy")), make_request(Regex("q"))
    certain = make_request(Regex("cd"))
    requests = [first, guessing, masked, certain]
    for request in requests:
        assert request.compiled is not None
        request.start_row = request.compiled.result().start_row
    draft = Draft([[], list(b"x"), [], list(b"c")], [None] * 4, [[]] * 4, [0, 0, 0, 1])
    masker, is_masked = Masker(VOCABULARY), [False, False, True, False]
    mask = masker.fill(make_batch(*requests), draft, is_masked)
    # logits rows: 0 first | 1 2 guessing | 3 masked | 4 behind a certain token
    rows = {r: allowed(mask.bitmask[p]) for r, p in zip(mask.rows, mask.places, strict=True)}
    assert {int(r): row for r, row in rows.items()} == {0: [97], 1: [120], 3: [113]}
    assert all(request.start_row is None for request in requests)
    mask = masker.fill(make_batch(*requests), guessed([[]] * 4), [False] * 4)
    rows = {r: allowed(mask.bitmask[p]) for r, p in zip(mask.rows, mask.places, strict=True)}
    assert {int(r): row for r, row in rows.items()} == {0: [97, 98, STOP]}


def test_a_token_on_its_way_is_the_first_one() -> None:
    request = make_request(Regex("ab"))
    assert request.compiled is not None
    request.num_pending = 1
    request.start_matching(request.compiled.result())
    assert request.start_row is None
    request.num_pending = 0
    request.start_matching(request.compiled.result())
    assert request.start_row is not None and allowed(torch.from_numpy(request.start_row)) == [97]
