"""Several engines in one process, each with its own stream and graphs on the same GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.gpu.divergences import Judge
from tests.gpu.mixed_requests import mixed_pairs, run, started

pytestmark = pytest.mark.gpu


def test_a_model_goes_on_while_others_start_and_run_beside_it(judge: Judge) -> None:
    pairs = mixed_pairs()
    with ExitStack() as models, ThreadPoolExecutor() as threads:
        first = models.enter_context(started())
        alone = run(first, pairs)
        beside = threads.submit(run, first, pairs)
        others = [models.enter_context(started(max_num_requests=16)) for _ in range(2)]
        runs = [beside, *(threads.submit(run, other, pairs) for other in (first, *others))]
        for together in runs:
            judge.check(together.result(), alone)
