"""Every method of verification on a GPU: what is written is the grammar's, and q arrives there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from structspec.config import SpeculativeConfig
from structspec.engine.batch import Batch, ScheduledRequest, guessed, no_mask
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary
from tests.gpu.mixed_requests import DEVICE, mixed_pairs, run, started

pytestmark = pytest.mark.gpu
NUM_REQUESTS, NUM_DRAFTS = 64, 5


@pytest.mark.parametrize(
    "method",
    [
        {"rejection_sample_method": "block"},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_rate": 0.7},
        {"rejection_sample_method": "fly"},
    ],
    ids=lambda method: method["rejection_sample_method"],
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_grammar_takes_all_that_is_written(method: dict[str, Any], temperature: float) -> None:
    with started(speculative=SpeculativeConfig(**method)) as llm:
        requests = run(llm, mixed_pairs(), temperature=temperature)
    for request in requests:
        assert request.error is None
        if request.compiled is not None:
            matcher = request.compiled.result().matcher()
            assert all(map(matcher.accept, request.output_token_ids))
    drafted = sum(request.stats.num_drafted for request in requests)
    accepted = sum(request.stats.num_accepted for request in requests)
    assert 0 < accepted < drafted


@pytest.mark.parametrize("method", ["standard", "block", "fly"])
def test_drafts_with_probabilities_are_verified_as_on_the_cpu(method: str) -> None:
    vocabulary = Vocabulary.bytes()
    speculative = SpeculativeConfig(
        rejection_sample_method=method,  # type: ignore[arg-type]
        num_speculative_tokens=NUM_DRAFTS,
    )
    generator = torch.Generator().manual_seed(0)
    num_rows = NUM_REQUESTS * (NUM_DRAFTS + 1)
    logits = 3 * torch.randn(num_rows, vocabulary.vocab_size, generator=generator)
    rows = logits.view(NUM_REQUESTS, NUM_DRAFTS + 1, -1)[:, :NUM_DRAFTS]
    q = (rows + 2 * torch.randn(rows.shape, generator=generator)).softmax(-1)
    drafts = [torch.multinomial(one, 1, generator=generator)[:, 0].tolist() for one in q]
    requests = [
        Request(i, [1], SamplingParams(temperature=1.0, seed=i), 99) for i in range(NUM_REQUESTS)
    ]
    batch = Batch([ScheduledRequest(request, 1, NUM_DRAFTS, True) for request in requests])
    draft = guessed(drafts, list(q))  # made on the host
    mask = no_mask(vocabulary.num_words, [NUM_DRAFTS] * NUM_REQUESTS)
    device = torch.device(DEVICE)
    last = torch.zeros(num_rows, dtype=torch.int64, device=device)
    sampler = DeviceSampler(
        vocabulary,
        [num_rows],
        NUM_DRAFTS,
        last,
        Lanes(device),
        lambda hidden: hidden,
        speculative=speculative,
    )
    plain = RejectionSampler(vocabulary.vocab_size, vocabulary.stop_token_ids, speculative)
    expected = plain(logits.clone(), batch, draft, mask).read()
    assert sampler(logits.to(device), batch, draft, mask).read() == expected
    assert 0 < sum(expected.num_accepted) < NUM_REQUESTS * NUM_DRAFTS
