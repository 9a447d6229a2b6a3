"""A token's logits have the same bits in every step: on a CPU in float32, on a GPU if asked."""

from __future__ import annotations

import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.model_runner import ModelRunner
from structspec.models.config import LlamaConfig, RopeConfig
from structspec.models.dummy import DummyWeights
from structspec.models.llama import Llama
from structspec.models.loading import GenerationDefaults, LoadedModel
from tests.engine.feeding import feed, make_request, run_step

CONFIG = LlamaConfig(
    architecture="qwen2",  # has biases
    vocab_size=1000,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=64,
    max_model_len=1024,
    hidden_size=384,
    intermediate_size=1000,
    rms_norm_eps=1e-5,
    rope=RopeConfig(),
    is_embedding_tied=False,
)
IDS = torch.randint(1000, (200,), generator=torch.Generator().manual_seed(0)).tolist()
GPU = pytest.mark.gpu
DTYPES = pytest.mark.parametrize(
    ("device", "dtype"),
    [
        pytest.param("cpu", torch.float32, id="cpu-fp32"),
        pytest.param("cuda", torch.bfloat16, marks=GPU, id="gpu-bf16"),
        pytest.param("cuda", torch.float16, marks=GPU, id="gpu-fp16"),
        pytest.param("cuda", torch.float32, marks=GPU, id="gpu-fp32"),
    ],
)


def make_runner(device: str, dtype: torch.dtype, *, is_batch_invariant: bool = True) -> ModelRunner:
    target = torch.device(device)
    weights = DummyWeights(CONFIG, dtype, target)
    network = Llama(CONFIG, weights, dtype, target, is_batch_invariant=is_batch_invariant)
    loaded = LoadedModel("toy", CONFIG, network, None, GenerationDefaults())
    return ModelRunner(loaded, EngineConfig(num_blocks=64))


@DTYPES
@pytest.mark.parametrize(
    "sizes",
    [[1] * 200, [7, 1, 64, 1, 16, 63, 48], [130, 1, 2, 3, 64]],
    ids=["decode", "spans-and-chunks", "prompt-then-spans"],
)
def test_in_whatever_steps_a_request_is_computed(sizes, device, dtype):
    runner = make_runner(device, dtype)
    whole = feed(runner, make_request(IDS, range(13)), [200])
    assert torch.equal(feed(runner, make_request(IDS, range(20, 33)), sizes), whole)


@DTYPES
def test_beside_whatever_other_requests(device, dtype):
    runner = make_runner(device, dtype)
    alone = feed(runner, make_request(IDS, range(13)), [200])
    request = make_request(IDS, range(20, 33))
    rows = []
    for index, size in enumerate([1, 1, 90, 8, 1, 35, 64]):
        others = [
            make_request(IDS[other:], range(40 + 13 * other, 53 + 13 * other))
            for other in range(index % 2)
        ]
        shares = [(other, 50 + 60 * (index % 3), 2) for other in others]
        place = index % (len(shares) + 1)
        shares.insert(place, (request, 1, size - 1))
        rows.append(run_step(runner, *shares)[place])
    assert torch.equal(torch.cat(rows), alone)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_invariant_logits_are_near_the_usual_ones(dtype):
    request_sizes = [130, 1, 5, 64]
    usual, invariant = (
        feed(
            make_runner("cuda", dtype, is_batch_invariant=is_invariant),
            make_request(IDS, range(13)),
            request_sizes,
        )
        for is_invariant in (False, True)
    )
    assert (usual - invariant).abs().max() <= 0.05 * usual.std()
