"""What an engine has done so far, as one frozen value; names are vLLM's where the thing is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many observations fell where; `counts` has one place more than `bounds`, for the rest."""

    bounds: Sequence[float]  # the largest of each bucket, ascending
    counts: Sequence[int]  # of each bucket alone
    sum: float

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Of all observations; 0 where there are none."""
        return self.sum / max(1, self.count)


@dataclass(frozen=True, slots=True)
class SpecDecodeMetrics:
    """What drafts brought: a draft is what one request was guessed in one step, if anything."""

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_invalid_tokens: int  # that a grammar forbids where they were drafted, and those behind them
    draft_lengths: Sequence[int]  # how many drafts had 0, 1, 2 … tokens
    accepted_lengths: Sequence[int]  # of how many drafts 0, 1, 2 … tokens were accepted
    draft_tokens_by_source: Mapping[str, int]  # forced, prediction, suffix, ngram or custom
    accepted_tokens_by_source: Mapping[str, int]
    num_drafter_faults: int = 0  # each of which cost a step, or one request of it, its drafts

    @property
    def num_draft_tokens_per_pos(self) -> list[int]:
        """How many drafts had a token at this place, the first being 0."""
        return at_least(self.draft_lengths)

    @property
    def num_accepted_tokens_per_pos(self) -> list[int]:
        """In how many of them it was accepted."""
        return at_least(self.accepted_lengths)

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens that a step with a draft writes: those accepted, and one of the target's own."""
        return 1 + self.num_accepted_tokens / max(1, self.num_drafts)

    @property
    def acceptance_rate(self) -> float:
        """Accepted tokens of those drafted; 0 where there are none."""
        return self.num_accepted_tokens / max(1, self.num_draft_tokens)


@dataclass(frozen=True, slots=True)
class GrammarMetrics:
    """What was asked of a compiler; the time is that of compiles that succeeded."""

    num_grammar_total: int
    num_grammar_cache_hit_total: int  # kept, or being compiled for another request
    num_grammar_aborted_total: int  # failed, time-outs among them
    num_grammar_timeout_total: int
    grammar_compilation_time_seconds: Histogram


@dataclass(frozen=True, slots=True)
class Metrics:
    """All of it at one moment: what counts has counted since the engine was built."""

    seconds: float  # since then
    num_requests_running: int
    num_requests_waiting: int
    num_grammar_queue_reqs: int  # of both, those whose grammar is still being compiled
    kv_cache_usage_perc: float  # from 0 to 1, as vLLM's
    prompt_tokens: int  # of requests that have a first token or are finished
    prefix_cache_hits: int  # of them, tokens found in the KV cache
    generation_tokens: int
    num_preemptions: int
    num_refused_tokens: int  # that were drawn without a mask, and then forbidden by a grammar
    request_success: Mapping[str, int]  # by "stop", "length", "abort" and "error"
    spec_decode: SpecDecodeMetrics
    request_queue_time_seconds: Histogram  # from a request's arrival until it had KV blocks
    time_to_first_token_seconds: Histogram
    inter_token_latency_seconds: Histogram  # between two outputs: steps that brought it tokens
    inter_token_latency_per_token_seconds: Histogram  # shared by the tokens that came together
    request_time_per_output_token_seconds: Histogram  # of a finished request, its first not counted
    e2e_request_latency_seconds: Histogram
    grammar: GrammarMetrics

    def since(self, before: Metrics) -> Throughput:
        """Tokens per second between two snapshots of one engine."""
        seconds = max(self.seconds - before.seconds, 1e-9)
        spec, spec_before = self.spec_decode, before.spec_decode
        return Throughput(
            (self.prompt_tokens - before.prompt_tokens) / seconds,
            (self.generation_tokens - before.generation_tokens) / seconds,
            (spec.num_draft_tokens - spec_before.num_draft_tokens) / seconds,
            (spec.num_accepted_tokens - spec_before.num_accepted_tokens) / seconds,
        )


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second."""

    prompt: float
    generation: float
    drafted: float
    accepted: float


def at_least(lengths: Sequence[int]) -> list[int]:
    """How many are longer than 0, 1, 2 …, given how many are of length 0, 1, 2 …"""
    return list(accumulate(reversed(lengths[1:])))[::-1]
