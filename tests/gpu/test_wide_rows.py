"""Wide rows on a GPU: what is copied for a step must not reach the one that still runs."""

from __future__ import annotations

from collections import deque

import pytest
import torch

from structspec.engine.batch import Sampled
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.masking import Masker
from tests.gpu.mixed_requests import DEVICE, IS_REHEARSAL
from tests.test_masking import STOP, VOCABULARY, make_batch, make_draft
from tests.test_wide_masks import widely

pytestmark = pytest.mark.gpu

NUM_ROWS, NUM_STEPS, NUM_AHEAD = 24, 60, 2


def test_each_step_is_masked_by_its_own_rows_however_long_those_before_take() -> None:
    """Steps of letters a, b or c, or all three; some again, whose rows are there already."""
    device = torch.device(DEVICE)
    lanes = Lanes(device)
    size = 16 if IS_REHEARSAL else 1024
    slow = torch.randn(size, size, device=device)

    def head(rows: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            torch.mm(slow, slow)
        return rows

    last = torch.zeros(NUM_ROWS, dtype=torch.int64, device=device)
    sampler = DeviceSampler(VOCABULARY, [NUM_ROWS], 0, last, lanes, head)
    masker = Masker(VOCABULARY, is_pinned=device.type == "cuda")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(NUM_ROWS, VOCABULARY.vocab_size, generator=generator)
    on_device = logits.to(device)
    requests = {
        pattern: [widely(f"[{pattern}]+") for _ in range(NUM_ROWS)] for pattern in ("a", "b", "cd")
    }
    kinds = (["a"], ["b"], ["b"], ["cd"], ["a", "b", "cd"], ["b", "cd"], ["a"], ["a"])
    flying: deque[tuple[Sampled, list[int]]] = deque()
    for number in range(NUM_STEPS + NUM_AHEAD):
        if number < NUM_STEPS:
            kind = kinds[number % len(kinds)]
            chosen = [kind[row % len(kind)] for row in range(NUM_ROWS)]
            batch = make_batch(*[requests[pattern][row] for row, pattern in enumerate(chosen)])
            draft = make_draft(*[b""] * NUM_ROWS)
            is_masked = [number % 5 == 4 and row % 3 == 0 for row in range(NUM_ROWS)]
            mask = masker.fill(batch, draft, is_masked)
            sampled = sampler(on_device, batch, draft, mask)
            expected = []
            for row, pattern in enumerate(chosen):
                tokens = [*pattern.encode()] + ([] if is_masked[row] else [STOP])
                expected.append(max(tokens, key=logits[row].__getitem__))
            flying.append((sampled, expected))
        if number >= NUM_AHEAD - 1 and flying:
            sampled, expected = flying.popleft()
            assert [ids[0] for ids in sampled.read().token_ids] == expected
