"""Runners-up of sample_rows: what a row would have given under a mask, known without the mask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.kernels.sample_rows import sample_rows, sample_rows_reference, sample_rows_triton
from structspec.kernels.sample_rows_filters import Filters
from tests.kernels.test_sample_rows import random_case, sample_all

BOTH = pytest.mark.parametrize(
    "sample", [sample_rows_reference, sample_rows_triton], ids=["reference", "triton"]
)
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]
SHAPES = [(0, 5), (1, 1), (3, 31), (5, 123), (4, 4097), (1, 128256)]
LONG = [(128, 49152), (640, 128256)]


def with_runners_up(sample, logits, num_runners_up, **options):
    """The tokens, and behind each its runners-up: [num_rows, 1 + num_runners_up]."""
    shape = (len(logits), num_runners_up)
    runners_up = torch.full(shape, 99, dtype=torch.int64, device=logits.device)
    named = {name: options.pop(name) for name in ("filters", "out") if name in options}

    def sample_both(*args, **rest):
        return sample(*args, **rest, **named, runners_up=runners_up)

    token_ids = sample_all(sample_both, logits, **options)
    return torch.cat([token_ids[:, None], runners_up], dim=1)


def words_of(is_allowed):
    """A bitmask [num_rows, num_words] of booleans [num_rows, vocab_size]."""
    padded = torch.nn.functional.pad(is_allowed.long(), (0, -is_allowed.shape[1] % 32))
    words = (padded.view(len(padded), -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("num_rows", "vocab_size"),
    [*SHAPES, *(pytest.param(*shape, marks=pytest.mark.gpu) for shape in LONG)],
    ids=[f"rows{rows}-vocab{vocab}" for rows, vocab in [*SHAPES, *LONG]],
)
def test_kernel_and_reference_find_the_same(num_rows, vocab_size, dtype, device):
    logits, options = random_case(num_rows, vocab_size, dtype, device)
    expected = with_runners_up(sample_rows_reference, logits, 3, **options)
    found = with_runners_up(sample_rows_triton, logits, 3, **options)
    assert torch.equal(found, expected)
    assert torch.equal(with_runners_up(sample_rows, logits, 3, **options), expected)
    assert torch.equal(found[:, 0], sample_all(sample_rows_triton, logits, **options))


@BOTH
@settings(max_examples=15, deadline=None)
@given(
    vocab_size=st.sampled_from([1, 2, 5, 32, 123, 257, 2049]),
    num_runners_up=st.sampled_from([1, 2, 3, 7]),
    num_levels=st.sampled_from([1, 2, 5, 10**6]),
    seed=st.integers(0, 2**32),
)
def test_the_first_allowed_of_token_and_runners_up_is_what_the_mask_gives(
    sample, vocab_size, num_runners_up, num_levels, seed
):
    """Greedy and drawn in turn, from few different logits or many, some of them infinite."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(seed)
    num_rows = 4

    def integers(end, *shape):
        return torch.randint(end, shape, generator=generator)

    logits = integers(num_levels, num_rows, vocab_size).float() / num_levels * 4
    odd = torch.tensor([float("inf"), float("-inf"), float("nan")])
    logits = torch.where(integers(6, *logits.shape) == 0, odd[integers(3, *logits.shape)], logits)
    logits = logits.to(device)
    options = {
        "temperature": torch.tensor([0.0, 1.0, 0.0, 0.5]),
        "seeds": integers(2**62, num_rows),
        "draws": integers(2**40, num_rows),
    }
    found = with_runners_up(sample, logits, num_runners_up, **options).cpu()
    rows = torch.arange(num_rows)
    for place in range(1 + num_runners_up):
        expected = found[:, place]
        is_allowed = integers(2, num_rows, vocab_size) == 1
        is_allowed[rows, expected.clamp(min=0)] = True
        for better in found[:, :place].T:
            is_allowed[rows, better] &= better < 0
        masked = sample_all(
            sample, logits, **options, bitmask=words_of(is_allowed), mask_rows=rows
        ).cpu()
        assert torch.equal(masked[expected >= 0], expected[expected >= 0])


@BOTH
def test_equal_scores_stand_in_the_order_of_their_ids_across_all_of_the_vocabulary(sample, device):
    logits = torch.zeros(2, 5000, device=device)
    logits[:, [4999, 70, 71, 2600]] = 1.0
    logits[1, 3000] = 2.0
    assert with_runners_up(sample, logits, 5).tolist() == [
        [70, 71, 2600, 4999, 0, 1],
        [3000, 70, 71, 2600, 4999, 0],
    ]


@BOTH
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_forbidden_or_no_number_is_no_runner_up(sample, temperature, device):
    nan, low = float("nan"), float("-inf")
    logits = torch.tensor([[0.0, 9.0, nan, low, 50.0, 30.0]] * 3, device=device)
    found = with_runners_up(
        sample,
        logits,
        3,
        bitmask=torch.tensor([[0b101111], [0]], dtype=torch.int32),
        mask_rows=torch.tensor([0, -1, 1]),
        stop_token_ids=torch.tensor([5]),
        bans_stops=torch.tensor([True, False, False]),
        temperature=torch.full((3,), temperature),
    )
    assert found.tolist() == [[1, 0, -1, -1], [4, 5, 1, 0], [0, -1, -1, -1]]


@BOTH
def test_rows_that_filters_limit_have_none_and_the_others_as_without_filters(sample, device):
    logits, options = random_case(8, 4097, torch.float32, device)
    options["temperature"] = torch.tensor([0.0, 1.0] * 4)
    without = with_runners_up(sample, logits, 3, **options)
    filters = Filters(
        torch.tensor([5, 0, 0, 5, 0, 0, 0, 0], dtype=torch.int32, device=device),
        torch.tensor([1, 1, 0.5, 1, 1, 0.5, 1, 1], device=device),
        torch.tensor([0, 0, 0, 0, 0.1, 0, 0, 0.1], device=device),
    )
    found = with_runners_up(sample, logits, 3, filters=filters, **options)
    is_limited = torch.tensor([False, False, False, True, False, True, False, True], device=device)
    assert torch.equal(found[~is_limited], without[~is_limited])
    assert (found[is_limited, 1:] == -1).all()
    plain = sample_all(
        lambda *args, **rest: sample(*args, **rest, filters=filters), logits, **options
    )
    assert torch.equal(found[:, 0], plain)


def test_the_wrapper_refuses_runners_up_of_another_shape():
    logits = torch.zeros(2, 5)
    with pytest.raises(AssertionError):
        sample_all(
            lambda *args, **rest: sample_rows(
                *args, **rest, runners_up=torch.zeros(3, 1, dtype=torch.int64)
            ),
            logits,
        )


@pytest.mark.gpu
def test_a_cuda_graph_finds_what_its_inputs_say_when_it_is_replayed(device):
    logits, options = random_case(33, 128256, torch.bfloat16, device)
    on_device = {name: value.to(device) for name, value in options.items()}
    out = torch.zeros(33, dtype=torch.int64, device=device)
    runners_up = torch.zeros(33, 3, dtype=torch.int64, device=device)
    sample_rows(logits, **on_device, out=out, runners_up=runners_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sample_rows(logits, **on_device, out=out, runners_up=runners_up)
    for _ in range(3):
        logits.copy_(logits.roll(1, 0))
        on_device["draws"] += 1
        graph.replay()
        expected = with_runners_up(sample_rows_reference, logits, 3, **on_device)
        assert torch.equal(torch.cat([out[:, None], runners_up], dim=1), expected)
