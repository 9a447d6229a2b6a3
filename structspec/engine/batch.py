"""What flows between the seven calls of one engine step."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from structspec.request import Request
from structspec.token_logprob import TokenLogprob

if TYPE_CHECKING:
    from structspec.grammars.base import FillJob, Row


TokenLogprobs = Mapping[int, Sequence[TokenLogprob]]
TokenLogprobPairs = Mapping[int, Sequence[tuple[TokenLogprob, TokenLogprob]]]


class Drafting(enum.IntEnum):
    """What a step may draft."""

    NOTHING = 0
    CERTAIN = 1  # what grammars leave no choice about
    GUESSES = 2  # and what may be wrong


class ScheduledRequest(NamedTuple):
    """One request's share of a step.

    Where the request takes part in a step that is still running, its last token is not known yet:
    `last_index` is its place among that step's sampled requests, and all it computes now is that.
    """

    request: Request
    num_tokens: int  # to compute, from first_position on
    num_draft_slots: int  # KV room for at most so many drafts; 0 unless is_sampled
    is_sampled: bool  # the last token is among them, so this step draws new ones
    first_position: int = 0
    last_index: int = -1  # -1: all its tokens are known
    num_preemptions: int = 0  # so far: one that is preempted meanwhile has to compute all again
    allows_guesses: bool = True  # in this step
    num_divergences: int = 0  # so far
    max_num_guesses: int = sys.maxsize  # of its drafts so many may be neither certain nor forced
    num_prompt_rows: int = 0  # its first so many tokens have rows of logits, for prompt_logprobs

    @property
    def is_stale(self) -> bool:
        """Whether its last token turned out to be another: what it computed is of no use."""
        return self.num_divergences != self.request.num_divergences

    @property
    def may_guess(self) -> bool:
        """Whether drafts may be wrong; else they must be certain."""
        return self.allows_guesses and self.last_index < 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of one step, in the order of their rows."""

    requests: Sequence[ScheduledRequest]
    num_prompt_rows: int = 0  # of all of them: rows of logits behind those that are sampled

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step, without drafts."""
        return sum([scheduled.num_tokens for scheduled in self.requests])


class DraftSource(NamedTuple):
    """What drafted so many tokens, one after the other."""

    name: str  # forced, prediction, suffix, ngram or custom
    num_tokens: int


@dataclass(frozen=True)
class Draft:
    """Proposed tokens, one list per scheduled request (empty where there are none).

    The first `num_certain[i]` of request i's are all that its grammar allows: they are computed
    like known tokens, and only the rows behind them are sampled. The others are guesses, verified
    one by one. `probs[i]` is q, the distribution each guess was drawn from; None means one-hot.
    """

    token_ids: Sequence[Sequence[int]]
    probs: Sequence[torch.Tensor | None]  # each [num_guesses, vocab_size] float32
    is_forced: Sequence[Sequence[bool]]  # whether the grammar forces its text, or the end
    num_certain: Sequence[int]
    num_hopeful: int = 0  # requests that may guess as soon as their last token is known
    sources: Sequence[Sequence[DraftSource]] = ()  # of each request; empty: see `sources_of`
    faults: Sequence[Exception] = ()  # of the drafter, which cost some requests their drafts

    def sources_of(self, index: int, guesser: str) -> Sequence[DraftSource]:
        """What drafted request `index`'s tokens: unless it says, the grammar or else `guesser`."""
        if self.sources:
            return self.sources[index]
        return [
            DraftSource("forced" if is_forced else guesser, len(list(run)))
            for is_forced, run in groupby(self.is_forced[index])
        ]

    @cached_property
    def guesses(self) -> Sequence[Sequence[int]]:
        """The tokens to verify, per scheduled request."""
        if not any(self.token_ids):
            return self.token_ids
        return [ids[n:] for ids, n in zip(self.token_ids, self.num_certain, strict=True)]

    @cached_property
    def num_guessing(self) -> int:
        """How many requests have tokens to verify."""
        return sum(map(bool, self.guesses))


def guessed(
    token_ids: Sequence[Sequence[int]],
    probs: Sequence[torch.Tensor | None] | None = None,
    *,
    is_forced: bool = False,
) -> Draft:
    """A draft without certain tokens; one-hot where no probabilities are given."""
    num_requests = len(token_ids)
    return Draft(
        token_ids,
        [None] * num_requests if probs is None else probs,
        [[is_forced] * len(drafts) for drafts in token_ids],
        [0] * num_requests,
    )


def no_draft(num_requests: int, num_hopeful: int = 0) -> Draft:
    """Nothing, for so many requests."""
    nothing = [()] * num_requests
    return Draft(nothing, [None] * num_requests, nothing, [0] * num_requests, num_hopeful)


@dataclass(frozen=True, slots=True)
class Mask:
    """The bitmask rows of one step: only constrained requests have any, and not all of them.

    Sampled request i has 1 + (number of its guesses) logits rows, in batch order; unsampled ones
    have none. `rows[j]` is a logits row and `places[j]` the row of `bitmask` that masks it. The
    guess at `num_valid[i]`, if there is one, is forbidden by the grammar and must be rejected there
    at the latest; rows behind it are not to be used.

    The grammar of a constrained request without a job is asked afterwards. Its logits rows are all
    masked by the wide row of its grammar, if it has one, which other requests share; else they are
    drawn from like those of a free request.
    """

    bitmask: torch.Tensor  # [num_bitmask_rows, num_words] int32; wide rows come first
    rows: torch.Tensor  # [num_masked_rows] int64
    places: torch.Tensor  # [num_masked_rows] int64
    num_valid: Sequence[int]  # per scheduled request
    jobs: Mapping[int, FillJob] = field(default_factory=dict)  # whose rows, by request's index
    wide: Sequence[Row] = ()  # the wide rows at the head of the bitmask
    dead_ends: frozenset[int] = frozenset()  # requests whose text has no way on behind known tokens


def no_mask(num_words: int, num_valid: Sequence[int]) -> Mask:
    """Of a step whose rows are all drawn from as they are."""
    return Mask(*_no_rows(num_words), num_valid)


@lru_cache(maxsize=8)  # every step without a constraint has these
def _no_rows(num_words: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    nothing = torch.zeros(0, dtype=torch.int64)
    return torch.zeros((0, num_words), dtype=torch.int32), nothing, nothing


@dataclass(frozen=True, slots=True)
class SamplerOutput:
    """New tokens per scheduled request: accepted guesses, then one recovered or bonus token.

    `runners_up[i]` are the best that might stand in place of request i's last token, in order, were
    that forbidden: the first of them that is allowed is what a mask would have made of the row.
    """

    token_ids: Sequence[Sequence[int]]  # empty for unsampled requests
    num_accepted: Sequence[int]
    runners_up: Sequence[Sequence[int]] = ()  # per scheduled request; empty: none of any
    diverged: frozenset[int] = frozenset()  # indices of scheduled requests
    logprobs: TokenLogprobs = field(default_factory=dict)  # of new tokens, by the same indices
    prompt_logprobs: TokenLogprobs = field(default_factory=dict)  # of known ones that follow rows
    raw_and_processed: TokenLogprobPairs = field(default_factory=dict)  # of new ones, both
    dead_ends: frozenset[int] = frozenset()  # those whose text has no way on behind these tokens


class Parked(NamedTuple):
    """A request's share of a step, whose tokens wait for the grammar that is to judge them."""

    scheduled: ScheduledRequest
    output: SamplerOutput  # of this request alone


class Sampled(Protocol):
    """The output of a step whose sampling was launched, and may not have happened yet."""

    @property
    def last_token_ids(self) -> torch.Tensor:
        """Each sampled request's last new token, [num_sampled] int64 on the sampler's device.

        To be read by what is launched next.
        """

    def read(self) -> SamplerOutput:
        """The output; waits for it."""


@dataclass(frozen=True, slots=True)
class ReadySampled:
    """The output of a step that has been sampled."""

    output: SamplerOutput
    device: torch.device = torch.device("cpu")

    @property
    def last_token_ids(self) -> torch.Tensor:
        """Each sampled request's last new token."""
        last = [token_ids[-1] for token_ids in self.output.token_ids if token_ids]
        return torch.tensor(last, device=self.device)

    def read(self) -> SamplerOutput:
        """The output."""
        return self.output
