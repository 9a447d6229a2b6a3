"""Where two engines wrote different tokens, and by how little the better one was better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.config import EngineConfig
from structspec.engine.model_runner import ModelRunner
from structspec.grammars.base import Matcher
from structspec.kernels.philox import gumbel_reference
from structspec.models import load_model
from structspec.request import Request
from tests.engine.feeding import make_request, run_step
from tests.gpu.mixed_requests import MAX_MODEL_LEN, MODEL

MAX_MARGIN = 1e-3  # of logits that two orders of adding up in float32 may swap


class Divergence(NamedTuple):
    """The first token in which two outputs of one request differ."""

    index: int  # of the request
    position: int  # in its output
    tokens: tuple[int | None, int | None]  # None: that output ends before
    margin: float  # between the two best scores, as a CPU computes them


class Judge:
    """Computes again, on the CPU, what a token was chosen by."""

    def __init__(self) -> None:
        self._loaded = load_model(MODEL, max_model_len=MAX_MODEL_LEN)
        self._runner = ModelRunner(self._loaded, EngineConfig(num_blocks=MAX_MODEL_LEN // 16))

    def divergences(
        self, actual: Sequence[Request], expected: Sequence[Request]
    ) -> list[Divergence]:
        """One for each request whose outputs are not the same."""
        return [
            self._first(index, one, other)
            for index, (one, other) in enumerate(zip(actual, expected, strict=True))
            if one.output_token_ids != other.output_token_ids
        ]

    def check(self, actual: Sequence[Request], expected: Sequence[Request]) -> None:
        """Same tokens, but for a few choices that were as good as even; those are printed."""
        found = self.divergences(actual, expected)
        print(f"{len(found)} of {len(actual)} requests diverge", *found, sep="\n")
        assert all(one.margin < MAX_MARGIN for one in found)
        assert len(found) <= 1 + len(actual) // 10

    def _first(self, index: int, one: Request, other: Request) -> Divergence:
        outputs = one.output_token_ids, other.output_token_ids
        position = 0
        while all(len(ids) > position for ids in outputs) and (
            outputs[0][position] == outputs[1][position]
        ):
            position += 1
        first, second = (ids[position] if position < len(ids) else None for ids in outputs)
        margin = float("inf") if None in (first, second) else self.margin(other, position)
        return Divergence(index, position, (first, second), margin)

    def margin(self, request: Request, position: int) -> float:
        """How much better the best token was than the next where this one was written."""
        best = self.scores(request, position).topk(2).values
        return float(best[0] - best[1])

    def scores(self, request: Request, position: int) -> torch.Tensor:
        """What the largest of is chosen at a place in the output, [vocab_size]; -inf: forbidden."""
        num_known = request.num_prompt_tokens + position
        known = make_request(request.token_ids[:num_known], range(MAX_MODEL_LEN // 16))
        (logits,) = run_step(self._runner, (known, num_known, 0))
        scores = logits[0].masked_fill(~self._allowed(request, position), float("-inf"))
        temperature = request.params.temperature
        if temperature == 0:
            return scores
        seed, draw = torch.tensor([request.seed]), torch.tensor([position])
        return scores / temperature + gumbel_reference(seed, draw, len(scores))[0]

    def _allowed(self, request: Request, position: int) -> torch.Tensor:
        vocabulary = self._loaded.tokenizer.vocabulary
        if request.compiled is None:
            is_allowed = torch.ones(vocabulary.vocab_size, dtype=torch.bool)
            is_allowed[list(vocabulary.stop_token_ids)] = not request.params.ignore_eos
            return is_allowed
        matcher = _matcher_behind(request, position)
        bitmask = allocate_bitmask(1, vocabulary.vocab_size)
        matcher.fill(bitmask, 0)
        return torch.from_numpy(unpack_row(bitmask[0], vocabulary.vocab_size)).bool()


def _matcher_behind(request: Request, position: int) -> Matcher:
    """A matcher of the request's own kind behind so much of its output."""
    assert request.compiled is not None
    matcher, num_taken = request.compiled.result().matcher(), 0
    late = [wrapper for wrapper in request.wrappers if hasattr(wrapper, "behind")]
    for wrapper in request.wrappers:
        if wrapper not in late:
            matcher = wrapper.around(matcher)
    for wrapper in late:
        if position >= wrapper.wrap_at:
            _take(matcher, request.output_token_ids[num_taken : wrapper.wrap_at])
            num_taken = max(num_taken, wrapper.wrap_at)
            matcher = wrapper.behind(matcher, num_taken)
    _take(matcher, request.output_token_ids[num_taken:position])
    return matcher


def _take(matcher: Matcher, token_ids: Sequence[int]) -> None:
    assert all(map(matcher.accept, token_ids))
