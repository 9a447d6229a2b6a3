"""A grammar of one sequence of tokens and the stop token: what scoring a known text needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structspec.grammars.base import (
    BatchMatching,
    Bitmask,
    FillJob,
    Look,
    Move,
    Packed,
    Report,
    Row,
    Seen,
)
from structspec.grammars.drafts import (
    fill_job,
    look_each,
    take_allowed,
    take_each,
    take_first_allowed,
)
from structspec.vocabulary import Vocabulary


class TokenSequence:
    """A compiled grammar that admits these tokens, then any stop token, and nothing else."""

    report = Report("tokens")
    compile_ms = 0.0
    num_bytes = 0
    wide_row: Row | None = None
    start_row: Row | None = None

    def __init__(self, token_ids: Sequence[int], vocabulary: Vocabulary) -> None:
        self.token_ids = tuple(token_ids)
        self.vocabulary = vocabulary

    @property
    def backend(self) -> BatchMatching:
        """One for all."""
        return _ONE_BY_ONE

    def expect(self) -> None:
        """There is nothing to prepare."""

    def matcher(self) -> SequenceMatcher:
        """A matcher before the first token."""
        return SequenceMatcher(self)

    def pack(self) -> Packed | None:
        """It is made in no time."""
        return None


class SequenceMatcher:
    """A place in a sequence of tokens."""

    __slots__ = ("_grammar", "_num_taken")

    def __init__(self, grammar: TokenSequence) -> None:
        self._grammar = grammar
        self._num_taken = 0  # stop tokens included

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Allow the next token, at the end the stop tokens."""
        bitmask[row] = 0
        words = bitmask[row].view(np.uint32)
        for token_id in self._allowed():
            words[token_id // 32] |= np.uint32(1 << token_id % 32)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        is_allowed = token_id in self._allowed()
        self._num_taken += is_allowed
        return is_allowed

    def rollback(self, num_tokens: int) -> None:
        """Undo the last accepted tokens."""
        assert num_tokens <= self._num_taken
        self._num_taken -= num_tokens

    def forced(self, limit: int) -> bytes:
        """Nothing: the text could be cut into other tokens than these."""
        return b""

    def forced_tokens(self, limit: int) -> list[int]:
        """What is left of the sequence."""
        return list(self._grammar.token_ids[self._num_taken : self._num_taken + limit])

    def tokens_to_end(self) -> int | None:
        """What is left of the sequence and a stop token."""
        return max(0, len(self._grammar.token_ids) + 1 - self._num_taken)

    def _allowed(self) -> Sequence[int]:
        left = self._grammar.token_ids[self._num_taken : self._num_taken + 1]
        return left or self._grammar.vocabulary.stop_token_ids


class _OneByOne:
    """Moves matchers by the laws of Matcher alone: a token costs next to nothing here."""

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """As BatchMatching says."""
        return [fill_job(job, bitmask) for job in jobs]

    def take_shown(self, moves: Sequence[Move]) -> list[Exception | None]:
        """As BatchMatching says."""
        return take_each(moves)

    def take_unseen(self, moves: Sequence[Move]) -> list[int | Exception]:
        """As BatchMatching says."""
        return take_allowed(moves)

    def take_first(self, moves: Sequence[Move]) -> list[int | Exception]:
        """As BatchMatching says."""
        return take_first_allowed(moves)

    def look_ahead(self, looks: Sequence[Look]) -> list[Seen | Exception]:
        """As BatchMatching says."""
        return look_each(looks)


_ONE_BY_ONE = _OneByOne()
