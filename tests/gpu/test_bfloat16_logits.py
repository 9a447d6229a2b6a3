"""In bfloat16 our logits are about as near to exact ones as those of transformers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft
from structspec.engine.build import _device_parts
from structspec.engine.device_runner import DeviceRunner
from structspec.models import LoadedModel, load_model
from tests.engine.feeding import feed, make_request
from tests.gpu.mixed_requests import DEVICE, IS_REHEARSAL, MODEL
from tests.lossless_pairs import TEXTS

# The versions of transformers are many, and some warn of what they do themselves.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
NUM_TOKENS = 120
SCATTERED = [5, 2, 9, 0, 11, 7, 14, 3]  # blocks of one request, in no order
STEPS = {
    "prefill": [NUM_TOKENS],
    "prefill-then-decode": [40] + [1] * 80,
    "chunks-and-verification": [50, 1, 16, 5, 8, 1, 3, 36],
}
MAX_RATIO = 1.5  # of our distance to float32's logits, root mean square, to transformers'
MAX_RATIO_OF_WORST = 2.0  # of the largest distances


class Logits(NamedTuple):
    """Of one text, [NUM_TOKENS, vocab_size] each, on the CPU."""

    exact: torch.Tensor  # transformers', in float32
    theirs: torch.Tensor  # transformers', in bfloat16
    ours: dict[str, torch.Tensor]  # by the steps that they were computed in


@pytest.fixture(scope="module", params=["tiny", MODEL])
def logits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Logits:
    reference, folder = make_reference(request.param, tmp_path_factory.mktemp("model"))
    loaded = load_model(folder, dtype=torch.bfloat16, device=DEVICE)
    token_ids = loaded.tokenizer.encode_chat([{"role": "user", "content": " ".join(TEXTS * 4)}])
    token_ids = token_ids[:NUM_TOKENS]
    with ThreadPoolExecutor(1) as thread:  # which has streams of its own, as an engine's has
        ours = thread.submit(our_logits, loaded, token_ids).result()
    exact = reference_logits(reference.to(DEVICE), token_ids)
    return Logits(exact, reference_logits(in_bfloat16(reference), token_ids), ours)


def make_reference(name: str, folder: Path) -> tuple[Any, str | Path]:
    """A float32 model in transformers, and where its weights are to be loaded from."""
    from tests.models.reference import reference_model, save_tiny_model

    if name == MODEL:
        return reference_model(), name
    shape = {"hidden_size": 128, "intermediate_size": 224, "num_attention_heads": 4}
    return save_tiny_model(folder, "llama", **shape), folder


def in_bfloat16(model: Any) -> Any:
    """The angles of its positions stay in float32, as transformers keeps them on loading."""
    half = copy.deepcopy(model).to(torch.bfloat16)
    half.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.clone()
    return half


@torch.no_grad()
def reference_logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    result: torch.Tensor = model(torch.tensor([token_ids], device=DEVICE)).logits[0]
    return result.float().cpu()


def our_logits(loaded: LoadedModel, token_ids: list[int]) -> dict[str, torch.Tensor]:
    config = EngineConfig(
        num_blocks=16,
        max_num_requests=8,
        max_num_batched_tokens=128,
        max_num_draft_tokens=120,
        enforce_eager=IS_REHEARSAL,
    )
    runner = _device_parts(loaded, config.resolved("cuda")).runner
    assert isinstance(runner, DeviceRunner)
    return {
        name: feed(_OwnRows(runner), make_request(token_ids, SCATTERED), sizes)  # type: ignore[arg-type]
        for name, sizes in STEPS.items()
    }


class _OwnRows:
    """A runner without the rows that pad a step to its size."""

    def __init__(self, runner: DeviceRunner) -> None:
        self._runner = runner

    def forward(self, batch: Batch, draft: Draft) -> torch.Tensor:
        num_rows = sum(1 + len(guesses) for guesses in draft.guesses)
        return self._runner.head(self._runner.forward(batch, draft))[:num_rows].float().cpu()


def root_mean_square(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


@pytest.mark.parametrize("steps", list(STEPS))
def test_the_distance_to_float32_is_at_most_one_and_a_half_times_that_of_transformers(
    steps: str, logits: Logits
) -> None:
    ours, theirs = logits.ours[steps] - logits.exact, logits.theirs - logits.exact
    distances: Sequence[float] = (
        root_mean_square(ours),
        root_mean_square(theirs),
        float(ours.abs().max()),
        float(theirs.abs().max()),
    )
    print(f"{steps}: root mean square %.4f, theirs %.4f; worst %.3f, theirs %.3f" % distances)
    assert distances[0] <= MAX_RATIO * distances[1]
    assert distances[2] <= MAX_RATIO_OF_WORST * distances[3]
    assert 0 < root_mean_square(theirs) < 0.1 * root_mean_square(logits.exact)
