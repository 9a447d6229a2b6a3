"""sample: the inverse CDF, enumerated, and the kernel against its reference."""

import pytest
import torch

from structspec.kernels.sample import sample, sample_reference, sample_triton

SHAPES = [(0, 5), (1, 1), (5, 123), (3, 4097), (2, 128256), (1, 152064)]
BOTH = pytest.mark.parametrize(
    "draw", [sample_reference, sample_triton], ids=["reference", "triton"]
)


def uniforms(*values, device):
    return torch.tensor(values, dtype=torch.float64, device=device)


@BOTH
def test_over_a_grid_of_uniforms_each_token_comes_as_often_as_its_probability_says(draw, device):
    probs = torch.tensor([0.25, 0.0, 0.5, 0.125, 0.125], device=device)
    grid = (torch.arange(8, dtype=torch.float64, device=device) + 0.5) / 8
    token_ids = draw(probs.expand(8, 5).contiguous(), grid)
    assert token_ids.tolist() == [0, 0, 2, 2, 2, 2, 3, 4]


@BOTH
def test_a_uniform_on_a_boundary_belongs_to_the_next_token(draw, device):
    probs = torch.tensor([[0.25, 0.0, 0.75]] * 3, device=device)
    assert draw(probs, uniforms(0.0, 0.25, 0.9999, device=device)).tolist() == [0, 2, 2]


@BOTH
def test_a_token_of_probability_zero_never_comes(draw, device):
    probs = torch.tensor([[0.0, 0.7, 0.3, 0.0]] * 2, device=device)
    almost_one = 1 - 2.0**-53
    assert draw(probs, uniforms(0.0, almost_one, device=device)).tolist() == [1, 2]


@BOTH
def test_rounding_at_the_end_of_the_sum_falls_on_the_last_possible_token(draw, device):
    probs = torch.tensor([[1.0, 1e-30, 0.0]], device=device)  # the sum is 1, as without token 1
    assert draw(probs, uniforms(1 - 2.0**-53, device=device)).item() in (0, 1)
    assert draw(probs, uniforms(1.0, device=device)).item() in (0, 1)  # not even here


@BOTH
def test_a_row_of_nan_gives_some_token_and_leaves_its_neighbours_alone(draw, device):
    probs = torch.tensor([[float("nan")] * 3, [0.0, 1.0, 0.0]], device=device)
    first, second = draw(probs, uniforms(0.5, 0.5, device=device)).tolist()
    assert 0 <= first < 3
    assert second == 1


@pytest.mark.parametrize(
    ("num_rows", "vocab_size"), SHAPES, ids=[f"rows{r}-vocab{v}-f32" for r, v in SHAPES]
)
def test_kernel_and_reference_draw_the_same_tokens(num_rows, vocab_size, device):
    generator = torch.Generator().manual_seed(vocab_size)
    probs = torch.randn(num_rows, vocab_size, generator=generator).mul(3).softmax(-1).to(device)
    uniform = torch.rand(num_rows, dtype=torch.float64, generator=generator).to(device)
    expected = sample_reference(probs, uniform)
    assert torch.equal(sample_triton(probs, uniform), expected)
    assert torch.equal(sample(probs, uniform), expected)
