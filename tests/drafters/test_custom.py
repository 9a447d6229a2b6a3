"""Whatever a class of the user's does: all texts and caches stay what they are."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.base import count_slots
from structspec.drafters.custom import CheckedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch, Draft, DraftSource, guessed
from structspec.engine.pace import Pace
from structspec.masking import Masker
from tests.drafters.toy import batch_of, start
from tests.drafters.wild import Wild
from tests.engine.coupled import CoupledSampler, FicklePace
from tests.engine.toy import VOCABULARY, RandomDrafter, ToyEngine, greedy_alone
from tests.engine.toy_grammar import CertainMatcher, ToyGrammar, ready

VOCAB_SIZE = VOCABULARY.vocab_size
GRAMMARS = (("aabc", "aabb"), ("abcabc",), ("cab", "b", "cb"))


class Fixed:
    """This draft."""

    def __init__(self, draft: object) -> None:
        self._draft = draft

    def propose(self, batch: Batch) -> object:
        return self._draft


def checked(drafter: object) -> CheckedDrafter:
    return CheckedDrafter(drafter, "mine.Own", VOCABULARY)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    prompts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=3),
    texts=st.sampled_from(GRAMMARS),
    budget=st.integers(2, 30),
    runs_ahead=st.booleans(),
)
def test_no_draft_changes_what_is_written(
    seed: int, prompts: list[list[int]], texts: tuple[str, ...], budget: int, runs_ahead: bool
) -> None:
    config = EngineConfig(
        block_size=2,
        num_blocks=40,
        max_num_batched_tokens=budget,
        speculative=SpeculativeConfig(num_speculative_tokens=4),
    )

    def run(drafter: object, *, runs_ahead: bool) -> tuple[list[list[int]], ToyEngine]:
        toy = ToyEngine(
            config,
            drafter,
            masker=Masker(VOCABULARY),
            sampler=CoupledSampler(1),
            runs_ahead=runs_ahead,
            pace=FicklePace(1.0, seed) if runs_ahead else Pace(1.0),
        )
        free = [toy.add(prompt, max_tokens=9) for prompt in prompts]
        bound = [
            toy.add(prompt, max_tokens=9, compiled=ready(ToyGrammar(texts))) for prompt in prompts
        ]
        toy.run([*free, *bound])
        for _ in range(2):  # steps that run ahead of the end
            toy.engine.step()
        assert [r.error for r in bound] == [None] * len(bound)
        assert [r.output_token_ids for r in free] == [greedy_alone(p, 9) for p in prompts]
        return [r.output_token_ids for r in bound], toy

    written, toy = run(checked(Wild(seed)), runs_ahead=runs_ahead)
    assert written == run(RandomDrafter(0), runs_ahead=False)[0]
    assert toy.block_manager.num_free_blocks == toy.block_manager.num_blocks


def test_what_may_be_drafted_is_passed_on_as_it_is() -> None:
    batch = batch_of(start(VOCABULARY), start(VOCABULARY), num_draft_slots=4)
    draft = RandomDrafter(5, lambda context: [0.0] * VOCAB_SIZE).propose(batch)
    found = checked(Fixed(draft)).propose(batch)
    assert found.token_ids == draft.token_ids and found.is_forced == draft.is_forced
    assert all(a is b for a, b in zip(found.probs, draft.probs, strict=True))
    assert any(q is not None for q in found.probs)


@pytest.mark.parametrize("row", [np.array([0, 1]), torch.tensor([0, 1]), (np.int32(0), 1)])
def test_integers_of_every_kind_are_tokens(row: object) -> None:
    draft = replace(guessed([[0, 1]]), token_ids=[row], is_forced=[np.array([False, True])])
    found = checked(Fixed(draft)).propose(batch_of(start(VOCABULARY), num_draft_slots=5))
    assert found.token_ids == [[0, 1]] and found.is_forced == [[False, True]]
    assert all(type(token_id) is int for token_id in found.token_ids[0])


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
    assert caplog.text.count("'mine.Own' does what it may not") == 1


A_PAIR = guessed([[0], []])
NAN = torch.full((1, VOCAB_SIZE), math.nan)


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (None, "None in place of a Draft"),
        ([[0], []], r"\[\[0\], \[\]\] in place of a Draft"),
        (guessed([[0]]), "1 token_ids for 2 requests"),
        (
            replace(A_PAIR, token_ids=[["a"], []]),
            r"token_ids that are no list of integers: \['a'\]",
        ),
        (replace(A_PAIR, token_ids=[[1.5], []]), "token_ids that are no list of integers"),
        (replace(A_PAIR, token_ids=[None, []]), "token_ids that are no list of integers: None"),
        (replace(A_PAIR, is_forced=[[], []]), "0 is_forced for 1 tokens"),
        (replace(A_PAIR, num_certain=[2, 0]), "num_certain=2 for 1 tokens"),
        (replace(A_PAIR, num_certain=[-1, 0]), "num_certain=-1 for 1 tokens"),
        (replace(A_PAIR, num_hopeful=None), "num_hopeful that are no list of integers"),
        (guessed([[0], []], [torch.ones(2, VOCAB_SIZE), None]), r"shape \(2, 5\), and .* \(1, 5\)"),
        (guessed([[0], []], [[0.2] * 5, None]), "probs of the shape list"),
        (guessed([[0], []], [NAN, None]), "probs that are no distributions"),
        (guessed([[0], []], [torch.ones(1, VOCAB_SIZE), None]), "probs that are no distributions"),
        (guessed([[0], []], [torch.eye(VOCAB_SIZE)[1:2], None]), "probs that are no distributions"),
    ],
)
def test_what_is_no_draft_of_the_batch_is_refused_by_name(draft: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"'mine.Own' gave .*{message}"):
        checked(Fixed(draft)).propose(batch_of(start(VOCABULARY), start(VOCABULARY)))


def constrained(*texts: str) -> object:
    request = start(VOCABULARY)
    request.matcher = CertainMatcher(VOCABULARY, [text.encode() for text in texts])
    return request


def test_certain_is_only_what_a_grammar_leaves_no_choice_about() -> None:
    batch = batch_of(start(VOCABULARY), constrained("caa", "cac"), constrained("caa", "cac"))
    said = replace(guessed([[0], [2, 0, 0], [2, 1, 1]]), num_certain=[1, 3, 2])
    found = checked(Fixed(said)).propose(batch)
    assert (found.token_ids, found.num_certain) == ([[], [2, 0], [2]], [0, 2, 1])
    assert [one.request.matcher.token_ids for one in batch.requests[1:]] == [[], []]


def test_sources_that_do_not_add_up_are_left_out() -> None:
    batch = batch_of(start(VOCABULARY))
    for num_tokens, name in ((2, "mine"), (1, "custom")):
        draft = replace(guessed([[0, 1]]), sources=[[DraftSource("mine", num_tokens)]])
        found = checked(Fixed(draft)).propose(batch)
        assert [one.name for one in found.sources_of(0, "custom")] == [name]


class Mover:
    """Moves matchers by what its parent drafts, and raises or not."""

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    def propose(self, batch: Batch) -> Draft:
        for scheduled in batch.requests:
            assert scheduled.request.matcher.accept(0)
        if self._error is not None:
            raise self._error
        return guessed([[] for _ in batch.requests])


@pytest.mark.parametrize("error", [None, ValueError("why"), KeyboardInterrupt()])
def test_matchers_that_were_moved_are_put_back(
    error: BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    request = constrained("aab")
    matcher = request.matcher
    if error is None:
        checked(Mover(None)).propose(batch_of(request))
        assert "matchers have to be left where they were" in caplog.text
    else:
        with pytest.raises(type(error)):
            checked(Mover(error)).propose(batch_of(request))
    assert request.matcher is matcher and matcher.token_ids == []


def test_a_class_may_ask_one_of_ours() -> None:
    config = SpeculativeConfig(prompt_lookup_min=2)
    for step_seconds in (None, lambda num_rows: 0.0):
        ours = HybridDrafter(VOCABULARY, config, step_seconds)
        request = constrained("aab", "aac")
        asking = SimpleNamespace(propose=ours.propose)
        assert checked(asking).propose(batch_of(request)).token_ids == [[0, 0]]
        assert request.error is None and request.matcher.token_ids == []


def test_faults_that_one_of_ours_tells_are_passed_on() -> None:
    fault = KeyError("x")
    draft = replace(guessed([[0]]), faults=[fault])
    assert checked(Fixed(draft)).propose(batch_of(start(VOCABULARY))).faults == [fault]


def test_more_than_the_slots_is_cut_for_every_request() -> None:
    batch = batch_of(start(VOCABULARY), start(VOCABULARY, speculative=False), num_draft_slots=3)
    found = checked(Fixed(guessed([[0] * 9, [0] * 9]))).propose(batch)
    assert [*map(len, found.token_ids)] == [*map(count_slots, batch.requests)] == [3, 0]
