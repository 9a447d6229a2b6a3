"""What finished responses had, for requests that write the like: agents' loops, templates.

    newest  ████████░░░░   takes new responses
            ████████████
            ████████████
    oldest  ████████████   what is still drafted from moves to the newest; then all of it is freed

A suffix automaton forgets nothing, so there are several, of fixed size, in a ring.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from structspec.drafters.suffix_automaton import (
    EDGE_SIZE,
    HEAD_SIZE,
    LAST,
    NODE_SIZE,
    NUM_TOKENS,
    ROOT,
    WINDOW,
    WINDOW_LENGTH,
    Int32s,
    draft,
    extend,
    reset,
    walk,
)
from structspec.drafters.suffix_tree import Guess, SuffixSettings
from structspec.errors import InvalidRequest
from structspec.kernels.compiled import compiled_in_order

_NUM_SEGMENTS = 4
_BYTES_PER_NODE = 4 * (NODE_SIZE + 1) + 3 * EDGE_SIZE + 6  # with 3/4 edge, 1 1/2 slots, one token
_FEWEST_NODES = 64


@dataclass(slots=True)
class _Segment:
    """Responses that one automaton holds, in the order they came."""

    responses: list[Int32s] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # where in the segment's text each ends
    to_move: dict[int, None] = field(default_factory=dict)  # drafted from while it is the oldest
    moved: set[int] = field(default_factory=set)


class ResponseMemory:
    """A bounded memory of responses; those drafted from the longest ago go first.

    Never more than `max_num_responses`, nor than `max_num_bytes`, which are touched only as it
    fills. Adding a token takes constant time on average, drafting the same for every content.
    """

    def __init__(
        self, settings: SuffixSettings, max_num_responses: int = 10_000, max_num_bytes: int = 2**28
    ) -> None:
        num_nodes = max_num_bytes // _NUM_SEGMENTS // _BYTES_PER_NODE
        if max_num_responses < _NUM_SEGMENTS or num_nodes < _FEWEST_NODES:
            least = _NUM_SEGMENTS * _FEWEST_NODES * _BYTES_PER_NODE
            raise InvalidRequest(
                f"a memory of responses needs room for {_NUM_SEGMENTS} of them and {least} bytes, "
                f"not for {max_num_responses} and {max_num_bytes}"
            )
        self._settings = settings
        self._max_num_responses = max_num_responses // _NUM_SEGMENTS  # of one segment
        num_edges = 3 * num_nodes // 4
        self._heads = np.zeros((_NUM_SEGMENTS, HEAD_SIZE), np.int64)
        self._nodes = np.empty((_NUM_SEGMENTS, num_nodes, NODE_SIZE), np.int32)
        self._edges = np.empty((_NUM_SEGMENTS, num_edges, EDGE_SIZE), np.int32)
        self._slots = np.zeros((_NUM_SEGMENTS, 2 * num_edges), np.int32)
        self._out = np.empty((_NUM_SEGMENTS, settings.max_num_drafted), np.int32)
        self._segments = [_Segment() for _ in range(_NUM_SEGMENTS)]
        for index in range(_NUM_SEGMENTS):
            reset(self._heads[index], self._nodes[index], self._slots[index, :0])  # 0 already
        self._newest_first = np.arange(_NUM_SEGMENTS)

    @property
    def num_responses(self) -> int:
        """How many are remembered; one that moves counts twice for a while."""
        return sum(len(segment.responses) for segment in self._segments)

    @property
    def num_bytes(self) -> int:
        """What the automata take, and the tokens themselves."""
        arrays = self._nodes, self._edges, self._slots, self._out
        responses = [one for segment in self._segments for one in segment.responses]
        return sum(array.nbytes for array in (*arrays, *responses))

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember a response; of one longer than a segment, its beginning."""
        self._insert(np.array(token_ids, np.int32))
        oldest = self._segments[int(self._newest_first[-1])]
        if oldest.to_move:  # one at a time: that takes no longer than adding
            place = next(iter(oldest.to_move))
            del oldest.to_move[place]
            oldest.moved.add(place)
            self._insert(oldest.responses[place])

    def draft(self, token_ids: Sequence[int], limit: int, min_match: int = 1) -> Guess:
        """At most `limit` tokens that likely follow these, as SuffixTree.draft has it.

        Each segment is asked by itself, and the best score counts, of equals the newest. Changes
        nothing but which responses count as used.
        """
        settings = self._settings
        context = np.array(token_ids[-settings.max_order :], np.int32)
        index, num_tokens, score, place = _draft_best(
            self._newest_first,
            self._heads,
            self._nodes,
            self._edges,
            self._slots,
            context,
            min_match,
            settings.max_order,
            limit,
            float(settings.max_spec_factor),
            float(settings.max_spec_offset),
            float(settings.min_token_prob),
            self._out,
        )
        if num_tokens > 0 and index == self._newest_first[-1]:
            segment = self._segments[index]
            response = bisect_right(segment.ends, place)
            if response not in segment.moved:
                segment.to_move[response] = None
        return Guess(self._out[index, :num_tokens].tolist(), score)

    def _arrays(self, index: int) -> tuple[Any, ...]:
        return self._heads[index], self._nodes[index], self._edges[index], self._slots[index]

    def _insert(self, response: Int32s) -> None:
        index = int(self._newest_first[0])
        max_num_tokens = self._nodes.shape[1]
        response = response[:max_num_tokens]
        is_full = (
            len(self._segments[index].responses) == self._max_num_responses
            or self._heads[index, NUM_TOKENS] + len(response) > max_num_tokens
        )
        if is_full or self._extend(index, response) < len(response):
            self._free_oldest()
            self._extend(int(self._newest_first[0]), response)

    def _extend(self, index: int, response: Int32s) -> int:
        """Take in as much as there is room for; says how many tokens."""
        head, *arrays = self._arrays(index)
        head[LAST], head[WINDOW], head[WINDOW_LENGTH] = ROOT, ROOT, 0  # a text of its own
        num_taken = int(extend(head, *arrays, response, self._settings.max_order))
        segment = self._segments[index]
        segment.responses.append(response[:num_taken])
        segment.ends.append(int(head[NUM_TOKENS]))
        return num_taken

    def _free_oldest(self) -> None:
        """Make the oldest segment the newest, empty."""
        self._newest_first = np.roll(self._newest_first, 1)
        index = int(self._newest_first[0])
        self._segments[index] = _Segment()
        reset(self._heads[index], self._nodes[index], self._slots[index])


@compiled_in_order
def _draft_best(
    newest_first: Any,
    heads: Any,
    nodes: Any,
    edges: Any,
    slots: Any,
    context: Any,
    min_match: Any,
    max_order: Any,
    limit: Any,
    factor: Any,
    offset: Any,
    min_prob: Any,
    out: Any,
) -> Any:
    """The best segment's number, and its draft: how many tokens of `out`, score and place."""
    best, best_num_tokens, best_score, best_place = newest_first[0], 0, 0.0, -1
    for index in newest_first:
        if heads[index, NUM_TOKENS] == 0:
            continue
        arrays = nodes[index], edges[index], slots[index]
        node, length = walk(*arrays, ROOT, 0, context, max_order)
        num_tokens, score, place = draft(
            *arrays,
            node,
            length,
            min_match,
            max_order,
            limit,
            factor,
            offset,
            min_prob,
            out[index],
        )
        if score > best_score:
            best, best_num_tokens, best_score, best_place = index, num_tokens, score, place
    return best, best_num_tokens, best_score, best_place
