"""What was asked of a compiler, and what came of it."""

from __future__ import annotations

import threading

from structspec.errors import CompileTimeout, StructspecError
from structspec.grammars.base import CompiledGrammar
from structspec.metrics import GrammarMetrics
from structspec.metrics_recorder import COMPILE_BOUNDS, OpenHistogram


class CompileCounts:
    """Counts grammars; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_total = self._num_hits = self._num_aborted = self._num_timeouts = 0
        self._seconds = OpenHistogram(COMPILE_BOUNDS)

    def asked(self, *, is_hit: bool) -> None:
        """A grammar was asked for; it was there already, or being compiled, where it is a hit."""
        with self._lock:
            self._num_total += 1
            self._num_hits += is_hit

    def finished(self, result: CompiledGrammar | StructspecError) -> None:
        """A compile has ended."""
        with self._lock:
            if isinstance(result, StructspecError):
                self._num_aborted += 1
                self._num_timeouts += isinstance(result, CompileTimeout)
            else:
                self._seconds.observe(result.compile_ms / 1e3)

    def snapshot(self) -> GrammarMetrics:
        """All of it as it is now."""
        with self._lock:
            return GrammarMetrics(
                self._num_total,
                self._num_hits,
                self._num_aborted,
                self._num_timeouts,
                self._seconds.frozen(),
            )
