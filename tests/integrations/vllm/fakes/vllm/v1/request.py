"""A request as the engine core has it."""

from __future__ import annotations

from typing import Any

from vllm.v1.structured_output.request import StructuredOutputRequest


class Request:
    """Its tokens, and what it must be."""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        sampling_params: Any,
        structured_outputs: dict[str, Any] | None = None,
    ) -> None:
        self.request_id = request_id
        self.sampling_params = sampling_params
        self.max_tokens: int = sampling_params.max_tokens
        self.num_prompt_tokens = len(prompt_token_ids)
        self.all_token_ids = list(prompt_token_ids)
        self.spec_token_ids: list[int] = []
        self.is_prefill_chunk = False
        self.has_ended = False
        self.structured_output_request = (
            None if structured_outputs is None else StructuredOutputRequest(structured_outputs)
        )

    @property
    def use_structured_output(self) -> bool:
        """Whether it must be anything."""
        return self.structured_output_request is not None

    @property
    def num_output_tokens(self) -> int:
        """Written so far."""
        return len(self.all_token_ids) - self.num_prompt_tokens

    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.has_ended
