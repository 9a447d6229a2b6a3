"""The scheduler's side of structured output and drafts."""

from __future__ import annotations

from typing import Any


class Scheduler:
    """Keeps the requests; nothing is scheduled here."""

    def __init__(
        self,
        vllm_config: Any,
        kv_cache_config: Any,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        mm_registry: Any = None,
        include_finished_set: bool = False,
        log_stats: bool = False,
    ) -> None:
        self.vllm_config = vllm_config
        self.structured_output_manager = structured_output_manager
        self.requests: dict[str, Any] = {}

    def add_request(self, request: Any) -> None:
        """Take a request."""
        self.requests[request.request_id] = request

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """The rows of the requests of a step."""
        request_ids = [
            request_id
            for request_id in scheduler_output.num_scheduled_tokens
            if self.requests[request_id].use_structured_output
        ]
        return self.structured_output_manager.grammar_bitmask(
            self.requests, request_ids, scheduler_output.scheduled_spec_decode_tokens
        )

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Take in drafts, those of grammars up to the first token that is refused."""
        for request_id, draft in zip(
            draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True
        ):
            request = self.requests.get(request_id)
            if request is None or request.is_finished():
                continue
            if request.use_structured_output:
                draft = request.structured_output_request.grammar.validate_tokens(draft)
            request.spec_token_ids = draft
