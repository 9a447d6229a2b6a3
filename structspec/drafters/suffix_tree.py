"""One text's suffix automaton, which grows with it, and the drafts that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from structspec.drafters.suffix_automaton import (
    EDGE_SIZE,
    HEAD_SIZE,
    NODE_SIZE,
    NUM_EDGES,
    NUM_NODES,
    NUM_TOKENS,
    WINDOW,
    WINDOW_LENGTH,
    Int32s,
    draft,
    extend,
    fill_slots,
    reset,
    walk,
)
from structspec.errors import InvalidRequest

_NUM_SPARE_TOKENS = 128  # that a new tree has room for beyond those it is told of


@dataclass(frozen=True, slots=True)
class SuffixSettings:
    """How far suffix drafts go (SuffixDecoding, Oliaro et al. 2024).

    A match of m tokens gives at most `max_spec_factor` * m + `max_spec_offset` drafts, and none
    behind which all drafts together would hold with less than `min_token_prob`.
    """

    max_tree_depth: int = 24  # tokens that are counted together: a match and what follows it
    max_spec_factor: float = 1.0
    max_spec_offset: float = 0.0
    min_token_prob: float = 0.1

    def __post_init__(self) -> None:
        for name, holds, wanted in (
            ("max_tree_depth", self.max_tree_depth >= 2, "at least 2"),
            ("max_spec_factor", 0 <= self.max_spec_factor < float("inf"), "at least 0"),
            ("max_spec_offset", abs(self.max_spec_offset) < float("inf"), "a number"),
            ("min_token_prob", 0 <= self.min_token_prob <= 1, "in [0, 1]"),
        ):
            if not holds:
                raise InvalidRequest(f"{name} must be {wanted}, not {getattr(self, name)!r}")

    @property
    def max_order(self) -> int:
        """How many tokens a match has at most."""
        return self.max_tree_depth - 1

    @property
    def max_num_drafted(self) -> int:
        """How many tokens the longest match drafts."""
        return max(0, int(self.max_spec_factor * self.max_order + self.max_spec_offset))


class Guess(NamedTuple):
    """Drafted tokens, and how many of them may be expected to hold."""

    token_ids: list[int]
    score: float


NO_GUESS = Guess([], 0.0)


class SuffixTree:
    """What followed each short run of tokens in one text, and how often.

    A token takes constant time on average, and a visit to each shorter run that ends with it. A
    text of n tokens takes 80n to 160n bytes.
    """

    __slots__ = ("_edges", "_head", "_nodes", "_out", "_settings", "_slots")

    def __init__(self, settings: SuffixSettings, num_tokens: int = 0) -> None:
        """Empty; `num_tokens` says how long a text to make room for."""
        num_tokens += _NUM_SPARE_TOKENS
        self._settings = settings
        self._head = np.zeros(HEAD_SIZE, np.int64)
        self._nodes: Int32s = np.empty((3 * num_tokens // 2, NODE_SIZE), np.int32)
        self._edges: Int32s = np.empty((num_tokens, EDGE_SIZE), np.int32)
        self._slots: Int32s = np.empty(2 * num_tokens, np.int32)
        self._out: Int32s = np.empty(settings.max_num_drafted, np.int32)
        reset(self._head, self._nodes, self._slots)

    @property
    def num_tokens(self) -> int:
        """How long the text is."""
        return int(self._head[NUM_TOKENS])

    @property
    def arrays(self) -> tuple[Int32s, Int32s, Int32s]:
        """Nodes, edges and slots, for compiled walks; they are others once the text has grown."""
        return self._nodes, self._edges, self._slots

    @property
    def num_bytes(self) -> int:
        """What its arrays take."""
        return self._nodes.nbytes + self._edges.nbytes + self._slots.nbytes + self._out.nbytes

    def extend(self, token_ids: Sequence[int]) -> None:
        """The text goes on with these."""
        new = np.array(token_ids, np.int32)
        while len(new):
            num_taken = extend(self._head, *self.arrays, new, self._settings.max_order)
            new = new[num_taken:]
            if len(new):
                self._grow()

    def draft(self, token_ids: Sequence[int], limit: int, min_match: int = 1) -> Guess:
        """At most `limit` tokens that likely follow the text and these tokens.

        Each is what most often followed the longest suffix that something followed, the latest of
        equals; matches of fewer than `min_match` tokens are none. Nothing is changed.
        """
        head, settings = self._head, self._settings
        node, length = head[WINDOW], head[WINDOW_LENGTH]
        if token_ids:
            walked = np.array(token_ids, np.int32)
            node, length = walk(*self.arrays, node, length, walked, settings.max_order)
        num_tokens, score, _ = draft(
            *self.arrays,
            np.int64(node),
            np.int64(length),
            min_match,
            settings.max_order,
            limit,
            float(settings.max_spec_factor),
            float(settings.max_spec_offset),
            float(settings.min_token_prob),
            self._out,
        )
        return Guess(self._out[:num_tokens].tolist(), score)

    def _grow(self) -> None:
        """Room for more of whatever is short."""
        head = self._head
        if head[NUM_NODES] + 2 > len(self._nodes):
            self._nodes = _with_room(self._nodes, int(head[NUM_NODES]))
        else:
            self._edges = _with_room(self._edges, int(head[NUM_EDGES]))
            self._slots = np.zeros(2 * len(self._edges), np.int32)
            fill_slots(self._edges, 0, head[NUM_EDGES], self._slots)


def _with_room(array: Int32s, num_used: int) -> Int32s:
    grown = np.empty((3 * len(array) // 2, array.shape[1]), np.int32)
    grown[:num_used] = array[:num_used]
    return grown
