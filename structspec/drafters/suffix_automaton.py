"""Which substrings a text has, how often, and what followed each of them: in flat arrays.

A suffix automaton (Blumer et al. 1985). A node is a set of substrings that end at the same places,
so that a text of n tokens has at most 2n nodes, however much of it repeats; a trie of substrings up
to 24 tokens would have 24n. The price is that nothing can be taken out of it again.

    text a b c a b d           node {ab, b} ends at 2 and 5; its link is the root
                               followed by c once and d once: the later is its `NEXT`

    append token:
        the automaton's own step: a new node, maybe one split off a node that means too much now
        for each suffix of at most `max_order` tokens that the text had, longest first:
            count it with the token behind it, and keep the token that followed it most often

Substrings of at most `max_order` + 1 tokens are counted. Of a node's children the first is kept in
the node itself, and most nodes have no other; the rest are in a hash table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec.kernels.compiled import compiled_in_order

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

NONE, ROOT = -1, 0

# head: where the text stands; WINDOW is the node of its last WINDOW_LENGTH <= max_order tokens
NUM_NODES, NUM_EDGES, NUM_TOKENS, LAST, WINDOW, WINDOW_LENGTH, HEAD_SIZE = range(7)

# nodes: its longest substring's LENGTH, the node of the longest suffix that ends elsewhere too, how
# often it occurs and how often something follows, which token does so most (the latest of equals),
# how often, and where that something last was; then its first child and the list of the others
LENGTH, LINK, COUNT, FOLLOWED, NEXT, NEXT_COUNT, NEXT_PLACE = range(7)
TOKEN, CHILD, EDGES, NODE_SIZE = range(7, 11)

# edges: children but the first, found by hash: slots hold 1 + the edge, or 0
SOURCE, LABEL, TARGET, LATER, EDGE_SIZE = range(5)

_FIRST_MIX, _SECOND_MIX = 0x9E3779B1, -0x61C8864680B583EB  # odd, and of no pattern


@compiled_in_order
def reset(head: Any, nodes: Any, slots: Any) -> None:
    """Nothing but the root: the empty substring."""
    head[:] = 0
    slots[:] = 0
    _add_node(head, nodes, 0)


@compiled_in_order
def _add_node(head: Any, nodes: Any, length: Any) -> Any:
    node = head[NUM_NODES]
    head[NUM_NODES] += 1
    nodes[node, :] = NONE
    nodes[node, LENGTH] = length
    nodes[node, COUNT] = nodes[node, FOLLOWED] = nodes[node, NEXT_COUNT] = 0
    return node


@compiled_in_order
def _first_slot(source: Any, label: Any, num_slots: Any) -> Any:
    mixed = (source * _FIRST_MIX + label) * _SECOND_MIX
    return (((mixed >> 32) & 0xFFFFFFFF) * num_slots) >> 32


@compiled_in_order
def _find_edge(edges: Any, slots: Any, source: Any, label: Any) -> Any:
    slot = _first_slot(source, label, len(slots))
    while slots[slot] != 0:
        edge = slots[slot] - 1
        if edges[edge, SOURCE] == source and edges[edge, LABEL] == label:
            return edge
        slot = slot + 1 if slot + 1 < len(slots) else 0
    return NONE


@compiled_in_order
def fill_slots(edges: Any, first_edge: Any, num_edges: Any, slots: Any) -> None:
    """Make edges found that are not yet."""
    for edge in range(first_edge, num_edges):
        slot = _first_slot(np.int64(edges[edge, SOURCE]), edges[edge, LABEL], len(slots))
        while slots[slot] != 0:
            slot = slot + 1 if slot + 1 < len(slots) else 0
        slots[slot] = edge + 1


@compiled_in_order
def _child(nodes: Any, edges: Any, slots: Any, node: Any, token: Any) -> Any:
    """The node of the node's substrings with this token behind them, or NONE."""
    if nodes[node, TOKEN] == token:
        return np.int64(nodes[node, CHILD])
    if nodes[node, EDGES] == NONE:
        return NONE
    edge = _find_edge(edges, slots, node, token)
    return np.int64(edges[edge, TARGET]) if edge != NONE else NONE


@compiled_in_order
def _add_child(
    head: Any, nodes: Any, edges: Any, slots: Any, node: Any, token: Any, child: Any
) -> None:
    if nodes[node, CHILD] == NONE:
        nodes[node, TOKEN], nodes[node, CHILD] = token, child
        return
    edge = head[NUM_EDGES]
    head[NUM_EDGES] += 1
    edges[edge, SOURCE], edges[edge, LABEL], edges[edge, TARGET] = node, token, child
    edges[edge, LATER] = nodes[node, EDGES]
    nodes[node, EDGES] = edge
    fill_slots(edges, edge, edge + 1, slots)


@compiled_in_order
def _split(
    head: Any, nodes: Any, edges: Any, slots: Any, parent: Any, token: Any, node: Any
) -> Any:
    """A node of its own for what `parent` and its suffixes find in `node`.

    They have come to end at one more place than its longer substrings.
    """
    short = _add_node(head, nodes, 0)
    nodes[short, :] = nodes[node, :]
    nodes[short, LENGTH] = nodes[parent, LENGTH] + 1
    nodes[short, EDGES] = NONE
    edge = nodes[node, EDGES]
    while edge != NONE:
        child = np.int64(edges[edge, TARGET])
        _add_child(head, nodes, edges, slots, short, edges[edge, LABEL], child)
        edge = edges[edge, LATER]
    nodes[node, LINK] = short
    while parent != NONE and _child(nodes, edges, slots, parent, token) == node:
        if nodes[parent, TOKEN] == token:
            nodes[parent, CHILD] = short
        else:
            edges[_find_edge(edges, slots, parent, token), TARGET] = short
        parent = np.int64(nodes[parent, LINK])
    return short


@compiled_in_order
def _append(head: Any, nodes: Any, edges: Any, slots: Any, token: Any) -> Any:
    """The automaton's step; False, and nothing done, where the arrays have no room for it."""
    num_added = 0
    parent = head[LAST]  # of the longest suffix that occurred before with this token behind it
    while parent != NONE and _child(nodes, edges, slots, parent, token) == NONE:
        num_added += 1
        parent = np.int64(nodes[parent, LINK])
    node = ROOT if parent == NONE else _child(nodes, edges, slots, parent, token)
    is_split = parent != NONE and nodes[node, LENGTH] != nodes[parent, LENGTH] + 1
    num_edges = head[NUM_EDGES] + num_added + 1  # +1: the split node's, which may just be added to
    edge = nodes[node, EDGES] if is_split else NONE
    while edge != NONE:
        num_edges += 1
        edge = edges[edge, LATER]
    if num_edges > len(edges) or head[NUM_NODES] + 2 > len(nodes):
        return False
    new = NONE
    if num_added > 0:
        last = head[LAST]
        new = _add_node(head, nodes, nodes[last, LENGTH] + 1)
        while last != parent:
            _add_child(head, nodes, edges, slots, last, token, new)
            last = np.int64(nodes[last, LINK])
    if is_split:
        node = _split(head, nodes, edges, slots, parent, token, node)
    if num_added > 0:
        nodes[new, LINK] = node
        head[LAST] = new
    else:  # another text began like this
        head[LAST] = node
    return True


@compiled_in_order
def _holding(nodes: Any, node: Any, length: Any) -> Any:
    """The node of the last `length` tokens of this one's substrings."""
    while node != ROOT and nodes[nodes[node, LINK], LENGTH] >= length:
        node = np.int64(nodes[node, LINK])
    return node


@compiled_in_order
def _count(head: Any, nodes: Any, edges: Any, slots: Any, token: Any, max_order: Any) -> None:
    """Count what the token makes of each short suffix of the text it was appended to."""
    first = _holding(nodes, head[WINDOW], head[WINDOW_LENGTH])
    node, counted = first, NONE
    while node != NONE:
        child = _child(nodes, edges, slots, node, token)
        if child != counted:
            nodes[child, COUNT] += 1
            counted = child
        nodes[node, FOLLOWED] += 1
        nodes[node, NEXT_PLACE] = head[NUM_TOKENS]
        if nodes[child, COUNT] >= nodes[node, NEXT_COUNT]:
            nodes[node, NEXT], nodes[node, NEXT_COUNT] = token, nodes[child, COUNT]
        node = np.int64(nodes[node, LINK])
    head[NUM_TOKENS] += 1
    head[WINDOW_LENGTH] = min(head[WINDOW_LENGTH] + 1, max_order)
    window = _child(nodes, edges, slots, first, token)
    head[WINDOW] = _holding(nodes, window, head[WINDOW_LENGTH])


@compiled_in_order
def extend(head: Any, nodes: Any, edges: Any, slots: Any, token_ids: Any, max_order: Any) -> Any:
    """Append tokens as far as there is room; says how many."""
    for index in range(len(token_ids)):
        if not _append(head, nodes, edges, slots, token_ids[index]):
            return index
        _count(head, nodes, edges, slots, token_ids[index], max_order)
    return len(token_ids)


@compiled_in_order
def walk(
    nodes: Any, edges: Any, slots: Any, node: Any, length: Any, token_ids: Any, max_order: Any
) -> Any:
    """The longest suffix that the text has, and its length, once these tokens follow one."""
    for token in token_ids:
        child = _child(nodes, edges, slots, node, token)
        while child == NONE and node != ROOT:
            node = np.int64(nodes[node, LINK])
            length = np.int64(nodes[node, LENGTH])
            child = _child(nodes, edges, slots, node, token)
        if child != NONE:
            length = min(length + 1, max_order)
            node = _holding(nodes, child, length)
    return node, length


@compiled_in_order
def followed(nodes: Any, node: Any, length: Any) -> Any:
    """The longest suffix of this one that something follows in the text, and its length."""
    while node != ROOT and nodes[node, FOLLOWED] == 0:
        node = np.int64(nodes[node, LINK])
        length = np.int64(nodes[node, LENGTH])
    return node, length


@compiled_in_order
def draft(
    nodes: Any,
    edges: Any,
    slots: Any,
    node: Any,
    length: Any,
    min_match: Any,
    max_order: Any,
    limit: Any,
    factor: Any,
    offset: Any,
    min_prob: Any,
    out: Any,
) -> Any:
    """What likely follows a suffix, the most frequent token each time, written to `out`.

    Gives the number of tokens, how many of them may be expected to hold, and where in the text the
    match last went on. The probability of each is that of all tokens up to it.
    """
    node, length = followed(nodes, node, length)
    if length < max(min_match, 1):
        return 0, 0.0, NONE
    place = np.int64(nodes[node, NEXT_PLACE])
    limit = min(limit, len(out), np.int64(factor * length + offset))
    num_tokens, score, prob = 0, 0.0, 1.0
    while num_tokens < limit and node != ROOT:
        prob *= nodes[node, NEXT_COUNT] / nodes[node, FOLLOWED]
        if prob < min_prob:
            break
        token = nodes[node, NEXT]
        out[num_tokens] = token
        num_tokens, score = num_tokens + 1, score + prob
        length = min(length + 1, max_order)
        node = _holding(nodes, _child(nodes, edges, slots, node, token), length)
        node, length = followed(nodes, node, length)
    return num_tokens, score, place
