"""What is timed of a step, which steps count, and that an engine is left as it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from structspec.bench.engine_insides import engine_of
from structspec.bench.engine_prefill import count_operations
from structspec.bench.engine_runs import run_jobs
from structspec.bench.engine_steps import JunkDrafter, summarize
from structspec.bench.engine_stopwatch import Step, Stopwatch
from structspec.config import EngineConfig
from structspec.engine import build
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.models import load_model
from structspec.models.llama import LlamaConfig
from structspec.request import Request, SamplingParams
from structspec.service import Service
from tests.models.reference import save_tiny_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama", max_position_embeddings=512)
    return folder


@pytest.fixture(scope="module")
def service(model: Path) -> Iterator[Service]:
    service = Service(model, config=EngineConfig(num_blocks=100))
    yield service
    service.close()


def test_every_step_is_timed_and_the_engine_is_left_as_it_was(service: Service) -> None:
    job = ("Hello", {"max_tokens": 5, "temperature": 0.0, "regex": "[a-z]{20}"})
    engine = engine_of(service)
    parts = (engine, engine.scheduler, engine._drafter, engine._runner, engine._masker)
    before = [set(vars(part)) for part in parts], engine._sampler
    plain = run_jobs(service, [job])
    with Stopwatch(engine, CPU) as stopwatch:
        timed = run_jobs(service, [job])
    assert ([set(vars(part)) for part in parts], engine._sampler) == before
    assert timed.requests[0].output_token_ids == plain.requests[0].output_token_ids
    writing = [step for step in stopwatch.steps if not step.has_prompts]
    assert len(writing) >= 4
    for step in writing:
        assert all(step.seconds[part] > 0 for part in ("schedule", "launch", "masks", "update"))
    assert [step.has_finished for step in stopwatch.steps].count(True) == 1


def test_steps_between_the_last_prompt_and_the_first_end_count() -> None:
    def step(began: float, **facts: bool) -> Step:
        return Step(began, num_requests=2, **facts)

    steps = [
        step(0.0, has_prompts=True),
        step(50.0, has_prompts=True),
        step(90.0),  # waits for the prompt
        *[step(100.0 + i) for i in range(5)],
        step(105.0, has_finished=True),
        step(200.0),
    ]
    found = summarize(steps)
    assert found["step_ms"] == 1000.0 and found["requests_per_step"] == 2
    assert summarize(steps[:5]) == {"num_steps": 1}  # too few for means


def test_a_junk_drafter_fills_its_slots_and_no_more() -> None:
    wish, free = SamplingParams(), SamplingParams(speculative=False)
    requests = [Request(i, [1], params, 9) for i, params in enumerate((wish, wish, free, wish))]
    batch = Batch(
        [
            ScheduledRequest(requests[0], 1, 5, True),
            ScheduledRequest(requests[1], 1, 2, True),
            ScheduledRequest(requests[2], 1, 5, True),
            ScheduledRequest(requests[3], 1, 5, True, 1, last_index=0),
        ]
    )
    draft = JunkDrafter(3, vocab_size=7).propose(batch)
    assert [len(ids) for ids in draft.token_ids] == [3, 2, 0, 0]
    assert all(0 <= token_id < 7 for ids in draft.token_ids for token_id in ids)


def test_operations_of_a_prompt_are_those_of_its_products(model: Path) -> None:
    network = load_model(model).network
    assert isinstance(network.config, LlamaConfig)
    config, length = network.config, 7
    weights = sum(
        weight.numel()
        for layer in network._layers  # type: ignore[attr-defined]
        for weight in (
            layer.qkv.weight,
            layer.attention_out.weight,
            layer.gate_up.weight,
            layer.mlp_out.weight,
        )
    )
    seen = sum(range(1, length + 1))  # keys of each row
    attention = config.num_layers * config.num_heads * config.head_dim * 2 * seen
    head = config.vocab_size * config.hidden_size
    assert count_operations(config, length) == 2 * (weights * length + head + attention)


class FakeEvent:
    """A CUDA event on a device that does everything at once."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: FakeEvent) -> float:
        return (end.at - self.at) * 1e3


def test_the_device_parts_of_steps_that_run_ahead_lie_between_events(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_cpu_parts", build._device_parts)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    service = Service(model, config=EngineConfig(num_blocks=100, enforce_eager=True))
    try:
        engine = engine_of(service)
        engine._runs_ahead = True
        job = ("Hello", {"max_tokens": 12, "temperature": 0.0, "ignore_eos": True})
        plain = run_jobs(service, [job, job])
        with Stopwatch(engine, torch.device("cuda")) as stopwatch:
            timed = run_jobs(service, [job, job])
    finally:
        service.close()
    outputs, expected = ([one.output_token_ids for one in run.requests] for run in (timed, plain))
    assert outputs == expected
    found = summarize(stopwatch.steps)
    assert found["num_steps"] >= 3 and found["requests_per_step"] == 2
    assert 0 < sum(found["device_ms"].values()) < found["step_ms"]
    assert found["host_ms"]["wait"] > 0
