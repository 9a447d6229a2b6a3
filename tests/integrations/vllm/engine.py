"""An engine core without a model: a scheduler of ours, whose requests write what they are told."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from structspec.integrations.vllm import AsyncScheduler, Scheduler
from tests.small_tokenizers import byte_level_tokenizer

TOKENIZER = byte_level_tokenizer()
STOP = TOKENIZER.token_to_id("<|im_end|>")
VOCAB_SIZE = 320  # wider than the tokenizer, as models' logits are
PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Alan"]}, "born": {"type": "integer"}},
    "required": ["name", "born"],
}


def encode(text: str) -> list[int]:
    return list(TOKENIZER.encode(text).ids)


def config(num_drafts: int = 0, *, is_async: bool = False, **options: Any) -> Any:
    """Of vLLM's settings those that are looked at."""
    model = SimpleNamespace(
        the_tokenizer=TOKENIZER,
        tokenizer="nowhere",
        max_model_len=256,
        get_vocab_size=lambda: VOCAB_SIZE,
    )
    speculative = SimpleNamespace(num_speculative_tokens=num_drafts) if num_drafts else None
    return SimpleNamespace(
        model_config=model,
        speculative_config=speculative,
        scheduler_config=SimpleNamespace(async_scheduling=is_async),
        structured_outputs_config=SimpleNamespace(disable_any_whitespace=False),
        additional_config={"structspec": options} if options else {},
    )


class Core:
    """What vLLM's engine core does with a scheduler, a step at a time."""

    def __init__(self, num_drafts: int = 0, *, is_async: bool = False, **options: Any) -> None:
        settings = config(num_drafts, is_async=is_async, **options)
        self.manager = StructuredOutputManager(settings)
        kind = AsyncScheduler if is_async else Scheduler
        self.scheduler = kind(settings, None, self.manager, 16)
        self.requests: dict[str, Request] = {}

    def add(
        self,
        constraint: dict[str, Any] | None,
        *,
        prompt: str = "?",
        max_tokens: int = 100,
        stop_token_ids: Sequence[int] = (),
        **extra_args: Any,
    ) -> Request:
        """A request whose grammar is ready."""
        params = SimpleNamespace(
            max_tokens=max_tokens,
            extra_args=extra_args or None,
            all_stop_token_ids={STOP, *stop_token_ids},
        )
        request = Request(f"request {len(self.requests)}", encode(prompt), params, constraint)
        self.requests[request.request_id] = request
        if constraint is not None:
            self.manager.grammar_init(request)
        self.scheduler.add_request(request)
        asked = request.structured_output_request
        while asked is not None and asked.grammar is None:
            pass
        return request

    def write(self, request: Request, token_ids: Sequence[int]) -> None:
        """Tokens that were sampled."""
        request.all_token_ids.extend(token_ids)
        if request.use_structured_output:
            grammar = request.structured_output_request.grammar
            assert grammar.accept_tokens(request.request_id, list(token_ids))

    def draft(self, request: Request, proposed: Sequence[int] = ()) -> list[int]:
        """What is scheduled for it behind the worker's proposal."""
        told = DraftTokenIds([request.request_id], [list(proposed)])
        self.scheduler.update_draft_token_ids(told)
        return list(request.spec_token_ids)

    def allowed(self, request: Request, draft: Sequence[int] = ()) -> list[set[int]]:
        """What each row of a step allows."""
        step = SimpleNamespace(
            num_scheduled_tokens={request.request_id: 1 + len(draft)},
            scheduled_spec_decode_tokens={request.request_id: list(draft)},
            has_structured_output_requests=True,
        )
        rows = self.scheduler.get_grammar_bitmask(step)
        bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
        return [set(np.flatnonzero(row).tolist()) for row in bits]
