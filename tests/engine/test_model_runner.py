"""Laws of the model runner: which rows it gives, and that a row does not depend on its step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, ScheduledRequest, guessed
from structspec.engine.model_runner import ModelRunner
from structspec.models import LoadedModel, load_model
from structspec.models.linear import can_pack
from tests.engine.feeding import feed, make_request, run_step
from tests.models.reference import TINY_VOCAB_SIZE, save_tiny_model

IDS = torch.randint(TINY_VOCAB_SIZE, (90,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama")
    return load_model(folder)


@pytest.fixture
def runner(loaded: LoadedModel) -> ModelRunner:
    return ModelRunner(loaded, EngineConfig(num_blocks=30, block_size=8))


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Bit for bit where weights are packed, else nearly."""
    if can_pack(torch.empty(0)):
        return torch.equal(ours, theirs)
    return torch.allclose(ours, theirs, atol=1e-4)


@pytest.fixture
def alone(loaded: LoadedModel) -> torch.Tensor:
    """Logits of all positions of IDS, decoded one by one on a runner of their own."""
    runner = ModelRunner(loaded, EngineConfig(num_blocks=12, block_size=8))
    return feed(runner, make_request(IDS, range(12)), [1] * len(IDS))


@pytest.mark.parametrize(
    "sizes",
    [[90], [3] * 30, [2, 88], [16, 5, 8, 16, 45]],
    ids=["one-prefill", "threes", "two-then-rest", "spans"],
)
def test_a_row_has_the_same_bits_in_every_span(
    runner: ModelRunner, alone: torch.Tensor, sizes: list[int]
) -> None:
    assert same(feed(runner, make_request(IDS, range(20, 8, -1)), sizes), alone)


def test_a_row_has_the_same_bits_among_other_requests(
    runner: ModelRunner, alone: torch.Tensor
) -> None:
    long, middle = make_request(IDS, range(0, 12)), make_request(IDS[:60], range(12, 20))
    short = make_request(IDS[:9], range(20, 22))
    run_step(runner, (long, 30, 0), (middle, 1, 6))
    logits = run_step(runner, (short, 5, 1), (long, 1, 9), (middle, 2, 40))
    assert same(logits[0], alone[4:6])
    assert same(logits[1], alone[30:40])
    assert same(logits[2], alone[8:49])


def test_rejected_drafts_leave_no_trace(runner: ModelRunner, alone: torch.Tensor) -> None:
    request = make_request(IDS, range(12))
    run_step(runner, (request, 20, 0))
    wrong = [(token + 1) % TINY_VOCAB_SIZE for token in IDS[21:30]]
    runner.forward(Batch([ScheduledRequest(request, 1, len(wrong), True, 20)]), guessed([wrong]))
    request.num_computed_tokens += 1  # all rejected
    assert same(feed(runner, request, [4, 65]), alone[21:])


def test_rows_follow_the_batch_and_unsampled_requests_have_none(
    runner: ModelRunner, alone: torch.Tensor
) -> None:
    prefilling, sampled = make_request(IDS, range(0, 12)), make_request(IDS[:40], range(12, 20))
    batch = Batch(
        [
            ScheduledRequest(prefilling, 50, 0, is_sampled=False),
            ScheduledRequest(sampled, 40, 3, is_sampled=True),
        ]
    )
    logits = runner.forward(batch, guessed([[], IDS[40:42]]))
    assert logits.shape == (3, TINY_VOCAB_SIZE)
    assert same(logits, alone[39:42])


def test_a_step_without_a_sampled_request_has_no_rows(runner: ModelRunner) -> None:
    batch = Batch([ScheduledRequest(make_request(IDS, range(12)), 7, 0, is_sampled=False)])
    assert runner.forward(batch, guessed([[]])).shape == (0, TINY_VOCAB_SIZE)


def test_logits_may_be_changed_in_place(runner: ModelRunner) -> None:
    (logits,) = run_step(runner, (make_request(IDS, range(12)), 5, 0))
    logits.fill_(0.0)  # as samplers do; tensors of inference mode would refuse
