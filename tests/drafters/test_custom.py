"""Whatever a class of the user's drafts: all texts and caches stay what they are."""

from __future__ import annotations

import logging
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.custom import CheckedDrafter
from structspec.engine.batch import Batch, Draft, guessed
from structspec.engine.pace import Pace
from tests.drafters.toy import batch_of, start
from tests.engine.toy import VOCABULARY, RandomDrafter, ToyEngine, greedy_alone

VOCAB_SIZE = VOCABULARY.vocab_size


class Wild:
    """Any tokens and numbers of them, for anybody."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def propose(self, batch: Batch) -> Draft:
        return guessed(
            [
                [
                    self._random.randint(-3, VOCAB_SIZE + 3)
                    for _ in range(self._random.randint(0, 9))
                ]
                for _ in batch.requests
            ]
        )


class Fixed:
    """This draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def propose(self, batch: Batch) -> Draft:
        return self._draft


def checked(drafter: object) -> CheckedDrafter:
    return CheckedDrafter(drafter, "mine.Own", VOCAB_SIZE)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    prompts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=4),
    budget=st.integers(2, 30),
    runs_ahead=st.booleans(),
)
def test_no_draft_changes_what_is_written(
    seed: int, prompts: list[list[int]], budget: int, runs_ahead: bool
) -> None:
    config = EngineConfig(
        block_size=2,
        num_blocks=24,
        max_num_batched_tokens=budget,
        speculative=SpeculativeConfig(num_speculative_tokens=4),
    )
    toy = ToyEngine(config, checked(Wild(seed)), runs_ahead=runs_ahead, pace=Pace(1.0))
    requests = [toy.add(prompt, max_tokens=9) for prompt in prompts]
    toy.run(requests)
    assert [r.output_token_ids for r in requests] == [greedy_alone(p, 9) for p in prompts]
    assert toy.block_manager.num_free_blocks == toy.block_manager.num_blocks


def test_what_may_be_drafted_is_passed_on_as_it_is() -> None:
    batch = batch_of(start(VOCABULARY), start(VOCABULARY), num_draft_slots=4)
    draft = RandomDrafter(2, lambda context: [0.0] * VOCAB_SIZE).propose(batch)
    assert checked(Fixed(draft)).propose(batch) is draft


def test_tokens_and_their_probabilities_are_cut_together_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    q = torch.eye(VOCAB_SIZE)
    draft = guessed([[0, 1, VOCAB_SIZE, 2, 3]], [q])
    drafter, batch = checked(Fixed(draft)), batch_of(start(VOCABULARY), num_draft_slots=5)
    with caplog.at_level(logging.WARNING, logger="structspec"):
        for _ in range(2):
            cut = drafter.propose(batch)
    assert cut.token_ids == [[0, 1]] and torch.equal(cut.probs[0], q[:2])
    assert caplog.text.count("'mine.Own' drafts what it may not") == 1


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (guessed([[0]]), "1 token_ids for 2 requests"),
        (guessed([[0], []], [torch.ones(2, VOCAB_SIZE), None]), r"shape \(2, 5\), and .* \(1, 5\)"),
    ],
)
def test_lists_that_do_not_fit_are_refused_by_name(draft: Draft, message: str) -> None:
    with pytest.raises(ValueError, match=f"'mine.Own' gave .*{message}"):
        checked(Fixed(draft)).propose(batch_of(start(VOCABULARY), start(VOCABULARY)))
