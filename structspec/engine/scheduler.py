"""Which requests take part in a step, with how many tokens; and what a step's output means."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import CancelledError

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft, Drafting, Parked, SamplerOutput, ScheduledRequest
from structspec.engine.block_manager import BlockManager
from structspec.engine.draft_length import DraftLengths
from structspec.engine.draft_slots import DraftSlots, Share, count_prompt_rows
from structspec.engine.memory_pressure import MemoryPressure
from structspec.engine.progress import append_tokens, record_draft, tell_logprobs
from structspec.errors import Cancelled, EngineError, NothingAllowed, StructspecError
from structspec.grammars.wrapping import FreeMatcher
from structspec.metrics_recorder import MetricsRecorder
from structspec.request import FinishReason, Request, RequestStatus
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")


class Scheduler:
    """Continuous batching: oldest first, within a token budget, prompts in chunks.

    A step may be planned while the one before it still runs: of a request in it that guesses
    nothing the number of its new tokens is known, though not the last of them. One that guesses is
    held until its guesses are verified. Where a grammar refuses a token that was drawn without its
    mask, the request goes back to the last that stands, and what it did meanwhile is dropped.

    When KV blocks run out the newest running request is preempted: it loses its blocks, keeps its
    tokens and its matcher, and is computed again later, where others took the blocks meanwhile.
    Drafts only get what nobody else needs. Steps have fewer tokens for a while after one for which
    the device's memory did not suffice.
    """

    def __init__(
        self,
        config: EngineConfig,
        block_manager: BlockManager,
        vocabulary: Vocabulary,
        max_model_len: int,
        *,
        num_free_tokens: int = 1,
        draws_early: bool = False,
        recorder: MetricsRecorder | None = None,
        draft_lengths: DraftLengths | None = None,
    ) -> None:
        """`num_free_tokens`: so many in a step cost the device no more than one does.

        With `draws_early` a first token is drawn before its grammar is ready, which then judges it.
        Without `draft_lengths` everybody is guessed as much as the settings allow.
        """
        self._num_free_tokens = num_free_tokens
        self._draws_early = draws_early
        self.recorder = recorder or MetricsRecorder()
        method = config.speculative.resolved_method
        self._guesser = "custom" if method == "custom_class" else method
        self._config = config
        self._block_manager = block_manager
        self._vocabulary = vocabulary
        self.draft_slots = DraftSlots(config, block_manager, max_model_len, draft_lengths)
        self._pressure = MemoryPressure(config.max_num_batched_tokens)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # oldest first
        self._news: dict[Request, None] = {}  # in order, each once

    @property
    def has_requests(self) -> bool:
        """Whether any request is waiting or running, or has news not handed out yet."""
        return bool(self._waiting or self._running or self._news)

    @property
    def running(self) -> Sequence[Request]:
        """The requests that have KV blocks, the oldest first."""
        return self._running

    def add(self, request: Request) -> None:
        """Queue a new request."""
        if request.wrappers and request.compiled is None:
            request.start_wrapping(FreeMatcher(self._vocabulary))
        self._waiting.append(request)
        self.recorder.added(request)

    def fail(self, request: Request, error: StructspecError) -> None:
        """End a request with `error`; nothing happens if it has ended already."""
        if not request.is_finished:
            self._finish(request, "cancelled" if isinstance(error, Cancelled) else "error", error)

    def fail_all(self, error: StructspecError) -> list[Request]:
        """End every request with `error`; returns those not handed out yet."""
        for request in [*self._running, *self._waiting]:
            self.fail(request, error)
        return self.take_news()

    def schedule(self, *, drafting: Drafting = Drafting.GUESSES) -> Batch:
        """Choose the next step's requests and reserve their KV blocks; may be empty."""
        budget = self._pressure.num_tokens
        num_waiting = len(self._waiting)
        shares: list[Share] = []
        for request in list(self._running):
            # An earlier request of this loop may have preempted this one.
            if request.status is RequestStatus.RUNNING and budget > 0:
                num_tokens = min(self._num_wanted(request), budget)
                if num_tokens > 1:
                    num_tokens = self._fit_rows(request, num_tokens, shares)
                if num_tokens > 0 and self._reserve(request, num_tokens):
                    shares.append(Share.of(request, num_tokens))
                    budget -= num_tokens
        if len(self._waiting) == num_waiting:  # else blocks are short: what left must not come back
            budget = self._admit(shares, budget)
        return self.draft_slots.share_out(shares, budget, drafting)

    def launched(self, batch: Batch, draft: Draft) -> None:
        """Count a step's tokens as computed; their values are told to `update`, one step later."""
        num_sampled = 0
        for scheduled, drafts, num_certain in zip(
            batch.requests, draft.token_ids, draft.num_certain, strict=True
        ):
            request = scheduled.request
            request.num_computed_tokens += scheduled.num_tokens + num_certain
            if not scheduled.is_sampled:
                continue
            request.sampled_index = num_sampled
            num_sampled += 1
            request.num_pending += num_certain + 1
            request.num_unseen = num_certain + 1
            num_guesses = len(drafts) - num_certain
            request.is_held = num_guesses > 0
            if scheduled.num_draft_slots:
                self._block_manager.trim(request, request.num_computed_tokens + num_guesses)

    def had_room(self, batch: Batch) -> None:
        """Note that a step's forward pass and sampling did not run out of memory."""
        has_brought_tokens = any(scheduled.is_sampled for scheduled in batch.requests)
        self._pressure.went_well(has_brought_tokens=has_brought_tokens)

    def take_back(self, batch: Batch, draft: Draft | None) -> bool:
        """Preempt the requests of a step that ran out of memory; the next ones are smaller.

        `draft` is None where the step was not `launched`. False, and nothing is changed, where its
        one request is to be given up.
        """
        if self._pressure.ran_out(len(batch.requests)):
            return False
        for index, scheduled in reversed(list(enumerate(batch.requests))):  # oldest waits in front
            request = scheduled.request
            if draft is not None and scheduled.is_sampled and not scheduled.is_stale:
                request.num_pending -= draft.num_certain[index] + 1
                request.is_held = False
            if request.error is not None and not request.is_finished:
                self._finish(request, "error", request.error)
            elif request.status is RequestStatus.RUNNING:
                self.preempt(request)
        return True

    def update(
        self,
        batch: Batch,
        draft: Draft,
        output: SamplerOutput,
        num_valid: Sequence[int] | None = None,
    ) -> None:
        """Take in a step's tokens; requests that it moved on, or that end here, have news.

        `num_valid` of each request's guesses the grammar takes; None: all.
        """
        now = time.perf_counter()
        gaps: Counter[tuple[float, int]] = Counter()  # since when, and how many tokens came
        for index, scheduled in enumerate(batch.requests):
            request = scheduled.request
            if request.status is RequestStatus.FINISHED:  # since this step was planned
                continue
            if request.is_streamed:
                self._news[request] = None
            if output.prompt_logprobs and index in output.prompt_logprobs:
                told, first = output.prompt_logprobs[index], scheduled.first_position
                request.prompt_logprobs[first : first + len(told)] = told
            if request.error is not None and not isinstance(request.error, NothingAllowed):
                self._finish(request, "error", request.error)
            elif scheduled.is_stale and index not in output.diverged:
                continue
            elif scheduled.is_sampled and request.is_grammar_pending:
                self._park(scheduled, output, index)
            elif scheduled.is_sampled:
                last_time, num_before = request.token_time, len(request.token_ids)
                if output.token_ids[index] or draft.num_certain[index]:
                    request.token_time = now
                num_invalid = 0
                if num_valid and draft.token_ids[index]:
                    num_invalid = len(draft.guesses[index]) - num_valid[index]
                self._take_tokens(scheduled, draft, output, index, num_invalid)
                gaps[last_time, len(request.token_ids) - num_before] += 1
                if index in output.dead_ends and not request.is_finished:
                    self._finish(request, "error", request.error)
            elif scheduled.num_preemptions == request.stats.num_preemptions:
                self._block_manager.keep(request, scheduled.first_position + scheduled.num_tokens)
        self.recorder.got_tokens(now, gaps)
        self.draft_slots.landed(batch, draft, now)

    def take_news(self) -> list[Request]:
        """Requests with news since the last call, each once; a finished one is never told again."""
        news = list(self._news)
        self._news.clear()
        return news

    def _take_tokens(
        self,
        scheduled: ScheduledRequest,
        draft: Draft,
        output: SamplerOutput,
        index: int,
        num_invalid: int,
    ) -> None:
        request, stats = scheduled.request, scheduled.request.stats
        new, num_accepted = output.token_ids[index], output.num_accepted[index]
        drafts, num_certain = draft.token_ids[index], draft.num_certain[index]
        if num_certain:
            new = [*drafts[:num_certain], *new]
        request.num_pending -= num_certain + 1
        was_guessed = len(drafts) > num_certain
        request.is_held &= not was_guessed
        stats.num_target_steps += bool(new)
        if stats.first_token_s is None and new:
            stats.first_token_s = request.token_time - request.arrival_time
        num_before = len(request.token_ids)
        reason = append_tokens(request, new, self._vocabulary)
        num_new = len(request.token_ids) - num_before
        sources = draft.sources_of(index, self._guesser) if drafts else ()
        if drafts:
            num_standing = min(num_certain + num_accepted, num_new)
            verified = record_draft(stats, sources, num_standing, num_invalid)
            if num_new == len(new):  # else nobody knows of those behind its end
                self.draft_slots.verified(request, verified)
        if request.params.tells_logprobs:
            tell_logprobs(request, output, index, num_new, sources)
        if scheduled.num_preemptions == stats.num_preemptions:
            request.num_computed_tokens += num_accepted
            # filled for good are all positions but that of the last token
            num_verified = scheduled.first_position + scheduled.num_tokens + len(new) - 1
            self._block_manager.keep(request, num_verified)
        if index in output.diverged:
            self._go_back(scheduled)
        elif was_guessed and scheduled.num_preemptions == stats.num_preemptions:
            self._block_manager.trim(request, request.num_known_tokens)
        if reason is not None:
            self._finish(request, reason)

    def _park(self, scheduled: ScheduledRequest, output: SamplerOutput, index: int) -> None:
        """Keep what was drawn until its grammar is ready."""
        request = scheduled.request
        if scheduled.num_preemptions != request.stats.num_preemptions:
            request.num_pending = 0  # it is drawn once more
            return
        self._block_manager.keep(request, len(request.token_ids))
        runners_up = output.runners_up[index : index + 1]
        request.parked = Parked(
            scheduled, SamplerOutput([output.token_ids[index]], [0], runners_up)
        )

    def _go_back(self, scheduled: ScheduledRequest) -> None:
        """Go on from the tokens that stand: a step launched meanwhile went on from another."""
        request = scheduled.request
        request.num_pending = 0
        request.is_held = False
        if scheduled.num_preemptions == request.stats.num_preemptions:
            request.num_computed_tokens = len(request.token_ids) - 1
            self._block_manager.trim(request, request.num_known_tokens)

    def _num_wanted(self, request: Request) -> int:
        """How many known tokens are still to be computed before the next sample."""
        if request.is_held or request.error is not None:
            return 0
        num_known = len(request.token_ids) + request.num_pending
        if num_known - request.num_prompt_tokens >= request.max_tokens:
            return 0  # it ends with what is on its way
        num_missing = num_known - request.num_computed_tokens
        if not request.is_grammar_pending:
            return num_missing
        if self._draws_early and not request.params.is_masked_first:
            return 0 if request.num_pending else num_missing
        # The last token's logits wait for the grammar that masks them, and those before it where
        # they come for free with it: else the grammar, once ready, would wait for their step.
        return num_missing - 1 if num_missing > self._num_free_tokens else 0

    def _waits_for_leader(self, request: Request) -> bool:
        """Whether another request is still computing what both begin with.

        Not once it has begun: the other may then wait behind it. Nor while that one waits itself,
        for its grammar: others are behind.
        """
        leader = request.leader
        if leader is None or leader.is_finished or request.stats.num_preemptions:
            return False
        num_left = leader.num_prompt_tokens - 1 - leader.num_computed_tokens
        is_computed = num_left <= 0 or self._num_wanted(leader) > 0
        return is_computed and not self._block_manager.has_beginning(leader)

    def _fit_rows(self, request: Request, num_tokens: int, shares: Sequence[Share]) -> int:
        """So many of a request's tokens as there is room for rows, for prompt_logprobs.

        They take the place of rows of drafts, at least one of them that of a sampled row.
        """
        if not request.needs_prompt_rows:
            return num_tokens
        num_rows = sum(count_prompt_rows(shares))
        return min(num_tokens, max(1, self._config.max_num_draft_tokens - num_rows))

    def _reserve(self, request: Request, num_tokens: int) -> bool:
        """Blocks for `num_tokens` more, preempting newer requests; False if itself had to go."""
        needed = request.num_computed_tokens + num_tokens
        while not self._block_manager.allocate(request, needed):
            victim = self._running[-1]
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it is computed again later."""
        self._block_manager.free(request)
        self._running.remove(request)
        request.status = RequestStatus.WAITING
        request.num_computed_tokens = 0
        if request.parked is not None:  # nobody is to wait for its grammar behind it
            request.parked = None
            request.num_pending = 0
        request.stats.num_preemptions += 1
        self._waiting.appendleft(request)

    def _admit(self, shares: list[Share], budget: int) -> int:
        """Start waiting requests while there is room for a first chunk; returns the budget left."""
        while self._waiting and budget > 0 and len(self._running) < self._config.max_num_requests:
            request = self._waiting[0]
            if request.num_pending:
                break  # preempted while a step ran: what it brings is part of what to compute
            if self._waits_for_leader(request):
                break
            num_cached = request.num_computed_tokens = self._block_manager.reuse(request)
            num_tokens = min(self._num_wanted(request), budget)
            if num_tokens > 1:
                num_tokens = self._fit_rows(request, num_tokens, shares)
            if not self._block_manager.allocate(request, num_cached + num_tokens):
                self._block_manager.free(request)
                request.num_computed_tokens = 0
                break
            request.stats.num_cached_tokens += num_cached
            self._waiting.popleft()
            request.status = RequestStatus.RUNNING
            self.recorder.begun(request)
            self._running.append(request)
            self._running.sort(key=lambda running: running.request_id)
            if num_tokens > 0:
                shares.append(Share.of(request, num_tokens))
                budget -= num_tokens
        return budget

    def take_compiled(self) -> list[Parked]:
        """Give requests whose grammar is ready their matcher; fail those whose grammar failed.

        To be called before a step is planned. What is returned has waited for that, and is now to
        be judged and to `update` with.
        """
        parked = []
        for request in [*self._running, *self._waiting]:
            compiled = request.compiled
            if compiled is None or request.matcher is not None or not compiled.done():
                continue
            try:
                request.start_matching(compiled.result())
            except StructspecError as error:
                self.fail(request, error)
            except CancelledError:
                self.fail(request, Cancelled("the compiler was closed"))
            except Exception as error:  # the library's: no other request is to suffer from it
                logger.exception("request %d got no matcher", request.request_id)
                self.fail(request, EngineError(f"the grammar gave no matcher: {error!r}"))
            if request.parked is not None and not request.is_finished:
                parked.append(request.parked)
                request.parked = None
        return parked

    def _finish(
        self, request: Request, reason: FinishReason, error: StructspecError | None = None
    ) -> None:
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
        elif request in self._waiting:
            self._waiting.remove(request)
        self._block_manager.free(request)
        request.status = RequestStatus.FINISHED
        request.end_text()
        request.finish_reason = reason
        request.error = error
        self._news[request] = None
        self.recorder.finished(request)
