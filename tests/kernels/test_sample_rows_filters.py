"""Rows limited by top-k, top-p and min_p: what is kept, and that the kernels draw from just that.

Masses are sums of float32 weights, so top_p and min_p are met within EPSILON. Where the limits a
little stricter and a little looser draw the same token, no other will do.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.engine.sampling_probs import compute_target_probs
from structspec.kernels.philox import gumbel_reference
from structspec.kernels.sample_rows import sample_rows, sample_rows_reference, sample_rows_triton
from structspec.kernels.sample_rows_filters import Filters, keep_reference
from structspec.request import SamplingParams

EPSILON = 1e-5
COMBINATIONS = [
    (k, p, m)
    for k, p, m in itertools.product((0, 4), (1.0, 0.8), (0.0, 0.3))
    if (k, p, m) != (0, 1, 0)
] + [(0, 0.99, 0.0), (50, 0.95, 0.0), (200, 1.0, 1e-3), (1, 1.0, 0.0)]
KINDS = ["random", "peaked", "flat", "tied", "masked", "one", "none"]
TEMPERATURES = [1.0, 0.01, 100.0, 0.3]


def make_filters(limits, device="cpu"):
    """From a (top_k, top_p, min_p) per row."""
    top_k, top_p, min_p = zip(*limits, strict=True)
    return Filters(
        torch.tensor(top_k, dtype=torch.int32, device=device),
        torch.tensor(top_p, dtype=torch.float32, device=device),
        torch.tensor(min_p, dtype=torch.float32, device=device),
    )


def loosened(filters, epsilon):
    """What keeps a little more, or less; what is off stays off."""
    top_p = (filters.top_p + epsilon).clamp(1e-7, 1 - 2**-24)
    top_p = torch.where(filters.top_p < 1, top_p, 1.0)
    return Filters(filters.top_k, top_p, (filters.min_p * (1 - epsilon)).clamp(max=1))


def logits_of(kind, vocab_size, generator):
    """A row of its kind; "masked", "one" and "none" are told by their bitmask."""
    row = torch.randn(vocab_size, generator=generator) * 3
    if kind == "peaked":
        row[vocab_size // 3] += 30
    if kind == "flat":
        row *= 1e-4
    return row.round() if kind == "tied" else row


def make_case(num_rows, vocab_size, dtype, device, offset=0):
    """Every kind with every combination in turn (7 and 11 have no common factor)."""
    generator = torch.Generator().manual_seed(vocab_size)
    rows = range(offset, offset + num_rows)
    num_words = (vocab_size + 31) // 32
    bitmask = torch.zeros(3, num_words, dtype=torch.int32)
    bitmask[0] = torch.randint(-(2**31), 2**31, (num_words,), generator=generator)
    bitmask[1, num_words // 2] = 1
    mask_rows = [{"masked": 0, "one": 1, "none": 2}.get(KINDS[i % 7], -1) for i in rows]
    args = {
        "logits": torch.stack([logits_of(KINDS[i % 7], vocab_size, generator) for i in rows]).to(
            dtype
        ),
        "bitmask": bitmask,
        "mask_rows": torch.tensor(mask_rows),
        "stop_token_ids": torch.tensor([1]),
        "bans_stops": torch.tensor([i % 3 == 0 for i in rows]),
        "temperature": torch.tensor([TEMPERATURES[i % 4] for i in rows]),
        "seeds": torch.tensor([i * 2**33 + 1 for i in rows]),
        "draws": torch.tensor(rows),
    }
    filters = make_filters([COMBINATIONS[i % len(COMBINATIONS)] for i in rows], device)
    return {name: value.to(device) for name, value in args.items()}, filters


def assert_drawn_from_what_is_kept(args, filters):
    token_ids = sample_rows_triton(**args, filters=filters)
    possible = torch.stack(
        [
            sample_rows_reference(**args, filters=loosened(filters, epsilon))
            for epsilon in (-EPSILON, 0.0, EPSILON)
        ]
    )
    assert bool((possible == token_ids).any(0).all())


DTYPES = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16],
    ids=["fp32", "fp16", "bf16"],
)


@pytest.mark.parametrize(
    ("vocab_size", "num_rows", "dtype"),
    [(5, 11, torch.float32), (257, 28, torch.float32), (257, 11, torch.float16)],
    ids=["vocab5-fp32", "vocab257-fp32", "vocab257-fp16"],
)
def test_tokens_are_those_of_the_reference(vocab_size, num_rows, dtype, device):
    assert_drawn_from_what_is_kept(*make_case(num_rows, vocab_size, dtype, device))


@pytest.mark.parametrize(("vocab_size", "offset"), [(49152, 1), (128256, 5)])
def test_tokens_of_real_vocabularies_are_those_of_the_reference(vocab_size, offset, device):
    assert_drawn_from_what_is_kept(*make_case(1, vocab_size, torch.float16, device, offset))


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("vocab_size", [5, 257, 49152, 128256])
def test_every_kind_of_row_is_drawn_with_every_limit_as_the_reference_draws(
    vocab_size, dtype, device
):
    args, filters = make_case(7 * 11 * 4, vocab_size, dtype, device)
    assert_drawn_from_what_is_kept(args, filters)
    first = sample_rows(**args, filters=filters)
    assert all(torch.equal(sample_rows(**args, filters=filters), first) for _ in range(3))


@pytest.mark.parametrize("limits", [(600, 1.0, 0.0), (0, 0.7, 0.0), (4900, 0.5, 0.0)])
def test_more_tokens_near_a_limit_than_are_listed_are_counted_in_the_row(limits, device):
    """All 5,000 lie in the first bin."""
    args, _ = make_case(1, 5000, torch.float32, device, offset=KINDS.index("flat"))
    args["temperature"][:] = 1.0
    assert_drawn_from_what_is_kept(args, make_filters([limits], device))


def boundary_draws(scores, temperature, seed, kept, num_draws):
    """Draws that a token on the border decides: one kept, one that would win if it were kept."""
    seeds = torch.full((num_draws,), seed)
    noisy = scores / temperature + gumbel_reference(seeds, torch.arange(num_draws), len(scores))
    lightest = kept & (scores == scores[kept].min())
    winners = noisy.masked_fill(~kept, -math.inf).argmax(-1)
    draws = lightest[winners].nonzero()[:1, 0].tolist()
    if not bool(kept.all()):
        next_kept = scores >= scores[~kept].max()
        winners = noisy.masked_fill(~next_kept, -math.inf).argmax(-1)
        draws += (~kept)[winners].nonzero()[:1, 0].tolist()
    return draws


@pytest.mark.parametrize(
    ("kind", "vocab_size", "num_draws"),
    [("random", 257, 4000), ("tied", 257, 4000), ("random", 5000, 500)],
)
def test_the_last_token_that_is_kept_is_drawn_and_the_first_that_is_dropped_is_not(
    kind, vocab_size, num_draws, device
):
    temperature, seed = 5.0, 9
    scores = logits_of(kind, vocab_size, torch.Generator().manual_seed(vocab_size))
    draws, limits = [], []
    for limit in COMBINATIONS:
        filters = make_filters([limit])
        args = (scores[None], torch.tensor([temperature]))
        strict, kept, loose = (
            keep_reference(*args, loosened(filters, e))[0] for e in (-EPSILON, 0.0, EPSILON)
        )
        assert torch.equal(strict, kept) and torch.equal(loose, kept)
        found = boundary_draws(scores, temperature, seed, kept, num_draws)
        draws, limits = draws + found, limits + [limit] * len(found)
    assert len(draws) > len(COMBINATIONS)
    zeros = torch.zeros(len(draws), dtype=torch.int64)
    args = [
        scores.expand(len(draws), -1),
        torch.zeros(1, (vocab_size + 31) // 32, dtype=torch.int32),
    ]
    args += [zeros - 1, zeros[:0], zeros.bool(), zeros + temperature, zeros + seed]
    args = [value.to(device) for value in (*args, torch.tensor(draws))]
    filters = make_filters(limits, device)
    expected = sample_rows_reference(*args, filters)
    assert torch.equal(sample_rows_triton(*args, filters), expected)


def test_what_is_too_light_to_be_kept_still_weighs_in_what_top_p_is_a_share_of(device):
    """0.8 of 1 + 0.2 + 255 e^-8.2 is more than 1, so the second token is kept."""
    args, _ = make_case(40, 257, torch.float32, device)
    row = torch.full((257,), -8.2, device=device)
    row[:2] = torch.tensor([0.0, math.log(0.2)])
    args["logits"][:], args["temperature"][:] = row, 1.0
    args["mask_rows"][:], args["bans_stops"][:] = -1, False
    token_ids = sample_rows_triton(**args, filters=make_filters([(0, 0.8, 0.0)] * 40, device))
    assert set(token_ids.tolist()) == {0, 1}  # 40 draws miss one of them with (5 / 6)^40 < 1e-3


def test_rows_that_are_not_limited_do_not_see_that_others_are(device):
    args, filters = make_case(6, 2100, torch.float32, device)
    args["temperature"] = torch.tensor([0.0, 1.0, 0.7] * 2, device=device)
    plain = sample_rows_triton(**args)
    args["temperature"][0] = 0.0
    filters.top_k[[1, 4]], filters.top_p[[1, 4]], filters.min_p[[1, 4]] = 0, 1.0, 0.0
    filters.top_p[3] = 0.0  # as padded rows have it
    token_ids = sample_rows_triton(**args, filters=filters)
    unlimited = [0, 1, 3, 4]
    assert token_ids[unlimited].tolist() == plain[unlimited].tolist()


def test_equals_are_kept_or_dropped_together():
    scores = torch.tensor([[3.0, 2.0, 2.0, 2.0, 1.0, -math.inf]] * 5)
    weights = [1.0, math.exp(-1.0), math.exp(-2.0)]
    best_share = 1 / (1 + 3 * weights[1] + weights[2])
    limits = [(1, 1.0, 0.0), (2, 1.0, 0.0), (0, best_share * 0.99, 0.0)]
    limits += [(0, best_share * 1.01, 0.0), (0, 1.0, 0.3)]
    kept = keep_reference(scores, torch.ones(5), make_filters(limits)) & scores.isfinite()
    assert kept.sum(-1).tolist() == [1, 4, 1, 4, 4]


def assert_keeps_what_target_probs_keep(scores, temperature, limits):
    """Between what slightly stricter and slightly looser limits keep.

    The plain sampler compares float32 weights: those that it takes for equal it keeps together.
    """
    params = [
        SamplingParams(temperature=t, top_k=k, top_p=p, min_p=m)
        for t, (k, p, m) in zip(temperature, limits, strict=True)
    ]
    expected = compute_target_probs(scores, params) > 0
    t = torch.tensor(temperature)
    filters = make_filters(limits)
    z = (scores.amax(-1, keepdim=True) - scores) / t[:, None]
    strict, loose = (
        keep_reference(scores, t, loosened(filters, e)) & (z < 80) for e in (-EPSILON, EPSILON)
    )
    expected &= z < 80  # what is lighter is never drawn, kept or not
    weights = (-z).exp()
    loose = weights >= weights.masked_fill(~loose, 1.0).amin(-1, keepdim=True)
    assert bool((strict <= expected).all()) and bool((expected <= loose).all())


@settings(deadline=None)
@given(
    st.lists(st.integers(-80, 80), min_size=1, max_size=12),
    st.sampled_from([0.01, 0.3, 1.0, 7.0, 100.0]),
    st.integers(0, 14),
    st.sampled_from([0.001, 0.3, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.001, 0.2, 0.9, 1.0]),
)
def test_any_small_row_keeps_what_the_plain_sampler_keeps(eighths, temperature, k, p, m):
    scores = torch.tensor([eighths]) / 8
    assert_keeps_what_target_probs_keep(scores, [temperature], [(k, p, m)])


@pytest.mark.parametrize("vocab_size", [257, 49152, 128256])
def test_rows_of_every_kind_keep_what_the_plain_sampler_keeps(vocab_size):
    args, _ = make_case(11, vocab_size, torch.bfloat16, "cpu")
    scores = args["logits"].float()
    scores[4, ::2] = -math.inf
    temperature = [TEMPERATURES[i % 4] for i in range(11)]
    assert_keeps_what_target_probs_keep(scores, temperature, COMBINATIONS)


@pytest.mark.parametrize(
    "limits", [(3, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.2), (3, 0.9, 0.2)], ids=str
)
def test_draws_are_distributed_as_what_is_kept(limits, device):
    """Pearson's statistic of 2 degrees of freedom exceeds x with probability e^(-x/2)."""
    probs = torch.tensor([0.049, 0.3, 0.001, 0.5, 0.15], dtype=torch.float64)
    temperature, num_rows = 0.7, 30_000
    zeros = torch.zeros(num_rows, dtype=torch.int64, device=device)
    token_ids = sample_rows(
        (probs.log() * temperature).float().to(device).expand(num_rows, 5),
        torch.zeros(1, 1, dtype=torch.int32, device=device),
        zeros - 1,
        zeros[:0],
        zeros.bool(),
        torch.full_like(zeros, temperature, dtype=torch.float32),
        zeros + 77,
        torch.arange(num_rows, device=device),
        make_filters([limits] * num_rows, device),
    )
    counts = token_ids.cpu().bincount(minlength=5)
    kept = [1, 3, 4]
    assert counts[kept].sum() == num_rows
    expected = probs[kept] / probs[kept].sum() * num_rows
    x = float(((counts[kept] - expected) ** 2 / expected).sum())
    assert math.exp(-x / 2) > 1e-3


@pytest.mark.gpu
def test_a_cuda_graph_applies_the_limits_that_its_inputs_have_when_it_is_replayed(device):
    args, filters = make_case(33, 128256, torch.bfloat16, device)
    out = torch.zeros(33, dtype=torch.int64, device=device)
    sample_rows(**args, filters=filters, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sample_rows(**args, filters=filters, out=out)
    for turn in range(4):
        args["temperature"].copy_(args["temperature"].roll(1))
        filters.top_k.copy_(filters.top_k.roll(turn))
        filters.top_p.copy_(filters.top_p.roll(turn))
        graph.replay()
        possible = [
            sample_rows_reference(**args, filters=loosened(filters, epsilon))
            for epsilon in (-EPSILON, 0.0, EPSILON)
        ]
        assert bool((torch.stack(possible) == out).any(0).all())
