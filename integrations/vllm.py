"""vLLM with structspec's grammars and drafts.

    vllm serve MODEL --scheduler-cls structspec.integrations.vllm.Scheduler \\
        --speculative-config '{"method": "custom_class", "num_speculative_tokens": 7,
                               "model": "structspec.integrations.vllm.Proposer"}'

    scheduler process                              worker process
    StructSpecBackend ─ masks                      Proposer ─ drafts from the text of each row
    Scheduler ─ drafts steered by the grammar  ←── its drafts, for requests without a grammar

Against the interfaces of vLLM 0.26 to 0.33. What they do not allow is told in docs/vllm.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

try:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler as _AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler as _Scheduler
except ImportError as error:
    raise ImportError(
        "structspec.integrations.vllm is imported by vLLM 0.26 or newer, in its own environment:"
        f" {error}"
    ) from error

from structspec.integrations.vllm_drafts import Drafts, Wanted
from structspec.integrations.vllm_grammar import (
    GrammarOptions,
    StructSpecBackend,
    StructSpecGrammar,
    has_options,
    vocabulary_of,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "AsyncScheduler",
    "GrammarOptions",
    "Proposer",
    "Scheduler",
    "StructSpecBackend",
    "StructSpecGrammar",
]

_NUM_THREADS = 2  # that wait for requests with options of their own to be compiled


class _WithStructSpec:
    """What structspec adds to a scheduler of vLLM's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        this: Any = self
        config, manager = this.vllm_config, this.structured_output_manager
        self._backend = StructSpecBackend(
            config, tokenizer=manager.tokenizer, vocab_size=config.model_config.get_vocab_size()
        )
        manager.backend = self._backend  # it makes one of its own only where there is none
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="structspec-compile")
        speculative = config.speculative_config
        num_tokens = 0 if speculative is None else speculative.num_speculative_tokens or 0
        # an asynchronous step's drafts are on the GPU before the scheduler hears of them
        is_steered = num_tokens > 0 and not config.scheduler_config.async_scheduling
        self._drafts = Drafts(self._backend.vocabulary, num_tokens) if is_steered else None

    def add_request(self, request: Any) -> None:
        """Take a request, whose grammar is compiled anew where it has options of its own."""
        grammar = self._own_grammar(request)
        if grammar is not None:
            request.structured_output_request.grammar = grammar
        super().add_request(request)  # type: ignore[misc]

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Take in a step's drafts; a request with a grammar gets those that it steers."""
        if self._drafts is not None:
            steered = self._steered(self._drafts, draft_token_ids.req_ids)
            drafts = [
                steered.get(request_id, draft)
                for request_id, draft in zip(
                    draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True
                )
            ]
            draft_token_ids = replace(draft_token_ids, draft_token_ids=drafts)
        super().update_draft_token_ids(draft_token_ids)  # type: ignore[misc]

    def _own_grammar(self, request: Any) -> Future[StructSpecGrammar] | None:
        """The grammar of a request with options of its own; None where it has none."""
        asked, params = request.structured_output_request, request.sampling_params
        extra_args = None if params is None else params.extra_args
        if asked is None or not has_options(extra_args):
            return None
        stop_token_ids = params.all_stop_token_ids

        def compile_it() -> StructSpecGrammar:
            options = self._backend.options.of_request(extra_args)
            kind, text = asked.structured_output_key
            return self._backend.compile_with(options, kind, text, stop_token_ids)

        return self._threads.submit(compile_it)

    def _num_left(self, request: Any) -> int:
        """How many tokens a request may still write."""
        max_model_len = self.vllm_config.model_config.max_model_len  # type: ignore[attr-defined]
        in_context = max_model_len - request.num_prompt_tokens
        return int(min(request.max_tokens, in_context) - request.num_output_tokens)

    def _steered(self, drafts: Drafts, request_ids: Sequence[str]) -> dict[str, list[int]]:
        """A draft for each request whose grammar has begun."""
        requests = self.requests  # type: ignore[attr-defined]
        drafts.keep_only(key for key in requests if not requests[key].is_finished())
        wanted = []
        for request_id in request_ids:
            request = requests.get(request_id)
            if request is None or request.is_finished() or request.is_prefill_chunk:
                continue
            grammar = _grammar_of(request)
            if grammar is not None and self._is_answering(request):
                wanted.append(
                    Wanted(
                        request_id,
                        request.all_token_ids,
                        request.num_prompt_tokens,
                        self._num_left(request) - 1,
                        grammar.matcher,
                    )
                )
        keys = (str(one.key) for one in wanted)
        return dict(zip(keys, drafts.propose(wanted), strict=True))

    def _is_answering(self, request: Any) -> bool:
        """Whether its reasoning, if there may be any, has ended."""
        manager = self.structured_output_manager  # type: ignore[attr-defined]
        if manager.reasoner_cls is None or manager.enable_in_reasoning:
            return True
        return bool(request.structured_output_request.reasoning_ended)


def _grammar_of(request: Any) -> StructSpecGrammar | None:
    """Its position, once it is compiled."""
    asked = request.structured_output_request
    grammar = None if asked is None else asked.grammar
    return grammar if isinstance(grammar, StructSpecGrammar) else None


class Scheduler(_WithStructSpec, _Scheduler):
    """vLLM's scheduler; what a request must be is held, and drafted, by structspec."""


class AsyncScheduler(_WithStructSpec, _AsyncScheduler):
    """The same for asynchronous scheduling, without drafts that a grammar steers."""


class Proposer:
    """A `custom_class` of vLLM's: drafts from the tokens of a row, and of rows before it.

    It is told neither which request a row is nor what that must be: those with a grammar get
    their drafts from `Scheduler`. A row goes by its length and last tokens from step to step.
    """

    def __init__(self, vllm_config: Any) -> None:
        from vllm.tokenizers import cached_tokenizer_from_config

        model = vllm_config.model_config
        vocabulary = vocabulary_of(
            vllm_config, cached_tokenizer_from_config(model), model.get_vocab_size()
        )
        num_tokens = vllm_config.speculative_config.num_speculative_tokens
        self._drafts = Drafts(vocabulary, num_tokens)
        self._max_model_len = model.max_model_len

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: np.ndarray,  # of each row, the sampled ones included
        token_ids_cpu: np.ndarray,  # [num_rows, max_model_len]
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """A draft for each row; none for those that have drawn nothing in this step."""
        wanted: dict[int, Wanted] = {}
        renamed: dict[Hashable, Hashable] = {}
        for row, sampled in enumerate(sampled_token_ids):
            num_tokens = int(num_tokens_no_spec[row])
            if not sampled or num_tokens >= self._max_model_len:
                continue
            token_ids = token_ids_cpu[row, :num_tokens].tolist()
            num_before = num_tokens - len(sampled)
            key = row_key(token_ids)
            renamed[row_key(token_ids[:num_before])] = key
            wanted[row] = Wanted(key, token_ids, num_before, self._max_model_len - num_tokens - 1)
        self._drafts.rename(renamed)
        self._drafts.keep_only([one.key for one in wanted.values()])
        drafts = dict(zip(wanted, self._drafts.propose([*wanted.values()]), strict=True))
        return [drafts.get(row, []) for row in range(len(sampled_token_ids))]

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is no model to load."""


_NUM_KEY_TOKENS = 32


def row_key(token_ids: Sequence[int]) -> tuple[int, ...]:
    """How many tokens there are, and the last of them: two rows with the same key write alike."""
    return (len(token_ids), *token_ids[-_NUM_KEY_TOKENS:])
