"""One generation request: what was asked (frozen) and how far it has come (state)."""

from __future__ import annotations

import enum
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from structspec.constraint import find_half_character
from structspec.errors import InvalidRequest, StructspecError
from structspec.metrics import at_least
from structspec.output_text import OutputText
from structspec.speculation import Speculation
from structspec.token_detail import TokenDetail
from structspec.token_logprob import TokenLogprob

if TYPE_CHECKING:
    from structspec.engine.batch import Parked
    from structspec.engine.logit_edits import TokenTable
    from structspec.grammars.base import CompiledGrammar, Matcher, Row
    from structspec.grammars.wrapping import LateWrapper, Wrapper
    from structspec.reasoning_progress import ReasoningProgress

_SEEDS = random.Random()  # begun by the system's; asking that for every request is slow
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SEEDS.seed)

FinishReason = Literal["stop", "length", "cancelled", "error"]
LogprobsMode = Literal["raw", "processed"]
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn; every field is honoured with and without speculation.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 are off. `max_tokens` None is what
    is left of the context, at most 1,024. `stop` strings end the text and are not part of it.

    Only `allowed_token_ids` may be written, and no text that contains one of the `bad_words`.
    Before `min_tokens` neither a stop token nor a `stop` string ends the text; `stop_token_ids` end
    it as the model's own do. A constraint says where its text may end, whatever token ends it; free
    text ends with allowed tokens only (`structspec.limits`).

    `logit_bias` is added to the logits of tokens by id. Penalties are off at 0, the one on
    repetition at 1: that one is about tokens of prompt and output, the others of the output alone.
    `logprobs` is how many alternatives are told beside each token's own, None is off. They are of
    the model's own distribution ("raw"), or of the one that is drawn from ("processed": biased,
    masked, filtered; at temperature 0 as at 1). `prompt_logprobs` is the same of the prompt, raw.
    `token_details` tells of each token where it came from, and so many allowed alternatives.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: int | None = None
    logprobs_mode: LogprobsMode = "raw"
    prompt_logprobs: int | None = None
    token_details: int | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    speculative: bool = True
    speculation: Speculation = Speculation()  # how, where it is on

    def __post_init__(self) -> None:
        for name, holds, wanted in (
            ("temperature", 0.0 <= self.temperature < float("inf"), "a number of at least 0"),
            ("top_k", self.top_k >= 0, "at least 0 (0 is off)"),
            ("top_p", 0.0 < self.top_p <= 1.0, "in (0, 1]"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "in [0, 1]"),
            ("presence_penalty", -2.0 <= self.presence_penalty <= 2.0, "in [-2, 2]"),
            ("frequency_penalty", -2.0 <= self.frequency_penalty <= 2.0, "in [-2, 2]"),
            (
                "repetition_penalty",
                0.01 <= self.repetition_penalty <= 100.0,  # so that no logit leaves float32
                "in [0.01, 100] (1 is off)",
            ),
            ("logprobs", _is_count(self.logprobs), f"between 0 and {MAX_LOGPROBS}"),
            ("logprobs_mode", self.logprobs_mode in get_args(LogprobsMode), "'raw' or 'processed'"),
            ("prompt_logprobs", _is_count(self.prompt_logprobs), f"between 0 and {MAX_LOGPROBS}"),
            ("token_details", _is_count(self.token_details), f"between 0 and {MAX_LOGPROBS}"),
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1"),
            ("stop", all(self.stop), "made of non-empty strings"),
            ("stop", all(map(_is_text, self.stop)), "made of whole characters"),
            ("allowed_token_ids", self.allowed_token_ids != (), "at least one token id"),
            ("allowed_token_ids", _are_ids(self.allowed_token_ids), "made of token ids"),
            ("bad_words", all(self.bad_words), "made of non-empty strings"),
            ("bad_words", all(map(_is_text, self.bad_words)), "made of whole characters"),
            ("min_tokens", self.min_tokens >= 0, "at least 0"),
            (
                "min_tokens",
                self.max_tokens is None or self.min_tokens <= self.max_tokens,
                f"at most max_tokens, which is {self.max_tokens}",
            ),
            ("stop_token_ids", _are_ids(self.stop_token_ids), "made of token ids"),
        ):
            if not holds:
                raise InvalidRequest(f"{name} must be {wanted}, not {getattr(self, name)!r}")
        for token_id, bias in self.logit_bias:
            if token_id < 0 or not -100.0 <= bias <= 100.0:
                raise InvalidRequest(
                    "logit_bias must give token ids numbers between -100 and 100, not"
                    f" {bias!r} to {token_id!r}"
                )

    @property
    def is_penalized(self) -> bool:
        """Whether logits hang on the tokens that were written."""
        is_counted = self.presence_penalty != 0 or self.frequency_penalty != 0
        return is_counted or self.repetition_penalty != 1

    @property
    def edits_logits(self) -> bool:
        """Whether single logits are changed before anything is drawn."""
        return bool(self.logit_bias) or self.is_penalized

    @property
    def is_masked_first(self) -> bool:
        """Whether its grammar cannot be asked after the draw: what a mask leaves is to be known."""
        return self.is_filtered or self.tells_logprobs

    @property
    def tells_logprobs(self) -> bool:
        """Whether the rows that its tokens are drawn from are asked for."""
        return self.logprobs is not None or self.token_details is not None

    @property
    def is_filtered(self) -> bool:
        """Whether tokens are drawn from less than all that is allowed."""
        is_limited = self.top_k > 0 or self.top_p < 1 or self.min_p > 0
        return self.temperature > 0 and is_limited


def _is_count(number: int | None) -> bool:
    return 0 <= (number or 0) <= MAX_LOGPROBS


def _are_ids(token_ids: tuple[int, ...] | None) -> bool:
    return all(token_id >= 0 for token_id in token_ids or ())


def _is_text(string: str) -> bool:
    return find_half_character(string) is None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written; those of reasoning are among the written ones."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE = Usage(0, 0)


@dataclass(slots=True)
class RequestStats:
    """What one request cost and what speculation brought it."""

    num_target_steps: int = 0  # forward passes that gave this request at least one token
    num_drafts: int = 0  # forward passes with drafted tokens
    num_drafted: int = 0  # tokens
    num_accepted: int = 0  # of them
    num_invalid: int = 0  # of them, from the first on that the grammar forbids
    num_let_pass: int = 0  # accepted ones that the target did not write: see engine/fly.py
    drafted_by_source: dict[str, int] = field(default_factory=dict)  # forced, ngram, …
    accepted_by_source: dict[str, int] = field(default_factory=dict)
    draft_lengths: list[int] = field(default_factory=list)  # how many drafts had 0, 1, 2 … tokens
    accepted_lengths: list[int] = field(default_factory=list)  # of how many 0, 1, 2 … were accepted
    accepted_prediction_tokens: int = 0  # of `prediction=`, in the output in its order, once ended
    rejected_prediction_tokens: int = 0  # and its others
    compile_ms: float = 0.0
    mask_ms: float = 0.0  # this request's share of filling mask rows
    # where in the output the first token stands that was held to the constraint; None: none was
    constraint_start: int | None = None
    num_refused: int = 0  # forward passes of whose tokens, drawn without a mask, one was forbidden
    backend: str | None = None
    num_preemptions: int = 0
    num_cached_tokens: int = 0  # known tokens found in the KV cache rather than computed
    queue_s: float | None = None  # from its arrival until it had KV blocks
    first_token_s: float | None = None  # from its arrival to its first token
    seconds: float = 0.0

    @property
    def drafted_per_position(self) -> list[int]:
        """How many drafts had a token at this place."""
        return at_least(self.draft_lengths)

    @property
    def accepted_per_position(self) -> list[int]:
        """In how many of them it was accepted."""
        return at_least(self.accepted_lengths)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        by_position = ("drafted_per_position", "accepted_per_position")
        return {**asdict(self), **{name: getattr(self, name) for name in by_position}}

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens that a step with a draft wrote: those accepted, and one of the model's own."""
        return 1 + self.num_accepted / max(1, self.num_drafts)


class RequestStatus(enum.Enum):
    """Where a request stands."""

    WAITING = enum.auto()  # no KV blocks: new, or preempted
    RUNNING = enum.auto()
    FINISHED = enum.auto()


@dataclass(slots=True, eq=False)
class Request:
    """One request's state across steps; only the engine's thread changes it.

    `token_ids` is prompt then output; positions below `num_computed_tokens` are in the KV cache, or
    will be by the steps that were launched. Of the step still running, `sampled_index` is its place
    among the sampled, `num_pending` the tokens it will bring at least, and `is_held` says that
    there may be more; `num_unseen` of them its matcher has not been moved behind.
    `num_divergences` counts how often what it brought was refused and the
    request went on from something else; `needs_mask` says that its next token has to be masked.
    """

    request_id: int
    prompt_token_ids: Sequence[int]
    params: SamplingParams
    max_tokens: int
    compiled: Future[CompiledGrammar] | None = None  # None: unconstrained
    wrappers: Sequence[Wrapper] = ()  # around its matcher, the first innermost
    reasoning: ReasoningProgress | None = None  # where the model may reason before its answer
    late_wrapper: LateWrapper | None = None  # put around it near its end, then one of them
    matcher: Matcher | None = None
    wide_row: Row | None = None  # of its grammar
    start_row: Row | None = None  # of its grammar, until the first token is drawn
    status: RequestStatus = RequestStatus.WAITING
    token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_pending: int = 0
    is_held: bool = False
    sampled_index: int = -1
    num_unseen: int = 0
    num_divergences: int = 0
    needs_mask: bool = False
    parked: Parked | None = None  # drawn before its grammar was ready
    token_table: TokenTable | None = None  # what bias and penalties hang on, once it is needed
    logprobs: list[TokenLogprob] = field(default_factory=list)  # of its output, if asked for
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)  # of its second token on
    token_details: list[TokenDetail] = field(default_factory=list)  # of its output, if asked for
    is_penalized: bool = field(init=False)
    seed: int = field(init=False)
    num_prompt_tokens: int = field(init=False)
    prediction_token_ids: Sequence[int] = ()  # what its output is expected to be, if anything
    leader: Request | None = None  # another with its prompt, which is to be computed once
    is_streamed: bool = True  # whether anybody wants its text before it is finished
    block_table: list[int] = field(default_factory=list)
    num_sent_blocks: int = 0  # of them, in row table_row of the tables on the device
    table_row: int = -1
    num_kept_blocks: int = 0  # of them, whose text is known to the prefix cache
    block_digests: list[bytes] = field(default_factory=list)  # names of full blocks of tokens
    finish_reason: FinishReason | None = None
    error: StructspecError | None = None
    stats: RequestStats = field(default_factory=RequestStats)
    text: OutputText = field(init=False)
    arrival_time: float = field(default_factory=time.perf_counter)
    token_time: float = 0.0  # when its last tokens were taken in
    num_guesses_tried: float = 0.0  # of its last drafts, the older the less
    num_guesses_held: float = 0.0  # of them

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.text = OutputText(self.params.stop)
        self.is_penalized = self.params.is_penalized
        seed = self.params.seed
        self.seed = _SEEDS.getrandbits(63) if seed is None else seed & (2**63 - 1)

    def start_matching(self, compiled: CompiledGrammar) -> None:
        """Take a matcher of the finished grammar; rows of this request are masked from now on."""
        self._wrap(compiled.matcher(), compiled.wide_row)
        if self.num_known_tokens == self.num_prompt_tokens and compiled.start_row is not None:
            self.start_row = self._widened(compiled.start_row)
        if self.reasoning is None:
            self.stats.constraint_start = 0
        self.stats.compile_ms = compiled.compile_ms
        self.stats.backend = compiled.report.backend

    def start_wrapping(self, matcher: Matcher) -> None:
        """Take this matcher, of free text, for what its wrappers ask; no grammar is to come."""
        assert self.compiled is None
        self._wrap(matcher, None)

    def _wrap(self, matcher: Matcher, wide_row: Row | None) -> None:
        for wrapper in self.wrappers:
            matcher = wrapper.around(matcher)
        self.matcher, self.wide_row = matcher, self._widened(wide_row)

    def _widened(self, row: Row | None) -> Row | None:
        for wrapper in self.wrappers:
            row = wrapper.widen(row)
        return row

    @property
    def output_token_ids(self) -> list[int]:
        """The tokens written so far, a stop token included."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def answer_token_ids(self) -> list[int]:
        """Those of them that are no reasoning, a stop token included."""
        num_before = 0 if self.reasoning is None else self.reasoning.num_before
        return self.token_ids[self.num_prompt_tokens + num_before :]

    def append_text(self, token_id: int, data: bytes) -> bool:
        """Add the text of a token; True once a stop string is in the answer, which ends it."""
        if self.reasoning is not None:
            data = self.reasoning.take(token_id, data)
        may_stop = self.num_output_tokens > self.params.min_tokens
        return self.text.append(data, may_stop=may_stop)

    def end_text(self) -> None:
        """Note that nothing more will be written."""
        if self.reasoning is not None:
            rest = self.reasoning.finish()
            if rest and not self.text.is_stopped:
                self.text.append(rest)
            if self.compiled is not None and self.reasoning.is_over:
                self.stats.constraint_start = self.reasoning.num_before

    def last_output_token_ids(self, limit: int) -> list[int]:
        """The last of them, at most `limit`; costs no copy of the rest."""
        return self.token_ids[max(self.num_prompt_tokens, len(self.token_ids) - limit) :]

    @property
    def needs_prompt_rows(self) -> bool:
        """Whether logits are wanted of its prompt: all of it is computed, whatever is cached."""
        if self.params.prompt_logprobs is None:
            return False
        return len(self.prompt_logprobs) < self.num_prompt_tokens - 1

    @property
    def num_output_tokens(self) -> int:
        """How many tokens were written so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_known_tokens(self) -> int:
        """Prompt, output, and what is known to come: where its next token will stand."""
        return len(self.token_ids) + self.num_pending

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be written."""
        return self.status is RequestStatus.FINISHED

    @property
    def is_grammar_pending(self) -> bool:
        """Whether its constraint has given it no matcher yet: nothing may be sampled."""
        return self.compiled is not None and self.matcher is None

    @property
    def is_judged(self) -> bool:
        """Whether it has a matcher, or will have one, which what is drawn must pass."""
        return self.compiled is not None or self.matcher is not None

    @property
    def usage(self) -> Usage:
        """Tokens read and written so far."""
        num_reasoning = 0 if self.reasoning is None else self.reasoning.num_tokens
        return Usage(self.num_prompt_tokens, self.num_output_tokens, num_reasoning)
