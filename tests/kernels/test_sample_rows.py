"""sample_rows: argmax and draws against their formulas, and rows that hang on nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from structspec.kernels.philox import gumbel_reference, philox_reference
from structspec.kernels.sample_rows import sample_rows, sample_rows_reference, sample_rows_triton

BOTH = pytest.mark.parametrize(
    "sample", [sample_rows_reference, sample_rows_triton], ids=["reference", "triton"]
)
SHAPES = [(0, 5), (1, 1), (3, 31), (5, 123), (4, 4097), (2, 128256)]
LONG = [(64, 128256), (640, 49152)]
NOWHERE = torch.iinfo(torch.int32).min  # a bitmask word that allows its last token alone


def sample_all(sample, logits, **given):
    """Rows as they are where nothing is said: greedy, unmasked, without stop tokens."""
    num_rows, vocab_size = logits.shape
    device = logits.device
    zeros = torch.zeros(num_rows, dtype=torch.int64, device=device)
    values = {
        "bitmask": torch.zeros(1, (vocab_size + 31) // 32, dtype=torch.int32),
        "mask_rows": zeros - 1,
        "stop_token_ids": zeros[:0],
        "bans_stops": zeros.bool(),
        "temperature": zeros.float(),
        "seeds": zeros,
        "draws": zeros,
    }
    assert values.keys() >= given.keys()
    return sample(logits, **{name: value.to(device) for name, value in (values | given).items()})


def random_case(num_rows, vocab_size, dtype, device):
    """Every kind of row in turn: greedy and drawn, masked and not, with and without stop tokens."""
    generator = torch.Generator().manual_seed(vocab_size)
    row = torch.arange(num_rows)
    logits = torch.randn(num_rows, vocab_size, generator=generator).mul(3).to(device, dtype)
    words = (3, (vocab_size + 31) // 32)
    given = {
        "bitmask": torch.randint(-(2**31), 2**31, words, generator=generator).to(torch.int32),
        "mask_rows": row % 5 - 2,
        "stop_token_ids": torch.tensor([0, vocab_size // 2]),
        "bans_stops": row % 3 == 0,
        "temperature": torch.tensor([0.0, 1.0, 0.3, 20.0])[row % 4],
        "seeds": torch.randint(-(2**63), 2**63 - 1, (num_rows,), generator=generator),
        "draws": row * 2**31 + 7,
    }
    given["mask_rows"][given["mask_rows"] < 0] = -1
    return logits, given


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],  # the digits of pi
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_the_known_answers_of_its_authors(counter, key, expected):
    words = philox_reference(*([torch.tensor(word) for word in words] for words in (counter, key)))
    assert [int(word) for word in words] == expected


def test_gumbel_noise_is_finite_and_differs_by_seed_by_draw_and_by_token():
    seeds, draws = torch.tensor([0, 1, 2**32, 0, 0]), torch.tensor([0, 0, 0, 1, 2**32])
    noise = gumbel_reference(seeds, draws, 1000)
    assert bool(noise.isfinite().all())
    assert noise.flatten().unique().numel() > 4990  # float32 has few equal ones among 5,000


DTYPES = [torch.float32, torch.float16]
ON_GPU = [pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]  # the interpreter cannot


@pytest.mark.parametrize("dtype", DTYPES + ON_GPU, ids=["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("num_rows", "vocab_size"),
    [*SHAPES, *(pytest.param(*shape, marks=pytest.mark.gpu) for shape in LONG)],
    ids=[f"rows{rows}-vocab{vocab}" for rows, vocab in [*SHAPES, *LONG]],
)
def test_kernel_and_reference_choose_the_same_tokens(num_rows, vocab_size, dtype, device):
    logits, given = random_case(num_rows, vocab_size, dtype, device)
    expected = sample_all(sample_rows_reference, logits, **given)
    assert torch.equal(sample_all(sample_rows_triton, logits, **given), expected)
    assert torch.equal(sample_all(sample_rows, logits, **given), expected)


@BOTH
def test_of_equal_maxima_the_first_allowed_one_is_chosen(sample, device):
    logits = torch.zeros(3, 5000, device=device)
    logits[:, [70, 2600, 4999]] = 1.0
    bitmask = torch.full((2, 157), -1, dtype=torch.int32)
    bitmask[0, 70 // 32] = 0
    bitmask[1, : 4992 // 32] = 0
    rows = sample_all(sample, logits, bitmask=bitmask, mask_rows=torch.tensor([-1, 0, 1]))
    assert rows.tolist() == [70, 2600, 4999]


@BOTH
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_allows_one_token_gives_it_and_one_that_allows_none_stays_in_range(
    sample, temperature, device
):
    logits = torch.randn(4, 40, generator=torch.Generator().manual_seed(0)).to(device)
    logits[2] = float("nan")
    logits[3] = float("-inf")
    bitmask = torch.tensor([[NOWHERE, 0], [0, 0]], dtype=torch.int32)
    token_ids = sample_all(
        sample,
        logits,
        bitmask=bitmask,
        mask_rows=torch.tensor([0, 1, -1, -1]),
        temperature=torch.full((4,), temperature),
    )
    assert token_ids.tolist() == [31, 0, 0, 0]


@BOTH
def test_nan_never_wins_over_a_number(sample, device):
    logits = torch.tensor([[0.0, float("nan"), 2.0]] * 2, device=device)
    assert sample_all(sample, logits, temperature=torch.tensor([0.0, 0.01])).tolist() == [2, 2]


@BOTH
def test_stop_tokens_are_banned_only_where_that_is_said(sample, device):
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]] * 2, device=device)
    token_ids = sample_all(
        sample,
        logits,
        stop_token_ids=torch.tensor([0, 1]),
        bans_stops=torch.tensor([True, False]),
    )
    assert token_ids.tolist() == [2, 0]


@BOTH
def test_a_drawn_token_hangs_on_its_seed_and_draw_and_not_on_its_place(sample, device):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(1, 3000, generator=generator).expand(6, -1).to(device)
    order = torch.tensor([5, 3, 0, 1, 4, 2])
    given = {
        "temperature": torch.full((6,), 5.0),
        "seeds": torch.tensor([1, 1, 2, 2, 1, 3]),
        "draws": torch.tensor([0, 1, 0, 1, 0, 0]),
    }
    token_ids = sample_all(sample, logits, **given)
    assert token_ids[0] == token_ids[4] and len(token_ids.unique()) == 5
    moved = {name: value[order] for name, value in given.items()}
    assert torch.equal(sample_all(sample, logits, **moved), token_ids[order.to(device)])


@BOTH
def test_rows_of_a_wider_buffer_are_read_in_place_and_written_where_it_is_wanted(sample, device):
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)).to(device)
    buffer = torch.full((3, 64), 100.0, device=device)
    buffer[:, :50] = logits
    assert sample_all(sample, buffer[:, :50]).tolist() == logits.argmax(-1).tolist()
    out = torch.zeros(3, dtype=torch.int64, device=device)
    given = sample_all(lambda *args, **rest: sample_rows(*args, **rest, out=out), logits)
    assert given is out and torch.equal(out, logits.argmax(-1))


def test_draws_are_distributed_as_the_softmax_says(device):
    """Pearson's statistic of 4 degrees of freedom exceeds x with probability e^(-x/2) (1 + x/2)."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.049, 0.001], dtype=torch.float64)
    temperature, num_rows = 0.7, 200_000
    logits = (probs.log() * temperature).float().expand(num_rows, 5).to(device)
    token_ids = sample_all(
        sample_rows,
        logits,
        temperature=torch.full((num_rows,), temperature),
        seeds=torch.full((num_rows,), 1234),
        draws=torch.arange(num_rows),
    )
    expected = probs * num_rows
    counts = token_ids.cpu().bincount(minlength=5)
    x = float(((counts - expected) ** 2 / expected).sum())
    assert math.exp(-x / 2) * (1 + x / 2) > 1e-3


@pytest.mark.gpu
def test_a_cuda_graph_samples_what_its_inputs_say_when_it_is_replayed(device):
    logits, given = random_case(33, 128256, torch.bfloat16, device)
    on_device = {name: value.to(device) for name, value in given.items()}
    out = torch.zeros(33, dtype=torch.int64, device=device)
    sample_rows(logits, **on_device, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sample_rows(logits, **on_device, out=out)
    for _ in range(3):
        logits.copy_(logits.roll(1, 0))
        on_device["draws"] += 1
        graph.replay()
        assert torch.equal(out, sample_rows_reference(logits, **on_device))
