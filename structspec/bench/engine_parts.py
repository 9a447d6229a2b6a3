"""What `structspec bench engine` can measure of one loaded model, part by part."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from structspec.bench.engine import PLAIN, run_speed
from structspec.bench.engine_first_token import run_first_token
from structspec.bench.engine_insides import kv_tokens_of, network_of
from structspec.bench.engine_neighbours import run_neighbours
from structspec.bench.engine_prefill import run_prefill
from structspec.bench.engine_runs import Figure, Patience
from structspec.bench.engine_steps import run_steps
from structspec.bench.engine_workload import TESTS, Workload
from structspec.config import EngineConfig
from structspec.errors import InvalidRequest, StructspecError
from structspec.heap import kept_from_collector
from structspec.models.loading import DType
from structspec.service import Service

DRAFT_TESTS = ("plain", "same", "copy")


@dataclass(frozen=True, slots=True)
class Settings:
    """How much of everything is run; see the command's options."""

    tests: Sequence[str]
    sizes: Sequence[int]
    max_tokens: int
    rounds: int
    pairs: int
    num_plain: int
    num_prompts: int
    prompt_len: int
    contexts: Sequence[int]
    guesses: Sequence[int]
    part_seconds: float | None = None


Part = Callable[[Service, Workload, Settings, Patience], Iterator[Figure]]


def _speed(
    service: Service, workload: Workload, settings: Settings, patience: Patience
) -> Iterator[Figure]:
    return _run_tests(service, workload, settings, patience, settings.tests)


def _drafts(
    service: Service, workload: Workload, settings: Settings, patience: Patience
) -> Iterator[Figure]:
    tests = [test for test in DRAFT_TESTS if test in settings.tests]
    return _run_tests(service, workload, settings, patience, tests, is_speculative=True)


def _run_tests(
    service: Service,
    workload: Workload,
    settings: Settings,
    patience: Patience,
    tests: Sequence[str],
    *,
    is_speculative: bool = False,
) -> Iterator[Figure]:
    return run_speed(
        service,
        workload,
        list(dict.fromkeys([PLAIN, *tests])),
        settings.sizes,
        max_tokens=settings.max_tokens,
        rounds=settings.rounds,
        is_speculative=is_speculative,
        patience=patience,
    )


def _neighbours(
    service: Service, workload: Workload, settings: Settings, patience: Patience
) -> Iterator[Figure]:
    return run_neighbours(
        service,
        workload,
        num_plain=settings.num_plain,
        max_tokens=settings.max_tokens,
        pairs=settings.pairs,
        patience=patience,
    )


def _first_token(
    service: Service, workload: Workload, settings: Settings, patience: Patience
) -> Iterator[Figure]:
    return run_first_token(service, workload, pairs=settings.pairs, patience=patience)


def _prefill(
    service: Service, workload: Workload, settings: Settings, patience: Patience
) -> Iterator[Figure]:
    return run_prefill(
        service,
        num_prompts=settings.num_prompts,
        prompt_len=settings.prompt_len,
        rounds=settings.rounds,
        patience=patience,
    )


def _steps(
    service: Service, workload: Workload, settings: Settings, patience: Patience
) -> Iterator[Figure]:
    return run_steps(
        service,
        workload,
        settings.sizes,
        contexts=settings.contexts,
        guesses=settings.guesses,
        max_tokens=settings.max_tokens,
        patience=patience,
    )


PARTS: Mapping[str, Part] = {
    "speed": _speed,
    "drafts": _drafts,
    "neighbours": _neighbours,
    "first-token": _first_token,
    "prefill": _prefill,
    "steps": _steps,
}


def check_tests(tests: Sequence[str] | None) -> list[str]:
    """The tests to run, all where none is named; raises InvalidRequest for one there is not."""
    for test in tests or ():
        if test not in TESTS:
            raise InvalidRequest(f"there is no test {test!r}; known are {', '.join(TESTS)}")
    return list(dict.fromkeys(tests or TESTS))


def run_parts(
    model: str,
    dtype: DType,
    device: str,
    config: EngineConfig,
    workload: Workload,
    parts: Sequence[str],
    settings: Settings,
) -> Iterator[Figure]:
    """Load the model and measure the parts in this order; each figure comes once it is known.

    A part that fails or lacks the time for all of it says so in a figure, and the others are still
    measured.
    """
    start = time.perf_counter()
    service = Service(model, dtype=dtype, device=device, config=config)
    try:
        yield _describe(service, model, config) | {"start_up_s": time.perf_counter() - start}
        for part in parts:
            patience = Patience(settings.part_seconds)
            try:
                with kept_from_collector():
                    yield from PARTS[part](service, workload, settings, patience)
                if patience.is_over:
                    yield {"part": "cut", "name": part}
            except StructspecError as error:
                yield {"part": "failed", "name": part, "error": str(error)}
        yield {"part": "memory", **_memory(network_of(service).device)}
    finally:
        service.close()


def _describe(service: Service, model: str, config: EngineConfig) -> Figure:
    network = network_of(service)
    device = network.device
    is_cuda = device.type == "cuda"
    changed: dict[str, Any] = {
        name: getattr(config, name)
        for name in (
            "load_format",
            "batch_invariant",
            "enforce_eager",
            "async_scheduling",
            "optimistic_sampling",
            "gpu_memory_utilization",
            "max_num_requests",
            "max_num_batched_tokens",
            "max_num_draft_tokens",
        )
    }
    return {
        "part": "engine",
        "model": model.rstrip("/").rsplit("/", 1)[-1],
        "dtype": str(network.dtype).removeprefix("torch."),
        "device": torch.cuda.get_device_name(device) if is_cuda else platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "max_model_len": service.max_model_len,
        "kv_tokens": kv_tokens_of(service),
        **changed,
        **_memory(device),
    }


def _memory(device: torch.device) -> Figure:
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    return {
        "free_gib": free / 2**30,
        "total_gib": total / 2**30,
        "most_allocated_gib": torch.cuda.max_memory_allocated(device) / 2**30,
    }
