"""What DeviceSampler says comes next best, where a grammar is asked after the draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from structspec.constraint import Regex
from structspec.engine.batch import (
    Batch,
    Draft,
    Mask,
    SamplerOutput,
    ScheduledRequest,
    guessed,
    no_mask,
)
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary
from tests.test_masking import make_request

CPU = torch.device("cpu")
VOCABULARY = Vocabulary.bytes()


def sample(logits: torch.Tensor, batch: Batch, draft: Draft, mask: Mask, n: int) -> SamplerOutput:
    last = torch.zeros(96, dtype=torch.int64)
    sampler = DeviceSampler(VOCABULARY, [96], 3, last, Lanes(CPU), lambda rows: rows, n)
    return sampler(logits, batch, draft, mask).read()


def unmasked(draft: Draft) -> Mask:
    """Nothing is masked, not even where a request has a grammar."""
    return no_mask(VOCABULARY.num_words, [*map(len, draft.guesses)])


def random_logits(num_rows: int, seed: int, favourites: bytes = b"") -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_rows, VOCABULARY.vocab_size, generator=generator)
    logits[:, list(favourites)] += 4
    return logits


def constrained(temperature: float = 0.0, **limits: float) -> Request:
    request = make_request(Regex("[a-f]+x"))
    request.params = SamplingParams(temperature=temperature, **limits)  # type: ignore[arg-type]
    return request


def batch_of(requests: Sequence[Request], unsampled: Sequence[int] = ()) -> Batch:
    return Batch([ScheduledRequest(r, 1, 3, i not in unsampled, 1) for i, r in enumerate(requests)])


@pytest.mark.parametrize("num_guesses", [0, 2])
def test_the_first_that_the_grammar_takes_is_what_its_mask_would_have_left(
    num_guesses: int,
) -> None:
    requests = [constrained(temperature) for temperature in (0.0, 0.7, 1.5) * 8]
    for seed, request in enumerate(requests):
        request.seed = seed
    batch = batch_of(requests)
    draft = guessed([list(b"ab")[:num_guesses]] * len(requests))
    logits = random_logits((1 + num_guesses) * len(requests), 1, b"abXYZ")
    masked = sample(logits, batch, draft, Masker(VOCABULARY).fill(batch, draft), 4)
    free = sample(logits, batch, draft, unmasked(draft), 4)
    taken, num_told = set(b"abcdef"), 0
    for index in range(len(requests)):
        *accepted, last = free.token_ids[index]
        allowed = [t for t in (last, *free.runners_up[index]) if t in taken]
        if taken.issuperset(accepted) and allowed:
            assert masked.token_ids[index][: len(accepted) + 1] == [*accepted, allowed[0]]
            num_told += last not in taken
    assert num_told > 2


def test_runners_up_stand_behind_the_last_token_of_each_request() -> None:
    logits = torch.zeros(4, VOCABULARY.vocab_size)
    logits[0, [7, 8, 9]] = torch.tensor([3.0, 2.0, 1.0])
    logits[1:, [17, 18, 19]] = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [2.0, 1.0, 3.0]])
    requests = [constrained() for _ in range(3)]
    draft = guessed([[7], [], []])
    output = sample(logits, batch_of(requests), draft, unmasked(draft), 2)
    assert output.token_ids == [[7, 17], [18], [19]]
    assert output.runners_up == [[18, 19], [19, 17], [17, 18]]


def test_there_are_none_of_unsampled_requests_nor_of_those_that_filters_limit() -> None:
    requests = [constrained(), constrained(), constrained(1.0, top_k=5)]
    draft = guessed([[], [], []])
    logits = random_logits(2, 2)
    output = sample(logits, batch_of(requests, unsampled=[1]), draft, unmasked(draft), 3)
    best = logits[0].argsort(descending=True)[:4].tolist()
    assert [[*ids] for ids in output.runners_up] == [best[1:], [], []]
    assert [[*ids] for ids in output.token_ids[:2]] == [best[:1], []]


def test_free_requests_are_told_none() -> None:
    requests = [
        Request(0, (1,), SamplingParams(), 9),
        constrained(),
        Request(1, (1,), SamplingParams(), 9),
    ]
    draft, logits = guessed([[], [], []]), random_logits(3, 4)
    output = sample(logits, batch_of(requests), draft, unmasked(draft), 2)
    best = logits[1].argsort(descending=True)[:3].tolist()
    assert [[*ids] for ids in output.runners_up] == [[], best[1:], []]
    assert output.token_ids[1] == best[:1]


def test_fewer_are_given_where_fewer_may_be_drawn() -> None:
    logits = torch.full((1, VOCABULARY.vocab_size), float("-inf"))
    logits[0, [5, 90]] = torch.tensor([1.0, 2.0])
    draft = guessed([[]])
    output = sample(logits, batch_of([constrained()]), draft, unmasked(draft), 3)
    assert output.token_ids == [[90]] and output.runners_up == [[5]]


@pytest.mark.parametrize("num_guesses", [0, 1])
def test_nobody_is_told_where_nobody_asks(num_guesses: int) -> None:
    """Free requests need none, nor do those whose rows are masked; tokens are the same."""
    free = Request(0, [1], SamplingParams(), 10)
    logits = random_logits(2 * (1 + num_guesses), 3)
    draft = guessed([[97] * num_guesses] * 2)
    for batch in (batch_of([free, free]), batch_of([free, constrained()])):
        mask = Masker(VOCABULARY).fill(batch, draft)
        output, expected = (sample(logits, batch, draft, mask, n) for n in (3, 0))
        assert not output.runners_up and output == replace(expected, runners_up=output.runners_up)
