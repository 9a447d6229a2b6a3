"""rejection_sample: its emitted distribution, enumerated exactly, and the kernel against it."""

from fractions import Fraction

import pytest
import torch

from structspec.kernels.rejection_sample import (
    rejection_sample,
    rejection_sample_reference,
    rejection_sample_triton,
)
from tests.kernels.toy_speculation import (
    BATCHES,
    FOUR_TOKENS,
    ONE_HOT,
    PROBABILISTIC,
    emitted_distribution,
    num_valid,
    random_batch,
    target_distribution,
)

BOTH = pytest.mark.parametrize(
    "sample",
    [rejection_sample_reference, rejection_sample_triton],
    ids=["reference", "triton"],
)

CASES = [
    pytest.param(toy, id=f"{kind}-{name}")
    for kind, toys in (("one-hot", ONE_HOT), ("probabilistic", PROBABILISTIC))
    for name, toy in toys.items()
]


@pytest.mark.parametrize("toy", CASES)
def test_what_is_emitted_is_distributed_exactly_as_the_masked_target(toy):
    assert emitted_distribution(toy) == target_distribution(toy)


@pytest.mark.parametrize("toy", [ONE_HOT["certain-draft"], FOUR_TOKENS], ids=["one-hot", "q"])
def test_the_triton_kernel_emits_the_same_distribution(toy, device):
    def sample(*arguments):
        moved = (a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments)
        return rejection_sample_triton(*moved)

    assert emitted_distribution(toy, sample) == target_distribution(toy)


def first_token(distribution):
    """The marginal of the first token."""
    totals = [Fraction(0)] * 4
    for sequence, weight in distribution.items():
        totals[sequence[0]] += weight
    return totals


def test_four_tokens_with_the_last_forbidden():
    emitted = first_token(emitted_distribution(FOUR_TOKENS))
    assert emitted == [Fraction(4, 7), Fraction(2, 7), Fraction(1, 7), 0]


def test_dropping_a_forbidden_draft_instead_would_change_the_distribution():
    def drop(toy, draft):
        return draft[: num_valid(toy, draft)]

    emitted = first_token(emitted_distribution(FOUR_TOKENS, cut=drop))
    assert [round(float(x), 3) for x in emitted] == [0.399, 0.429, 0.173, 0]


def test_dropping_a_forbidden_one_hot_draft_changes_nothing():
    toy = ONE_HOT["second-forbidden"]
    emitted = emitted_distribution(toy, cut=lambda toy, draft: draft[: num_valid(toy, draft)])
    assert emitted == target_distribution(toy)


def call(sample, p, drafts, q=None, num_valid=None, accept=None, draw=0.5, device="cpu"):
    """One request."""
    k = len(drafts)
    token_ids, num_accepted = sample(
        torch.tensor(p, device=device),
        torch.tensor(drafts, dtype=torch.int64, device=device),
        None if q is None else torch.tensor(q, device=device),
        None if q is None else torch.arange(k, device=device),
        torch.tensor([0, k], dtype=torch.int32, device=device),
        torch.tensor([k if num_valid is None else num_valid], dtype=torch.int32, device=device),
        torch.tensor(accept or [0.0] * k, dtype=torch.float64, device=device),
        torch.tensor([draw], dtype=torch.float64, device=device),
        k,
    )
    return token_ids[0].tolist(), num_accepted.item()


@BOTH
def test_a_draft_at_num_valid_is_rejected_whatever_its_probability(sample, device):
    p = [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]
    assert call(sample, p, [0, 0], num_valid=2, device=device) == ([0, 0, 0], 2)
    assert call(sample, p, [0, 0], num_valid=1, device=device) == ([0, 2, -1], 1)
    assert call(sample, p, [0, 0], num_valid=0, device=device) == ([2, -1, -1], 0)


@BOTH
def test_rows_behind_a_forbidden_draft_are_not_looked_at(sample, device):
    nan = [float("nan")] * 3
    p = [[0.5, 0.5, 0.0], nan, nan]
    assert call(sample, p, [2, 0], num_valid=0, draw=0.75, device=device) == ([1, -1, -1], 0)


@BOTH
def test_a_certain_draft_is_accepted_at_every_uniform(sample, device):
    p = [[0.0, 1.0], [1.0, 0.0]]
    almost_one = 1 - 2.0**-53
    assert call(sample, p, [1], accept=[almost_one], device=device) == ([1, 0], 1)
    assert call(sample, p, [1], q=p[:1], accept=[almost_one], device=device) == ([1, 0], 1)


@BOTH
def test_a_rejection_out_of_rounding_alone_draws_from_the_target(sample, device):
    just_below_one = 1 - 2.0**-24
    p = [[0.0, just_below_one], [1.0, 0.0]]
    for q in (None, [[0.0, 1.0]]):
        output = call(sample, p, [1], q=q, accept=[1 - 2.0**-53], device=device)
        assert output == ([1, -1], 0)


@BOTH
def test_an_empty_batch_gives_an_empty_answer(sample, device):
    token_ids, num_accepted = sample(
        torch.empty(0, 5, device=device),
        torch.empty(0, dtype=torch.int64, device=device),
        None,
        None,
        torch.zeros(1, dtype=torch.int32, device=device),
        torch.empty(0, dtype=torch.int32, device=device),
        torch.empty(0, dtype=torch.float64, device=device),
        torch.empty(0, dtype=torch.float64, device=device),
        0,
    )
    assert token_ids.shape == (0, 1)
    assert num_accepted.shape == (0,)


@pytest.mark.parametrize(
    ("lengths", "vocab_size"),
    BATCHES,
    ids=[f"rows{sum(lengths) + len(lengths)}-vocab{vocab}-f32" for lengths, vocab in BATCHES],
)
def test_kernel_and_reference_agree_on_mixed_batches(lengths, vocab_size, device):
    batch = random_batch(lengths, vocab_size, device)
    token_ids, num_accepted = rejection_sample_reference(*batch)
    for sample in (rejection_sample_triton, rejection_sample):
        other_ids, other_accepted = sample(*batch)
        assert torch.equal(other_ids, token_ids)
        assert torch.equal(other_accepted, num_accepted)


def test_requests_with_and_without_a_distribution_share_a_batch():
    # The first draft is one-hot: max(p - q, 0) excludes it. The second has q = p: never rejected.
    p = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    token_ids, num_accepted = rejection_sample(
        p,
        torch.tensor([0, 0]),
        p[2:3].clone(),
        torch.tensor([-1, 0]),
        torch.tensor([0, 1, 2], dtype=torch.int32),
        torch.tensor([1, 1], dtype=torch.int32),
        torch.tensor([0.75, 0.75], dtype=torch.float64),
        torch.tensor([0.0, 0.0], dtype=torch.float64),
        1,
    )
    assert token_ids.tolist() == [[1, -1], [0, 1]]
    assert num_accepted.tolist() == [0, 1]
