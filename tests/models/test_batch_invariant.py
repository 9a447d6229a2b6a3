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
NUM_TOKENS = 700  # attention deals out its keys to several programs, and more than once each
IDS = torch.randint(1000, (NUM_TOKENS,), generator=torch.Generator().manual_seed(0)).tolist()
HERE, THERE, OTHERS = range(0, 44), range(50, 94), range(100, 144)  # blocks of requests
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
    return ModelRunner(loaded, EngineConfig(num_blocks=150))


@DTYPES
@pytest.mark.parametrize(
    "sizes",
    [[500] + [1] * 60 + [140], [7, 1, 64, 1, 16, 63, 248, 300], [130, 1, 2, 3, 64, 500]],
    ids=["decode", "spans-and-chunks", "prompt-then-spans"],
)
def test_in_whatever_steps_a_request_is_computed(sizes, device, dtype):
    runner = make_runner(device, dtype)
    whole = feed(runner, make_request(IDS, HERE), [NUM_TOKENS])
    assert torch.equal(feed(runner, make_request(IDS, THERE), sizes), whole)


@DTYPES
def test_beside_whatever_other_requests(device, dtype):
    runner = make_runner(device, dtype)
    alone = feed(runner, make_request(IDS, HERE), [NUM_TOKENS])
    request = make_request(IDS, THERE)
    rows = []
    for index, size in enumerate([1, 1, 90, 8, 400, 136, 64]):
        shares = [(request, 1, size - 1)]
        place = index // 2 % 2 if index % 2 else 0
        if index % 2:  # another request before it or behind it
            shares.insert(1 - place, (make_request(IDS, OTHERS), 50 + 160 * (index % 3), 2))
        rows.append(run_step(runner, *shares)[place])
    assert torch.equal(torch.cat(rows), alone)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_invariant_logits_are_near_the_usual_ones(dtype):
    usual, invariant = (
        feed(
            make_runner("cuda", dtype, is_batch_invariant=is_invariant),
            make_request(IDS, HERE),
            [500, 1, 5, 194],
        )
        for is_invariant in (False, True)
    )
    assert (usual - invariant).abs().max() <= 0.1 * usual.std()
