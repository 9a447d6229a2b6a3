"""The real model: logits equal transformers' however a text is cut into steps, and are exact."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.model_runner import ModelRunner
from structspec.models import LoadedModel, load_model
from structspec.models.linear import can_pack
from tests.engine.feeding import feed, make_request, run_step
from tests.models.reference import random_ids, reference_logits, reference_model

IDS = random_ids(100, 49152)
SCATTERED = [17, 3, 11, 0, 8, 5, 14]  # blocks of one request, in no order


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model("smollm2-135m")


@pytest.fixture(scope="module")
def expected() -> torch.Tensor:
    return reference_logits(reference_model(), IDS)


@pytest.mark.parametrize(
    "sizes",
    [[100], [40, 23, 37], [88] + [1] * 12, [60, 16, 16, 8]],
    ids=["prefill", "chunked-prefill", "prefill-then-decode", "verification"],
)
def test_every_position_is_within_a_thousandth_of_transformers(
    loaded: LoadedModel, expected: torch.Tensor, sizes: list[int]
) -> None:
    runner = ModelRunner(loaded, EngineConfig(num_blocks=18))
    logits = feed(runner, make_request(IDS, SCATTERED), sizes)
    assert (logits - expected).abs().max() <= 1e-3


def test_two_requests_in_a_batch_do_not_meet(loaded: LoadedModel, expected: torch.Tensor) -> None:
    runner = ModelRunner(loaded, EngineConfig(num_blocks=26, block_size=8))
    first = make_request(IDS, range(0, 26, 2))
    second = make_request(IDS[:70], range(1, 19, 2))
    run_step(runner, (first, 90, 0), (second, 33, 0))
    ours = run_step(runner, (first, 1, 9), (second, 1, 30))
    assert (ours[0] - expected[90:]).abs().max() <= 1e-3
    assert (ours[1] - expected[33:64]).abs().max() <= 1e-3


@pytest.mark.skipif(not can_pack(torch.empty(0)), reason="this CPU cannot pack weights")
def test_a_row_has_the_same_bits_alone_batched_and_verified(loaded: LoadedModel) -> None:
    ids = IDS[:40]
    runner = ModelRunner(loaded, EngineConfig(num_blocks=16))
    alone = feed(runner, make_request(ids, range(4)), [1] * 40)
    other, verified = make_request(ids, range(4, 8)), make_request(ids, range(15, 11, -1))
    run_step(runner, (other, 20, 0))
    run_step(runner, (verified, 22, 0), (other, 1, 3))
    logits = run_step(runner, (other, 1, 0), (verified, 1, 15))
    assert torch.equal(logits[0], alone[24:25])
    assert torch.equal(logits[1], alone[22:38])
    assert torch.equal(feed(runner, make_request(ids, range(4)), [40]), alone)


def test_a_chat_is_answered(loaded: LoadedModel) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    request = make_request(loaded.tokenizer.encode_chat(messages), range(8))
    runner = ModelRunner(loaded, EngineConfig(num_blocks=8))
    while not request.num_output_tokens or (
        request.token_ids[-1] not in loaded.tokenizer.stop_token_ids
    ):
        num_new = len(request.token_ids) - request.num_computed_tokens
        (logits,) = run_step(runner, (request, num_new, 0))
        request.token_ids.append(int(logits[0].argmax()))
    text = loaded.tokenizer.decode(request.output_token_ids)
    assert text == "The capital of France is Paris."


LOAD_AND_STEP = """
from pathlib import Path
from structspec.config import EngineConfig
from structspec.engine.model_runner import ModelRunner
from structspec.models import load_model
from tests.engine.feeding import make_request, run_step
runner = ModelRunner(load_model("smollm2-135m"), EngineConfig())
run_step(runner, (make_request(range(100, 200), range(7)), 100, 0))
print(Path("/proc/self/status").read_text())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux")
def test_loading_takes_at_most_one_and_a_half_gibibytes() -> None:
    start = time.perf_counter()
    command = [sys.executable, "-c", LOAD_AND_STEP]
    status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(f"{int(peak) / 1024:.0f} MiB, {time.perf_counter() - start:.1f} s, imports included")
    assert int(peak) <= 1.5 * 1024**2  # KiB
