"""Where memory does not suffice: a typed error before serving starts, patience afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from structspec.errors import OutOfMemory
from tests.gpu.divergences import Judge
from tests.gpu.mixed_requests import DEVICE, IS_REHEARSAL, run, started
from tests.lossless_pairs import TEXTS

pytestmark = pytest.mark.gpu
ONLY_ON_A_GPU = pytest.mark.skipif(IS_REHEARSAL, reason="a CPU's memory is not asked")


@ONLY_ON_A_GPU
@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        ({"num_blocks": 10**9}, "lower num_blocks"),
        ({"num_blocks": None, "gpu_memory_utilization": 1e-3}, "raise gpu_memory_utilization"),
    ],
    ids=["num-blocks", "utilization"],
)
def test_what_can_never_fit_is_an_error_that_says_what_to_do(
    sizes: dict[str, Any], advice: str
) -> None:
    with pytest.raises(OutOfMemory, match=advice), started(load_format="dummy", **sizes):
        pass


def test_requests_of_maximal_length_take_turns_in_a_cache_that_holds_but_one(judge: Judge) -> None:
    length = 64 if IS_REHEARSAL else 256
    pairs = [(f"Count to {n} hundred.", {"ignore_eos": True, "max_tokens": 1024}) for n in range(4)]
    with started(max_model_len=length, num_blocks=length // 16 + 3) as llm:
        alone = run(llm, pairs, num_at_once=1)
        together = run(llm, pairs)
    assert sum(request.stats.num_preemptions for request in alone) == 0
    assert sum(request.stats.num_preemptions for request in together) > 0
    for request in together:
        assert request.finish_reason == "length"
        assert len(request.token_ids) == length
    judge.check(together, alone)


@ONLY_ON_A_GPU
def test_when_others_take_the_memory_steps_get_smaller_and_all_is_written(
    judge: Judge, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [(f"{n}. {' '.join(TEXTS * 25)}", {"max_tokens": 4}) for n in range(24)]
    sizes = {"max_num_batched_tokens": 16384, "num_blocks": 2048}
    with started(enforce_eager=True, enable_prefix_caching=False, **sizes) as llm:
        torch.cuda.empty_cache()
        num_held = torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        expected = run(llm, pairs)
        num_taken = torch.cuda.max_memory_reserved() - num_held
        assert "ran out" not in caplog.text
        torch.cuda.empty_cache()
        num_free, _ = torch.cuda.mem_get_info()
        others = torch.empty(num_free - num_taken // 3, dtype=torch.uint8, device=DEVICE)
        actual = run(llm, pairs)
        del others
    assert "memory ran out in a step" in caplog.text
    judge.check(actual, expected)
