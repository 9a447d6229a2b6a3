"""Drafts from the output that a user expects: OpenAI's `prediction`, for edits of a known text.

    prediction   def  area (  self  )  :   return  w  *  h
    output       def  size (                       cursor ^ at `self`: `size` took `area`'s place

While the output goes on as predicted the cursor moves along. Where it does not, the cursor moves
behind the longest match of the last tokens that ends near it, and further away only behind a match
of four tokens that is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec.drafters.base import Glimpse, count_slots, looked_up
from structspec.drafters.suffix_automaton import NEXT_PLACE, NONE, ROOT, Int32s, followed, walk
from structspec.drafters.suffix_tree import SuffixSettings, SuffixTree
from structspec.engine.batch import Batch, Draft
from structspec.kernels.compiled import compiled_in_order
from structspec.request import Request

_MAX_MATCH = 16  # tokens compared
_MAX_NEAR = 64  # tokens from the cursor
_MIN_FAR_MATCH = 4
_SETTINGS = SuffixSettings(max_tree_depth=_MAX_MATCH + 1)


class PredictionDrafter:
    """Drafts how a request's prediction goes on behind what it has written.

    `prediction_of` gives a request's predicted output tokens, None where there are none (`.get` of
    a dict by request does); it is asked once. A token costs constant time.
    """

    def __init__(self, prediction_of: Callable[[Request], Sequence[int] | None]) -> None:
        self._prediction_of = prediction_of
        self._known: dict[int, _Known] = {}
        _Alignment([0]).follow([0], 1)  # compiles, so that no request waits for it

    def propose(self, batch: Batch) -> Draft:
        """The rest of each request's prediction, unaware of grammars."""
        self.forget_finished()
        drafts = [
            self.continue_from(scheduled.request, (), count_slots(scheduled))
            if scheduled.may_guess
            else []
            for scheduled in batch.requests
        ]
        known = [self._known.get(one.request.request_id) for one in batch.requests]
        is_predicted = [one is None or one.alignment is not None for one in known]
        return looked_up(drafts, Batch(list(compress(batch.requests, is_predicted))))

    def glimpse(self, requests: Sequence[Request], limit: int) -> list[Glimpse]:
        """The rest of each request's prediction."""
        return [
            Glimpse(("prediction", 0), self.continue_from(request, (), limit))
            for request in requests
        ]

    def forget_finished(self) -> None:
        """Let go of requests that are finished; to be called in every step."""
        for key in [key for key, known in self._known.items() if known.request.is_finished]:
            del self._known[key]

    def continue_from(self, request: Request, draft: Sequence[int], limit: int) -> list[int]:
        """At most `limit` predicted tokens behind the request's tokens and `draft`.

        None where the last of them are nowhere in the prediction.
        """
        known = self._known.get(request.request_id)
        if known is None:
            prediction = self._prediction_of(request)
            alignment = _Alignment(prediction) if prediction else None
            known = self._known[request.request_id] = _Known(request, alignment)
        if known.alignment is None or limit <= 0:
            return []
        return known.alignment.continue_from(request, draft, limit)


@dataclass(frozen=True, slots=True)
class _Known:
    """A request that is not finished, and where it is in its prediction, if it has one."""

    request: Request
    alignment: _Alignment | None


_CURSOR, _CENTER, _NODE, _LENGTH, _STATE_SIZE = range(5)


class _Alignment:
    """Where one output is in its prediction."""

    __slots__ = ("_num_followed", "_prediction", "_state", "_tree")

    def __init__(self, prediction: Sequence[int]) -> None:
        self._prediction: Int32s = np.array(prediction, np.int32)
        self._tree = SuffixTree(_SETTINGS, len(prediction))
        self._tree.extend(prediction)
        self._state = np.zeros(_STATE_SIZE, np.int64)
        self._num_followed = 0

    def continue_from(self, request: Request, draft: Sequence[int], limit: int) -> list[int]:
        """At most `limit` tokens behind the output and `draft`."""
        num_new = request.num_output_tokens - self._num_followed
        last = request.last_output_token_ids(_MAX_MATCH + num_new)
        state = self._state = self.follow(last, num_new)
        self._num_followed += num_new
        if draft:
            state = self.follow([*last[-_MAX_MATCH:], *draft], len(draft))
        cursor = int(state[_CURSOR])
        return [] if cursor == NONE else self._prediction[cursor : cursor + limit].tolist()

    def follow(self, token_ids: Sequence[int], num_new: int) -> NDArray[np.int64]:
        """Where the output is once the last `num_new` of these stand behind it."""
        state = self._state.copy()
        last = np.array(token_ids, np.int32)
        _follow(*self._tree.arrays, self._prediction, last, len(last) - num_new, state)
        return state


@compiled_in_order
def _follow(
    nodes: Any, edges: Any, slots: Any, prediction: Any, token_ids: Any, num_old: Any, state: Any
) -> None:
    """Move the state over the tokens behind the first `num_old`.

    CURSOR is where the output goes on in the prediction, or NONE; CENTER where it last did for
    sure; NODE and LENGTH are the longest match in the automaton of the prediction.
    """
    for index in range(num_old, len(token_ids)):
        last = token_ids[: index + 1]
        node, length = walk(
            nodes, edges, slots, state[_NODE], state[_LENGTH], last[index:], _MAX_MATCH
        )
        state[_NODE], state[_LENGTH] = node, length
        cursor = state[_CURSOR]
        if cursor != NONE and cursor < len(prediction) and prediction[cursor] == last[index]:
            state[_CURSOR] = state[_CENTER] = cursor + 1
            continue
        place, match = _find_near(prediction, last, state[_CENTER])
        node, length = followed(nodes, node, length)
        if node != ROOT and length >= _MIN_FAR_MATCH and length > match:
            place, match = np.int64(nodes[node, NEXT_PLACE]), length
        state[_CURSOR] = place
        if match > 1:  # a single token may be there by chance
            state[_CENTER] = place


@compiled_in_order
def _find_near(prediction: Any, last: Any, center: Any) -> Any:
    """Behind the longest match that ends near the center, the nearest of equals; and its length."""
    best, best_match = NONE, 0
    for distance in range(_MAX_NEAR + 1):
        for place in (center + distance, center - distance):
            if not 0 < place <= len(prediction):
                continue
            match = 0
            most = min(place, len(last), _MAX_MATCH)
            while match < most and prediction[place - 1 - match] == last[len(last) - 1 - match]:
                match += 1
            if match > best_match:
                best, best_match = place, match
    return best, best_match
