"""No request waits for a compiler: whatever an engine launches was compiled when it started."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.runtime.jit import JITFunction

from structspec import LLM
from tests.gpu.mixed_requests import IS_REHEARSAL, MAX_TOKENS, TOGETHER, mixed_pairs, run, started
from tests.lossless_pairs import CHOICES, REGEXES, TEXTS, Person
from tests.real_requests import Pair

pytestmark = pytest.mark.gpu
DTYPE = torch.float32 if IS_REHEARSAL else torch.bfloat16
DRAWS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8},
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.2, "min_p": 0.1},
    {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "min_p": 0.02},
    {"temperature": 0.8, "logit_bias": {11: 1.5}, "presence_penalty": 0.5},
    {"repetition_penalty": 1.1, "logprobs": 2, "prompt_logprobs": 0},
    {"temperature": 0.8, "top_p": 0.9, "logprobs": 20, "logprobs_mode": "processed"},
)
ENGINES: dict[str, dict[str, Any]] = {
    "graphs": {},
    "graphs-float32": {"dtype": torch.float32},
    "graphs-batch-invariant": {"batch_invariant": True},
    "graphs-steps-beyond-them": {"max_num_batched_tokens": 8192},
    "eager": {"enforce_eager": True},
    "eager-float32": {"enforce_eager": True, "dtype": torch.float32},
    "eager-one-request": {"enforce_eager": True, "max_num_requests": 1},
    "eager-not-ahead-chunks-of-100": {
        "enforce_eager": True,
        "async_scheduling": False,
        "max_num_batched_tokens": 100,
    },
}
SHORT: list[Pair] = [
    ("Say something.", {}),
    (TEXTS[0], {"schema": Person}),
    ("A date:", {"regex": REGEXES[0]}),
    ("Choose.", {"choices": CHOICES[0]}),
    ("Hello. " * 40, {"ignore_eos": True}),
]


@pytest.fixture
def num_variants(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Counter[str]]]:
    """Counts each kernel's compiled variants, those that other tests have compiled left out."""
    kernels: dict[str, Any] = {}
    for name in [name for name in sys.modules if name.startswith("structspec.kernels.")]:
        for function in vars(sys.modules[name]).values():
            if isinstance(function, JITFunction):
                kernels[function.fn.__qualname__] = function
    for function in kernels.values():
        monkeypatch.setattr(function, "device_caches", defaultdict(function.create_binder))

    def count() -> Counter[str]:
        counts = {
            name: sum(len(variants) for variants, *_ in function.device_caches.values())
            for name, function in kernels.items()
        }
        return Counter(counts)

    yield count


def drawn_in_all_ways(pairs: list[Pair]) -> list[Pair]:
    return [
        (prompt, {**own, **DRAWS[index % len(DRAWS)]}) for index, (prompt, own) in enumerate(pairs)
    ]


def check(llm: LLM, pairs: list[Pair], num_variants: Callable[[], Counter[str]]) -> None:
    """Requests alone, some at once, all at once, with and without speculation."""
    at_start = num_variants()
    assert IS_REHEARSAL or at_start["_best_of_parts_kernel"]
    few = pairs[:: max(1, len(pairs) // 8)]
    for chosen, num_at_once, options in (
        (few, 1, {}),
        (few, 1, {"speculative": False}),
        (few, 5, {}),
        (pairs, 40, {}),
        (pairs, TOGETHER, {"speculative": False}),
    ):
        run(
            llm,
            drawn_in_all_ways(chosen),
            num_at_once=num_at_once,
            max_tokens=MAX_TOKENS // 2,
            **options,
        )
        assert num_variants() - at_start == Counter()


@pytest.mark.parametrize("name", list(ENGINES))
def test_nothing_is_compiled_for_a_request(
    name: str, num_variants: Callable[[], Counter[str]]
) -> None:
    long = [(f"{n}. {' '.join(TEXTS * 25)}", {"max_tokens": 4}) for n in range(12)]
    with started(**{"dtype": DTYPE, **ENGINES[name]}) as llm:
        check(llm, [*mixed_pairs(), *(long[:1] if IS_REHEARSAL else long)], num_variants)


def test_nothing_is_compiled_where_the_models_own_code_runs(
    num_variants: Callable[[], Counter[str]], tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    from tests.models.reference import save_tiny_model

    save_tiny_model(tmp_path, "gpt_neox", max_position_embeddings=2048)
    with started(tmp_path, DTYPE) as llm:
        check(llm, SHORT * 8, num_variants)
