"""What a request must be."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vllm.v1.structured_output.backend_types import StructuredOutputOptions


@dataclass
class StructuredOutputRequest:
    """Its constraint, and the grammar once there is one."""

    params: Any
    _grammar: Any = None
    reasoning_ended: bool | None = None

    @property
    def grammar(self) -> Any:
        """The grammar or what it failed with; None while it is compiled."""
        if not isinstance(self._grammar, Future):
            return self._grammar
        if not self._grammar.done():
            return None
        return self._grammar.exception() or self._grammar.result()

    @grammar.setter
    def grammar(self, grammar: Any) -> None:
        self._grammar = grammar

    @cached_property
    def structured_output_key(self) -> tuple[StructuredOutputOptions, str]:
        """The kind, and its text."""
        ((name, value),) = self.params.items()
        kind = StructuredOutputOptions[name.upper()]
        return kind, value if isinstance(value, str) else json.dumps(value)
