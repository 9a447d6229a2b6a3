"""block_verification: distributed exactly as the target, never fewer drafts than one by one.

No grid: each uniform is taken on both sides of every place where theory says that the outcome
changes, weighted with the length of the interval between two such places.
"""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.kernels.block_verification import (
    block_verification,
    block_verification_reference,
    block_verification_triton,
)
from structspec.kernels.rejection_sample import rejection_sample_reference
from tests.kernels.toy_speculation import (
    BATCHES,
    FOUR_TOKENS,
    ONE_HOT,
    PROBABILISTIC,
    Toy,
    acceptance,
    as_tensor,
    continuations,
    drafts_with_probability,
    num_valid,
    random_batch,
    target_distribution,
)

BOTH = pytest.mark.parametrize(
    "verify",
    [block_verification_reference, block_verification_triton],
    ids=["reference", "triton"],
)
CASES = [
    pytest.param(toy, id=f"{kind}-{name}")
    for kind, toys in (("one-hot", ONE_HOT), ("probabilistic", PROBABILISTIC))
    for name, toy in toys.items()
]
# The paper's example: two tokens, likely ones for the target that are unlikely for the drafter.
CONTRARY = Toy(((1, 2), (1, 2), (1, 2)), ((2, 1), (2, 1)))

EPSILON = 2.0**-20  # from a threshold: far above rounding, far below the toys' intervals


def rest(toy, draft, place, weight):
    """max(w p - q, 0) behind the first `place` drafts."""
    prefix = draft[:place]
    q = toy.q(place, prefix) if place < len(draft) else [0] * len(toy.target[0])
    return [max(weight * x - y, 0) for x, y in zip(toy.p(place, prefix), q, strict=True)]


def block_chances(toy, draft):
    """How likely the block may end with each draft, as the theory has it."""
    weight, chances = Fraction(1), []
    for place, token in enumerate(draft):
        prefix = draft[:place]
        ratio = toy.p(place, prefix)[token] / toy.q(place, prefix)[token]
        weight = min(Fraction(1), weight * ratio)
        total = sum(rest(toy, draft, place + 1, weight))
        chances.append(Fraction(1) if weight == 1 else total / (total + 1 - weight))
    return chances


def drawn_distributions(toy, draft):
    """What the last token may be drawn from."""
    weight = Fraction(1)
    for place in range(len(draft) + 1):
        weights = rest(toy, draft, place, weight)
        if any(weights):
            yield [x / sum(weights) for x in weights]
        if place < len(draft):
            prefix, token = draft[:place], draft[place]
            weight *= toy.p(place, prefix)[token] / toy.q(place, prefix)[token]
            weight = min(Fraction(1), weight)


def representatives(bounds):
    """Uniforms just inside each interval between two bounds, with their weights."""
    for low, high in pairwise(sorted({Fraction(0), Fraction(1), *bounds})):
        for value in (float(low) + EPSILON, float(high) - EPSILON):
            yield value, (high - low) / 2


def weighted_uniforms(chances, drawn):
    """Every outcome's uniforms: one for each draft and one for the draw, and their weight."""
    cumulative = {sum(row[:end]) for row in drawn for end in range(1, len(row))}
    choices = [list(representatives([chance])) for chance in chances]
    choices.append(list(representatives(cumulative)))
    for choice in product(*choices):
        weight = Fraction(1)
        for _, share in choice:
            weight *= share
        yield [value for value, _ in choice], weight


def outputs_of(toy, draft, verify, chances, device):
    """What comes out for one draft, with weights that sum to 1."""
    outcomes = list(weighted_uniforms(chances, drawn_distributions(toy, draft)))
    uniforms = torch.tensor([u for u, _ in outcomes], dtype=torch.float64, device=device)
    k, size = len(draft), len(outcomes)
    q_rows = as_tensor([toy.q(j, draft[:j]) for j in range(k)]).to(device)
    is_one_hot = toy.drafter is None
    token_ids, num_accepted = verify(
        as_tensor([toy.p(j, draft[:j]) for j in range(k + 1)]).repeat(size, 1).to(device),
        torch.tensor(draft * size, dtype=torch.int64, device=device),
        None if is_one_hot else q_rows,
        None if is_one_hot else torch.arange(k, device=device).repeat(size),
        torch.arange(size + 1, dtype=torch.int32, device=device) * k,
        torch.full((size,), num_valid(toy, draft), dtype=torch.int32, device=device),
        uniforms[:, :-1].flatten().contiguous(),
        uniforms[:, -1].contiguous(),
        k,
    )
    for row, n, (_, weight) in zip(
        token_ids.tolist(), num_accepted.tolist(), outcomes, strict=True
    ):
        assert row[:n] == list(draft[:n]) and n <= num_valid(toy, draft)
        assert row[n + 1 :] == [-1] * (k - n)
        yield tuple(row[: n + 1]), weight


def judge(toy, verify=block_verification_reference, device="cpu"):
    """The exact distribution of what a step and those behind it write, and the mean accepted."""
    distribution, mean = defaultdict(Fraction), Fraction(0)
    for draft, chance in drafts_with_probability(toy).items():
        is_block = verify is not rejection_sample_reference
        chances = (
            block_chances(toy, draft)
            if is_block
            else [acceptance(toy, draft, j) for j in range(len(draft))]
        )
        for output, weight in outputs_of(toy, draft, verify, chances, device):
            mean += chance * weight * (len(output) - 1)
            for sequence, share in continuations(toy, output).items():
                distribution[sequence] += chance * weight * share
    return dict(distribution), mean


@pytest.mark.parametrize("toy", CASES)
def test_what_is_emitted_is_distributed_exactly_as_the_masked_target(toy):
    distribution, _ = judge(toy)
    assert distribution == target_distribution(toy)


@pytest.mark.parametrize(
    "toy", [FOUR_TOKENS, CONTRARY, PROBABILISTIC["second-forbidden"]], ids=["one", "two", "mask"]
)
def test_the_triton_kernels_emit_the_same_distribution(toy, device):
    distribution, _ = judge(toy, block_verification_triton, device)
    assert distribution == target_distribution(toy)


def test_the_papers_example_accepts_eleven_ninths_instead_of_ten():
    assert judge(CONTRARY)[1] == Fraction(11, 9)
    assert judge(CONTRARY, rejection_sample_reference)[1] == Fraction(10, 9)


@pytest.mark.parametrize("toy", ONE_HOT.values(), ids=ONE_HOT)
def test_one_hot_drafts_are_accepted_as_often_as_one_by_one(toy):
    assert judge(toy)[1] == judge(toy, rejection_sample_reference)[1]


@st.composite
def toys(draw):
    """Up to three drafts of few tokens, any of them forbidden as long as one is left."""
    vocab_size, k = draw(st.sampled_from([(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)]))
    weight = st.integers(0, 4)
    row = st.tuples(*[weight] * vocab_size).filter(any)
    target = [draw(st.tuples(*[st.integers(1, 4)] * vocab_size)) for _ in range(k + 1)]
    forbidden = {
        (position, token)
        for position in range(k + 1)
        for token in draw(st.sets(st.integers(0, vocab_size - 1), max_size=vocab_size - 1))
    }
    return Toy(tuple(target), tuple(draw(row) for _ in range(k)), forbidden=frozenset(forbidden))


@settings(max_examples=30, deadline=None)
@given(toys())
def test_it_is_exact_and_accepts_no_fewer_whatever_the_models_and_the_grammar(toy):
    distribution, mean = judge(toy)
    assert distribution == target_distribution(toy)
    assert mean >= judge(toy, rejection_sample_reference)[1]


def call(verify, p, drafts, q, num_valid, accept, draw, device):
    """One request."""
    k = len(drafts)
    token_ids, num_accepted = verify(
        torch.tensor(p, device=device),
        torch.tensor(drafts, dtype=torch.int64, device=device),
        torch.tensor(q, device=device),
        torch.arange(k, device=device),
        torch.tensor([0, k], dtype=torch.int32, device=device),
        torch.tensor([num_valid], dtype=torch.int32, device=device),
        torch.tensor(accept, dtype=torch.float64, device=device),
        torch.tensor([draw], dtype=torch.float64, device=device),
        k,
    )
    return token_ids[0].tolist(), num_accepted.item()


@BOTH
def test_an_unlikely_draft_stands_where_the_next_makes_up_for_it(verify, device):
    # w: 1/2 behind the first, min(1, 1/2 * 4) behind the second
    p, q = [[0.25, 0.75], [1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.25, 0.75]]
    assert call(verify, p, [0, 0], q, 2, [0.9, 0.9], 0.5, device) == ([0, 0, 1], 2)


@BOTH
def test_rows_behind_a_forbidden_draft_are_not_looked_at(verify, device):
    nan = [float("nan")] * 3
    p, q = [[0.5, 0.5, 0.0], nan, nan], [[0.25, 0.0, 0.75], nan]
    assert call(verify, p, [2, 0], q, 0, [0.0, 0.0], 0.25, device) == ([0, -1, -1], 0)
    assert call(verify, p, [2, 0], q, 0, [0.0, 0.0], 0.75, device) == ([1, -1, -1], 0)


@BOTH
def test_a_drafter_that_is_the_target_is_never_rejected(verify, device):
    p = [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]
    almost_one = 1 - 2.0**-53
    accept = [almost_one, almost_one]
    assert call(verify, p, [0, 1], p[:2], 2, accept, almost_one, device) == ([0, 1, 0], 2)


@BOTH
def test_an_empty_batch_gives_an_empty_answer(verify, device):
    token_ids, num_accepted = verify(
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
def test_kernels_and_reference_agree_on_mixed_batches(lengths, vocab_size, device):
    batch = random_batch(lengths, vocab_size, device)
    token_ids, num_accepted = block_verification_reference(*batch)
    for verify in (block_verification_triton, block_verification):
        other_ids, other_accepted = verify(*batch)
        assert torch.equal(other_ids, token_ids)
        assert torch.equal(other_accepted, num_accepted)
