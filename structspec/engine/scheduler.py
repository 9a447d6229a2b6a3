"""Which requests take part in a step, with how many tokens; and what a step's output means."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import CancelledError

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft, SamplerOutput, ScheduledRequest
from structspec.engine.block_manager import BlockManager
from structspec.engine.progress import append_tokens, record_step
from structspec.errors import Cancelled, StructspecError
from structspec.request import FinishReason, Request, RequestStatus
from structspec.vocabulary import Vocabulary


class Scheduler:
    """Continuous batching: oldest first, within a token budget, prompts in chunks.

    When KV blocks run out the newest running request is preempted: it loses its blocks, keeps its
    tokens and its matcher, and is computed again later, where others took the blocks meanwhile.
    Drafts only get what nobody else needs.
    """

    def __init__(
        self,
        config: EngineConfig,
        block_manager: BlockManager,
        vocabulary: Vocabulary,
        max_model_len: int,
    ) -> None:
        self._config = config
        self._block_manager = block_manager
        self._vocabulary = vocabulary
        self._max_model_len = max_model_len
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # oldest first
        self._finished: list[Request] = []  # since the last update

    @property
    def has_requests(self) -> bool:
        """Whether any request is waiting, running or finished but not handed out yet."""
        return bool(self._waiting or self._running or self._finished)

    def add(self, request: Request) -> None:
        """Queue a new request."""
        self._waiting.append(request)

    def fail(self, request: Request, error: StructspecError) -> None:
        """End a request with `error`; nothing happens if it has ended already."""
        if not request.is_finished:
            self._finish(request, "cancelled" if isinstance(error, Cancelled) else "error", error)

    def fail_all(self, error: StructspecError) -> list[Request]:
        """End every request with `error`; returns those not handed out yet."""
        for request in [*self._running, *self._waiting]:
            self.fail(request, error)
        return self.take_news()

    def schedule(self) -> Batch:
        """Choose the next step's requests and reserve their KV blocks; may be empty."""
        self._take_compiled()
        budget = self._config.max_num_batched_tokens
        num_waiting = len(self._waiting)
        shares: list[tuple[Request, int]] = []
        for request in list(self._running):
            # An earlier request of this loop may have preempted this one.
            if request.status is RequestStatus.RUNNING and budget > 0:
                num_tokens = min(self._num_wanted(request), budget)
                if num_tokens > 0 and self._reserve(request, num_tokens):
                    shares.append((request, num_tokens))
                    budget -= num_tokens
        if len(self._waiting) == num_waiting:  # else blocks are short: what left must not come back
            budget = self._admit(shares, budget)
        return self._with_drafts(shares, budget)

    def update(self, batch: Batch, draft: Draft, output: SamplerOutput) -> list[Request]:
        """Take in a step's tokens; returns each request that has news, finished ones included."""
        for index, scheduled in enumerate(batch.requests):
            request = scheduled.request
            if request.is_finished:
                continue
            if request.error is not None:
                self._finish(request, "error", request.error)
                continue
            num_accepted = output.num_accepted[index]
            request.num_computed_tokens += scheduled.num_tokens + num_accepted
            if scheduled.is_sampled:
                record_step(
                    request.stats,
                    draft.is_forced[index],
                    num_accepted,
                )
            if output.token_ids[index] and request.stats.first_token_s is None:
                request.stats.first_token_s = time.perf_counter() - request.arrival_time
            reason = append_tokens(request, output.token_ids[index], self._vocabulary)
            self._block_manager.keep(request)
            if reason is not None:
                self._finish(request, reason)
            else:
                self._block_manager.trim(request, len(request.token_ids))
        return self.take_news(scheduled.request for scheduled in batch.requests)

    def take_news(self, updated: Iterable[Request] = ()) -> list[Request]:
        """`updated` and all that finished since the last call, each once."""
        news = list(dict.fromkeys([*updated, *self._finished]))
        self._finished.clear()
        return news

    def _num_wanted(self, request: Request) -> int:
        """How many known tokens are still to be computed before the next sample."""
        num_missing = len(request.token_ids) - request.num_computed_tokens
        # The last token's logits wait for the grammar that masks them.
        return num_missing - 1 if request.is_grammar_pending else num_missing

    def _reserve(self, request: Request, num_tokens: int) -> bool:
        """Blocks for `num_tokens` more, preempting newer requests; False if itself had to go."""
        while not self._block_manager.allocate(request, request.num_computed_tokens + num_tokens):
            victim = self._running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, request: Request) -> None:
        self._block_manager.free(request)
        self._running.remove(request)
        request.status = RequestStatus.WAITING
        request.num_computed_tokens = 0
        request.stats.num_preemptions += 1
        self._waiting.appendleft(request)

    def _admit(self, shares: list[tuple[Request, int]], budget: int) -> int:
        """Start waiting requests while there is room for a first chunk; returns the budget left."""
        while self._waiting and budget > 0 and len(self._running) < self._config.max_num_requests:
            request = self._waiting[0]
            num_cached = request.num_computed_tokens = self._block_manager.reuse(request)
            num_tokens = min(self._num_wanted(request), budget)
            if not self._block_manager.allocate(request, num_cached + num_tokens):
                self._block_manager.free(request)
                request.num_computed_tokens = 0
                break
            request.stats.num_cached_tokens += num_cached
            self._waiting.popleft()
            request.status = RequestStatus.RUNNING
            self._running.append(request)
            self._running.sort(key=lambda running: running.request_id)
            if num_tokens > 0:
                shares.append((request, num_tokens))
                budget -= num_tokens
        return budget

    def _with_drafts(self, shares: list[tuple[Request, int]], budget: int) -> Batch:
        num_sampled = sum(self._is_sampled(request, n) for request, n in shares)
        per_request = min(
            self._config.speculative.num_speculative_tokens,
            self._config.max_num_draft_tokens // max(num_sampled, 1),
        )
        scheduled = []
        for request, num_tokens in shares:
            is_sampled = self._is_sampled(request, num_tokens)
            num_slots = 0
            if is_sampled and request.params.speculative:
                num_slots = self._reserve_drafts(request, min(per_request, budget))
                budget -= num_slots
            scheduled.append(ScheduledRequest(request, num_tokens, num_slots, is_sampled))
        return Batch(scheduled)

    def _reserve_drafts(self, request: Request, limit: int) -> int:
        """Blocks for drafts, as many as fit; +1: the token that follows them needs no slot yet."""
        num_known = len(request.token_ids)
        num_slots = min(
            limit,
            request.max_tokens - request.num_output_tokens - 1,
            self._max_model_len - num_known - 1,
            self._block_manager.num_available_tokens(request) - num_known,
        )
        if num_slots <= 0:
            return 0
        is_allocated = self._block_manager.allocate(request, num_known + num_slots)
        assert is_allocated
        return num_slots

    def _is_sampled(self, request: Request, num_tokens: int) -> bool:
        return request.num_computed_tokens + num_tokens == len(request.token_ids)

    def _take_compiled(self) -> None:
        """Give requests whose grammar is ready their matcher; fail those whose grammar failed."""
        for request in [*self._running, *self._waiting]:
            if request.compiled is None or request.matcher is not None:
                continue
            if not request.compiled.done():
                continue
            try:
                request.start_matching(request.compiled.result())
            except StructspecError as error:
                self.fail(request, error)
            except CancelledError:
                self.fail(request, Cancelled("the compiler was closed"))

    def _finish(
        self, request: Request, reason: FinishReason, error: StructspecError | None = None
    ) -> None:
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
        elif request in self._waiting:
            self._waiting.remove(request)
        self._block_manager.free(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        request.error = error
        self._finished.append(request)
