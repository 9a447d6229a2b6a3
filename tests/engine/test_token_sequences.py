"""Scoring known tokens: each is written as given, with the logprob that softmax gives by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from structspec.config import EngineConfig
from structspec.engine.pace import Pace
from structspec.masking import Masker
from structspec.models import load_model
from structspec.request import Request, SamplingParams
from structspec.token_sequence import TokenSequence
from tests.engine.coupled import FicklePace
from tests.engine.test_device_engine import run
from tests.engine.test_logprobs import PROMPT, make_config
from tests.engine.toy import STOP, VOCABULARY, ToyEngine, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ready
from tests.models.reference import reference_logits, save_tiny_model

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


@pytest.mark.parametrize("share", [None, 0.0, 1.0], ids=["cpu", "device", "device-aside"])
def test_engines_of_both_kinds_of_parts_score_as_the_model_does(
    tmp_path: Path, share: float | None
) -> None:
    reference = save_tiny_model(tmp_path, "llama")
    loaded = load_model(tmp_path)
    vocabulary = loaded.tokenizer.vocabulary
    source = random.Random(3)
    prompt = [source.randrange(256) for _ in range(20)]
    sequences = [[source.randrange(256) for _ in range(size)] for size in (0, 1, 5, 30)]
    config = EngineConfig(block_size=4, num_blocks=40, enforce_eager=True).resolved("cpu")
    requests = []
    for index, sequence in enumerate(sequences):
        compiled = ready(TokenSequence(sequence, vocabulary))  # type: ignore[arg-type]
        requests.append(Request(index, prompt, SamplingParams(logprobs=0), 40, compiled))
    run(loaded, config, requests, share=share)
    for sequence, request in zip(sequences, requests, strict=True):
        written = request.output_token_ids
        assert written[:-1] == sequence and written[-1] in vocabulary.stop_token_ids
        expected = reference_logits(reference, prompt + sequence).double().log_softmax(-1)
        for place, one in enumerate(request.logprobs):
            by_hand = float(expected[len(prompt) - 1 + place, written[place]])
            assert one.logprob == pytest.approx(by_hand, abs=1e-3)
