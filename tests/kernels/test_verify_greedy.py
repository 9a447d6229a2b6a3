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
    with pytest.raises(AssertionError):
        call(verify_greedy, [([1, 2, 3], [1], 1)], "cpu")


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
