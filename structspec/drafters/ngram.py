"""Prompt lookup: what followed the last tokens the last time they occurred."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from structspec.drafters.base import count_slots
from structspec.engine.batch import Batch, Draft, guessed
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig

TokenArray = NDArray[np.int32]


@numba.njit("int64(int32[::1], int64, int64)", nogil=True, cache=False)  # type: ignore[untyped-decorator]
def find_continuation(token_ids: TokenArray, min_match: int, max_match: int) -> int:
    """Where the longest earlier match of the last tokens goes on; 0 where there is none.

    Matches are `min_match` to `max_match` tokens long; of equally long ones the last counts.
    """
    end = token_ids.shape[0]
    best, best_length = 0, min_match - 1
    for position in range(end - 1, min_match - 1, -1):  # the match would end before `position`
        length = 0
        while (
            length < max_match
            and length < position
            and token_ids[position - 1 - length] == token_ids[end - 1 - length]
        ):
            length += 1
        if length > best_length:
            best, best_length = position, length
            if length == max_match:
                break
    return best


class TokenBuffer:
    """One request's tokens as an array, kept across steps: a step copies only what is new."""

    __slots__ = ("_array", "_num_known")

    def __init__(self) -> None:
        self._array: TokenArray = np.empty(256, np.int32)
        self._num_known = 0

    def view(self, known: Sequence[int], draft: Sequence[int]) -> TokenArray:
        """`known` then `draft`; `known` must go on where the last call's `known` ended."""
        length = len(known) + len(draft)
        if length > self._array.shape[0]:
            grown: TokenArray = np.empty(2 * length, np.int32)
            grown[: self._num_known] = self._array[: self._num_known]
            self._array = grown
        self._array[self._num_known : len(known)] = known[self._num_known :]
        self._array[len(known) : length] = draft
        self._num_known = len(known)
        return self._array[:length]


class NgramDrafter:
    """Drafts by prompt lookup over prompt, output and what is already drafted.

    Keeps one buffer for each request of the last batch; the search is compiled at import.
    """

    def __init__(self, config: SpeculativeConfig) -> None:
        self._config = config
        self._buffers: dict[int, TokenBuffer] = {}

    def propose(self, batch: Batch) -> Draft:
        """The n-gram continuation of each request, unaware of grammars."""
        self.keep_only(batch)
        drafts = [
            self.continue_from(scheduled.request, (), count_slots(scheduled))
            if scheduled.may_guess
            else []
            for scheduled in batch.requests
        ]
        return guessed(drafts)

    def continue_from(
        self, request: Request, draft: Sequence[int], limit: int, *, min_match: int = 1
    ) -> list[int]:
        """At most `limit` tokens that followed the like of the request's tokens and `draft`.

        A match of fewer than `min_match` tokens, or than the configured least, is none.
        """
        if limit <= 0:
            return []
        buffer = self._buffers.setdefault(request.request_id, TokenBuffer())
        tokens = buffer.view(request.token_ids, draft)
        config = self._config
        shortest = max(min_match, config.prompt_lookup_min)
        if shortest > config.prompt_lookup_max:
            return []
        start = find_continuation(tokens, shortest, config.prompt_lookup_max)
        guess: list[int] = tokens[start : start + limit].tolist() if start else []
        return guess

    def keep_only(self, batch: Batch) -> None:
        """Forget requests that are not in this batch."""
        here = {scheduled.request.request_id for scheduled in batch.requests}
        self._buffers = {key: buffer for key, buffer in self._buffers.items() if key in here}
