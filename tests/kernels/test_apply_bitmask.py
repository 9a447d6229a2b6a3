"""apply_bitmask: the kernel and its reference against the loop of the docstring."""

import pytest
import torch

from structspec.kernels.apply_bitmask import (
    apply_bitmask,
    apply_bitmask_reference,
    apply_bitmask_triton,
)

SHAPES = [(1, 1), (3, 31), (5, 123), (2, 4097), (2, 128256), (1, 152064)]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CASES = [
    pytest.param(rows, vocab, dtype, id=f"rows{rows}-vocab{vocab}-{name}")
    for rows, vocab in SHAPES
    for name, dtype in DTYPES.items()
]
BOTH = pytest.mark.parametrize(
    "apply", [apply_bitmask_reference, apply_bitmask_triton], ids=["reference", "triton"]
)


def random_bitmask(num_rows, vocab_size, device):
    generator = torch.Generator().manual_seed(vocab_size)
    words = torch.randint(-(2**31), 2**31, (num_rows, (vocab_size + 31) // 32), generator=generator)
    return words.to(torch.int32).to(device)


def unpack(bitmask, vocab_size):
    """[num_rows, vocab_size] bool, straight from the definition."""
    v = torch.arange(vocab_size, device=bitmask.device)
    return (bitmask[:, v // 32] >> (v % 32)) & 1 == 1


@BOTH
@pytest.mark.parametrize(("num_rows", "vocab_size", "dtype"), CASES)
def test_exactly_the_tokens_without_a_bit_become_minus_infinity(
    apply, num_rows, vocab_size, dtype, device
):
    logits = torch.randn(num_rows, vocab_size, device=device).to(dtype)
    bitmask = random_bitmask(num_rows, vocab_size, device)
    expected = logits.masked_fill(~unpack(bitmask, vocab_size), float("-inf"))
    apply(logits, bitmask, torch.arange(num_rows, device=device))
    assert torch.equal(logits, expected)


@BOTH
def test_rows_may_come_in_any_order_and_others_are_left_alone(apply, device):
    logits = torch.randn(6, 70, device=device)
    before = logits.clone()
    bitmask = random_bitmask(3, 70, device)
    rows = torch.tensor([4, 0, 3], device=device)
    apply(logits, bitmask, rows)
    allowed = unpack(bitmask, 70)
    for j, row in enumerate(rows.tolist()):
        assert torch.equal(logits[row], before[row].masked_fill(~allowed[j], float("-inf")))
    for row in (1, 2, 5):
        assert torch.equal(logits[row], before[row])


@BOTH
def test_no_masked_row_changes_nothing(apply, device):
    logits = torch.randn(2, 40, device=device)
    before = logits.clone()
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    apply(logits, torch.empty(0, 2, dtype=torch.int32, device=device), nothing)
    assert torch.equal(logits, before)


@BOTH
def test_rows_of_a_wider_buffer_are_masked_in_place(apply, device):
    buffer = torch.zeros(3, 100, device=device)
    view = buffer[:, :50]
    apply(view, torch.zeros(3, 2, dtype=torch.int32, device=device), torch.arange(3, device=device))
    assert bool((buffer[:, :50] == float("-inf")).all())
    assert bool((buffer[:, 50:] == 0).all())


def test_the_wrapper_refuses_a_bitmask_of_another_vocabulary():
    with pytest.raises(AssertionError):
        apply_bitmask(torch.zeros(1, 64), torch.zeros(1, 3, dtype=torch.int32), torch.tensor([0]))


@BOTH
def test_infinite_logits_do_not_leak_through(apply, device):
    logits = torch.tensor([[float("inf"), float("-inf"), 1.0]], device=device)
    apply(
        logits,
        torch.tensor([[0b110]], dtype=torch.int32, device=device),
        torch.tensor([0], device=device),
    )
    assert logits.tolist() == [[float("-inf"), float("-inf"), 1.0]]
