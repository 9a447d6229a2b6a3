"""edit_logits: the kernel and its reference against the loop of the docstring."""

import pytest
import torch

from structspec.kernels.edit_logits import (
    edit_logits,
    edit_logits_reference,
    edit_logits_triton,
)

# Rounding: a product, a quotient and two sums of numbers below 40.
DTYPES = {"f32": (torch.float32, 2e-5), "f16": (torch.float16, 0.04), "bf16": (torch.bfloat16, 0.3)}
SHAPES = [(1, 1, 1), (3, 31, 7), (5, 123, 600), (2, 4097, 0), (3, 128256, 1025)]
CASES = [
    pytest.param(*shape, *dtype, id=f"rows{shape[0]}-vocab{shape[1]}-edits{shape[2]}-{name}")
    for shape in SHAPES
    for name, dtype in DTYPES.items()
]
BOTH = pytest.mark.parametrize(
    "edit", [edit_logits_reference, edit_logits_triton], ids=["reference", "triton"]
)


def random_edits(num_rows, vocab_size, num_edits, device):
    """Places that differ, and something to do at each."""
    generator = torch.Generator().manual_seed(vocab_size)
    places = torch.randperm(num_rows * vocab_size, generator=generator)[:num_edits]
    size = len(places)
    bias = torch.randn(size, generator=generator) * (torch.arange(size) % 3 == 0)
    repetition = torch.where(torch.arange(size) % 2 == 0, 1.0, 1.3)
    penalty = torch.randint(-2, 3, (size,), generator=generator).float()
    rows, token_ids = (places // vocab_size).int(), (places % vocab_size).int()
    return [each.to(device) for each in (rows, token_ids, bias, repetition, penalty)]


@BOTH
@pytest.mark.parametrize(("num_rows", "vocab_size", "num_edits", "dtype", "tolerance"), CASES)
def test_named_places_are_edited_and_no_others(
    edit, num_rows, vocab_size, num_edits, dtype, tolerance, device
):
    if dtype is torch.bfloat16 and edit is edit_logits_triton and device.type == "cpu":
        pytest.skip("the interpreter's bfloat16 is no bfloat16")
    logits = torch.randn(num_rows, vocab_size, device=device).to(dtype) * 5
    edits = random_edits(num_rows, vocab_size, num_edits, device)
    expected = logits.tolist()
    for row, token_id, bias, repetition, penalty in zip(
        *(each.tolist() for each in edits), strict=True
    ):
        x = expected[row][token_id] + bias
        expected[row][token_id] = (x / repetition if x > 0 else x * repetition) - penalty
    before = logits.clone()
    edit(logits, *edits)
    assert torch.allclose(logits.cpu().float(), torch.tensor(expected), atol=tolerance)
    is_named = torch.zeros_like(logits, dtype=torch.bool)
    is_named[edits[0], edits[1]] = True
    assert torch.equal(logits[~is_named], before[~is_named])


@BOTH
def test_infinite_logits_stay_what_they_are_and_rows_of_a_wider_buffer_are_edited_in_place(
    edit, device
):
    buffer = torch.zeros(2, 9, device=device)
    buffer[1, :3] = torch.tensor([float("inf"), float("-inf"), 2.0])
    edits = [torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([1, 1, 1], [0, 1, 2])]
    edits += [torch.tensor([each] * 3, device=device) for each in (2.0, 2.0, 0.5)]
    edit(buffer[:, :5], *edits)
    assert buffer[1].tolist() == [float("inf"), float("-inf"), 1.5, *[0.0] * 6]
    assert not buffer[0].any()


def test_the_wrapper_refuses_columns_of_different_lengths():
    ids, values = torch.zeros(2, dtype=torch.int32), torch.ones(1)
    with pytest.raises(AssertionError):
        edit_logits(torch.zeros(1, 4), ids, ids, values, values, values)
