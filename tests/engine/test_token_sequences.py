"""Scoring known tokens: each is written as given, with the logprob that softmax gives by hand."""

from __future__ import annotations

import pytest
import torch

from structspec.engine.pace import Pace
from structspec.masking import Masker
from structspec.token_sequence import TokenSequence
from tests.engine.coupled import FicklePace
from tests.engine.test_logprobs import PROMPT, make_config
from tests.engine.toy import STOP, VOCABULARY, ToyEngine, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ready

SEQUENCES = ((0,), (2, 1, 0, 0, 3), (), (1, 1, 1, 2, 2, 2, 3))


@pytest.mark.parametrize("way", ["plain", "ahead", "ahead-and-fickle"])
def test_a_sequence_is_written_as_it_is_and_scored_however_steps_are_taken(way: str) -> None:
    for seed in range(4):
        toy = ToyEngine(
            make_config(),
            RestlessDrafter(seed),
            masker=Masker(VOCABULARY),
            runs_ahead=way != "plain",
            pace=FicklePace(0.25, seed) if way == "ahead-and-fickle" else Pace(1.0),
        )
        requests = [
            toy.add(
                PROMPT,
                max_tokens=9,
                compiled=ready(TokenSequence(sequence, VOCABULARY)),  # type: ignore[arg-type]
                logprobs=0,
            )
            for sequence in SEQUENCES
        ]
        toy.run(requests)
        for sequence, request in zip(SEQUENCES, requests, strict=True):
            assert request.error is None
            assert request.output_token_ids == [*sequence, STOP]
            for place, one in enumerate(request.logprobs):
                logits = torch.tensor(hashed_logits((*PROMPT, *sequence[:place])))
                expected = logits.double().log_softmax(0)[one.token_id]
                assert one.logprob == pytest.approx(float(expected), abs=1e-4)
