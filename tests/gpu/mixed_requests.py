"""Over sixty requests of every kind, run on one engine in many ways.

With STRUCTSPEC_REHEARSE_GPU=1 the engine's GPU parts run on the CPU, with fewer and shorter
requests: what these tests say can then be tried without a GPU, though not what they are for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from structspec import LLM
from structspec.config import EngineConfig
from structspec.engine import build
from structspec.engine.engine import Engine
from structspec.engine.loop import News
from structspec.options import resolve_options
from structspec.request import Request
from tests.lossless_pairs import ARITHMETIC_EBNF, TEXTS, lossless_pairs
from tests.real_requests import Pair

IS_REHEARSAL = "STRUCTSPEC_REHEARSE_GPU" in os.environ
DEVICE = "cpu" if IS_REHEARSAL else "cuda"
MODEL = "smollm2-135m"
MAX_TOKENS = 8 if IS_REHEARSAL else 64
MAX_MODEL_LEN = 2048
TOGETHER = 1000  # more than there are requests
SIZES = {
    "max_model_len": MAX_MODEL_LEN,
    "max_num_requests": 64,  # fewer than there are requests: some wait
    "num_blocks": 4096,
}


def mixed_pairs() -> list[Pair]:
    """Schemas, regexes, choices, grammars and free text, with short prompts and long ones."""
    pairs = [pair for pair in lossless_pairs() if not _needs_xgrammar(pair[1])]
    pairs += [
        (f"Repeat the second of these sentences: {' '.join(TEXTS * 25)}", {}),
        (f"Who lives in London? {' '.join(TEXTS * 12)}", {"regex": "[A-Z][a-z]+ [A-Z][a-z]+"}),
        ("Say hello, and go on.", {"ignore_eos": True}),
        ("Go on: one, two, three, four,", {"max_tokens": 5}),
    ]
    return [*pairs[::14], pairs[-3]] if IS_REHEARSAL else pairs


def _needs_xgrammar(options: dict[str, Any]) -> bool:
    """It is not where a GPU is."""
    return "backend" in options or options.get("grammar") == ARITHMETIC_EBNF


@contextmanager
def started(
    model: str | Path = MODEL, dtype: torch.dtype = torch.float32, **changes: Any
) -> Iterator[LLM]:
    """A model on the GPU."""
    config = EngineConfig(**{**SIZES, **changes})
    with _gpu_parts_on_a_cpu() if IS_REHEARSAL else nullcontext():
        llm = LLM(model, dtype=dtype, device=DEVICE, config=config)
    with llm:
        yield llm


@contextmanager
def _gpu_parts_on_a_cpu() -> Iterator[None]:
    device_parts = build._device_parts

    def parts(loaded: Any, config: EngineConfig) -> object:
        return device_parts(loaded, replace(config, enforce_eager=True))

    def engine(*arguments: Any, **options: Any) -> Engine:
        return Engine(*arguments, **{**options, "runs_ahead": True})

    with mock.patch.multiple(build, _cpu_parts=parts, Engine=engine):
        yield


def run(
    llm: LLM,
    pairs: Sequence[Pair],
    *,
    num_at_once: int = TOGETHER,
    order: Sequence[int] | None = None,
    **options: Any,
) -> list[Request]:
    """The finished requests, in the order of the pairs.

    They are started in `order`, each as soon as fewer than `num_at_once` run. Each has a seed of
    its own.
    """
    service = llm._service
    prepared = [
        service.prepare(
            prompt, resolve_options({"max_tokens": MAX_TOKENS, "seed": index, **own, **options})
        )
        for index, (prompt, own) in enumerate(pairs)
    ]
    places = threading.Semaphore(min(num_at_once, len(pairs)))

    def listen(news: News) -> None:
        if news.finished is not None:
            places.release()

    for index in order or range(len(pairs)):
        assert places.acquire(timeout=120)
        service.start(prepared[index], listen)
    for _ in range(min(num_at_once, len(pairs))):
        assert places.acquire(timeout=300)
    requests = [one.request for one in prepared]
    assert [request.error for request in requests] == [None] * len(pairs)
    return requests
