"""Grammars and masks of an engine's requests."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


class StructuredOutputManager:
    """Compiles with the backend that it finds, and fills a row for each position of a draft."""

    def __init__(self, vllm_config: Any) -> None:
        self.backend: Any = None
        self.reasoner_cls: type | None = None
        self.vllm_config = vllm_config
        self.tokenizer = vllm_config.model_config.the_tokenizer
        self.enable_in_reasoning = False
        self._rows: Any = None

    def grammar_init(self, request: Any) -> None:
        """Have a request's grammar compiled."""
        assert self.backend is not None, "vLLM would take one of its own"
        asked = request.structured_output_request
        future: Future[Any] = Future()
        try:
            future.set_result(self.backend.compile_grammar(*asked.structured_output_key))
        except Exception as error:
            future.set_exception(error)
        asked.grammar = future

    def grammar_bitmask(
        self,
        requests: dict[str, Any],
        structured_output_request_ids: list[str],
        scheduled_spec_decode_tokens: dict[str, list[int]],
    ) -> Any:
        """1 + draft rows for each request; each draft token must be allowed by the row before."""
        self._rows = self.backend.allocate_token_bitmask(64)
        row = 0
        for request_id in structured_output_request_ids:
            grammar = requests[request_id].structured_output_request.grammar
            draft = scheduled_spec_decode_tokens.get(request_id, [])
            for place in range(len(draft) + 1):
                if not grammar.is_terminated():
                    grammar.fill_bitmask(self._rows, row)
                row += 1
                if place < len(draft):
                    assert grammar.accept_tokens(request_id, [draft[place]])
            grammar.rollback(len(draft))
        return self._rows[:row].numpy()
