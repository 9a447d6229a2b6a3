"""verify_greedy: drafts stand up to the first that differs from the target's token."""

from collections import defaultdict
from fractions import Fraction
from itertools import product
from math import lcm

import pytest
import torch

from structspec.kernels.sample import sample
from structspec.kernels.verify_greedy import (
    verify_greedy,
    verify_greedy_reference,
    verify_greedy_triton,
)
from tests.kernels.toy_speculation import ONE_HOT, continuations, num_valid, target_distribution

BOTH = pytest.mark.parametrize(
    "verify", [verify_greedy_reference, verify_greedy_triton], ids=["reference", "triton"]
)


def call(verify, requests, device):
    """`requests`: (target tokens, drafts, num_valid) each, with one target more than drafts."""
    targets = [t for target, _, _ in requests for t in target]
    drafts = [d for _, draft, _ in requests for d in draft]
    lengths = torch.tensor([0, *(len(draft) for _, draft, _ in requests)])
    token_ids, num_accepted = verify(
        torch.tensor(targets, dtype=torch.int64, device=device),
        torch.tensor(drafts, dtype=torch.int64, device=device),
        lengths.cumsum(0).to(device, torch.int32),
        torch.tensor([valid for _, _, valid in requests], dtype=torch.int32, device=device),
        max((len(draft) for _, draft, _ in requests), default=0),
    )
    return token_ids.tolist(), num_accepted.tolist()


@BOTH
@pytest.mark.parametrize(
    ("target", "draft", "num_valid", "expected"),
    [
        pytest.param([7], [], 0, [7], id="no-draft"),
        pytest.param([7, 8, 9], [7, 8], 2, [7, 8, 9], id="all-accepted-then-bonus"),
        pytest.param([7, 8, 9], [7, 5], 2, [7, 8, -1], id="second-differs"),
        pytest.param([7, 8, 9], [5, 8], 2, [7, -1, -1], id="first-differs-though-second-agrees"),
        pytest.param([7, 8, 9], [7, 8], 1, [7, 8, -1], id="forbidden-is-rejected-though-equal"),
        pytest.param([7, 8, 9], [7, 8], 0, [7, -1, -1], id="first-is-forbidden"),
    ],
)
def test_one_request(verify, target, draft, num_valid, expected, device):
    token_ids, num_accepted = call(verify, [(target, draft, num_valid)], device)
    assert token_ids == [expected]
    assert num_accepted == [sum(t >= 0 for t in expected) - 1]


@BOTH
@pytest.mark.parametrize(
    ("num_valid", "expected"), [(0, [7, -1, -1]), (1, [5, 8, -1]), (2, [5, 6, 9]), (9, [5, 6, 9])]
)
def test_with_accepts_valid_so_many_drafts_stand_whatever_the_target_says(
    verify, num_valid, expected, device
):
    def accept(*arguments):
        return verify(*arguments, accepts_valid=True)

    token_ids, num_accepted = call(accept, [([7, 8, 9], [5, 6], num_valid)], device)
    assert token_ids == [expected]
    assert num_accepted == [min(num_valid, 2)]


@BOTH
def test_requests_with_different_draft_lengths_do_not_mix(verify, device):
    token_ids, num_accepted = call(
        verify,
        [([1, 2, 3, 4], [1, 2, 9], 3), ([5], [], 0), ([6, 7], [6], 1)],
        device,
    )
    assert token_ids == [[1, 2, 3, -1], [5, -1, -1, -1], [6, 7, -1, -1]]
    assert num_accepted == [2, 0, 1]


@BOTH
def test_an_empty_batch_gives_an_empty_answer(verify, device):
    assert call(verify, [], device) == ([], [])


def test_the_wrapper_refuses_a_layout_that_does_not_add_up():
    ids, lengths = torch.tensor([1, 2, 3]), torch.tensor([0, 1, 2], dtype=torch.int32)
    with pytest.raises(AssertionError):
        verify_greedy(ids, ids[:2], lengths, lengths[:1], 1)


@BOTH
def test_the_last_token_of_each_request_is_written_where_it_is_wanted(verify, device):
    last = torch.full((3,), 99, device=device)
    verify(
        torch.tensor([1, 2, 3, 5, 6, 7], device=device),
        torch.tensor([1, 9, 6], device=device),
        torch.tensor([0, 2, 2, 3], dtype=torch.int32, device=device),
        torch.tensor([2, 0, 1], dtype=torch.int32, device=device),
        2,
        last,
    )
    assert last.tolist() == [2, 5, 7]


@BOTH
def test_padding_changes_nothing_and_a_request_without_a_row_gets_no_token(verify, device):
    """One request of two rows in buckets of 3 requests, 3 rows and 4 drafts."""
    last = torch.full((3,), 99, device=device)
    token_ids, num_accepted = verify(
        torch.tensor([7, 8, 42], device=device),
        torch.tensor([7, 8, 42, 42], device=device),
        torch.tensor([0, 1, 1, 1], dtype=torch.int32, device=device),
        torch.tensor([1, 4, 0], dtype=torch.int32, device=device),
        2,
        last,
    )
    assert token_ids.tolist() == [[7, 8, -1], [42, -1, -1], [-1, -1, -1]]
    assert num_accepted.tolist() == [1, 0, 0]
    assert last.tolist() == [8, 42, -1]


@BOTH
def test_the_runners_up_of_the_row_behind_the_accepted_drafts_go_with_its_token(verify, device):
    """Three requests of 3, 1 and 2 rows, then two padded ones: one beside a row, one without."""
    runners_up = torch.tensor([[i, 10 * i, -1] for i in range(7)], device=device)
    wide = torch.full((5, 5), 99, device=device)
    last = torch.full((5,), 99, device=device)
    verify(
        torch.tensor([1, 2, 3, 5, 6, 7, 8], device=device),
        torch.tensor([1, 9, 6], device=device),
        torch.tensor([0, 2, 2, 3, 3, 3], dtype=torch.int32, device=device),
        torch.tensor([2, 0, 1, 0, 0], dtype=torch.int32, device=device),
        2,
        last,
        runners_up,
        wide[:, 1:4],
    )
    assert last.tolist() == [2, 5, 7, 8, -1]
    assert wide[:, 1:4].tolist() == [[1, 10, -1], [3, 30, -1], [5, 50, -1], [6, 60, -1], [-1] * 3]
    assert (wide[:, [0, 4]] == 99).all()


def test_the_wrapper_refuses_runners_up_without_a_place_for_the_last():
    ids, lengths = torch.tensor([1, 2]), torch.tensor([0, 1], dtype=torch.int32)
    with pytest.raises(AssertionError):
        verify_greedy(ids, ids[:1], lengths, lengths[:1], 1, runners_up=ids[:, None])


@BOTH
def test_long_drafts_stand_too(verify, device):
    target = list(range(40))
    token_ids, num_accepted = call(verify, [(target, target[:39], 39)], device)
    assert token_ids == [target] and num_accepted == [39]


@pytest.mark.parametrize("toy", ONE_HOT.values(), ids=ONE_HOT)
def test_one_hot_drafts_compared_with_draws_leave_the_masked_target_as_it_is(toy):
    draft, k = toy.one_hot, toy.num_drafts
    rows = [toy.p(position, draft[:position]) for position in range(k + 1)]
    # So many equally spaced uniforms per row that each token comes as often as it should.
    sizes = [lcm(*(x.denominator for x in row)) for row in rows]
    grid = list(product(*([(i + 0.5) / size for i in range(size)] for size in sizes)))
    probs = torch.tensor([[float(x) for x in row] for row in rows]).repeat(len(grid), 1)
    targets = sample(probs, torch.tensor(grid, dtype=torch.float64).flatten())
    token_ids, num_accepted = verify_greedy(
        targets,
        torch.tensor(draft * len(grid), dtype=torch.int64),
        torch.arange(len(grid) + 1, dtype=torch.int32) * k,
        torch.full((len(grid),), num_valid(toy, draft), dtype=torch.int32),
        k,
    )
    emitted = defaultdict(Fraction)
    for row, n in zip(token_ids.tolist(), num_accepted.tolist(), strict=True):
        for sequence, weight in continuations(toy, tuple(row[: n + 1])).items():
            emitted[sequence] += weight / len(grid)
    assert emitted == target_distribution(toy)
