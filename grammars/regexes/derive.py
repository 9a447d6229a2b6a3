"""What regular expressions match, by their derivatives: linear in the text, no backtracking.

The derivative of a regex by a character matches what may follow that character. Characters that no
class of the regex tells apart have the same derivative, so a regex and its derivatives are the
states of a deterministic automaton, found as far as a text or a question needs them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush

from structspec.constraint import find_half_character
from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.syntax import (
    EMPTY,
    NOTHING,
    Alternatives,
    And,
    Characters,
    Empty,
    Not,
    Regex,
    Repeat,
    Sequence,
    alternatives,
    both,
    complement,
    parts,
    repeat,
    sequence,
)

_MAX_KEPT_STATES = 5_000  # of one regex; more are forgotten and found again


def matches(regex: Regex, text: str) -> bool:
    """Whether the whole text matches."""
    if find_half_character(text) is not None:
        return False
    automaton = _automaton(regex)
    state = regex
    for character in text:
        state = automaton.step(state, ord(character))
        if state is NOTHING:
            return False
    return state.is_nullable


def match_ends(regex: Regex, text: str, starts: Set[int]) -> Iterator[int]:
    """Where the matches end that begin at one of `starts`, each once and in order."""
    automaton = _automaton(regex)
    first, last = min(starts, default=len(text) + 1), max(starts, default=0)
    states: set[Regex] = set()
    for end in range(first, len(text) + 1):
        if end in starts:
            states.add(regex)
        if any(state.is_nullable for state in states):
            yield end
        if end < len(text):
            states = {automaton.step(state, ord(text[end])) for state in states} - {NOTHING}
        if not states and end >= last:
            return


def is_empty(regex: Regex, max_states: int = 2000) -> bool | None:
    """Whether no text matches; None where that was not decided within the limit."""
    if regex.is_plain:
        return regex is NOTHING
    seen = {regex}
    pending = [(0, 0, regex)]  # nearest to a match first, by the look of it
    while pending:
        _, _, state = heappop(pending)
        if state.is_nullable or state.is_plain:
            return False
        for follower in successors(state):
            if follower not in seen:
                if len(seen) >= max_states:
                    return None
                seen.add(follower)
                heappush(pending, (_distance(follower), len(seen), follower))
    return True


def _distance(regex: Regex) -> int:
    """A guess at how many characters a match still takes; what And asks for is added up."""
    match regex:
        case And(items):
            return sum(map(_distance, items))
        case Alternatives(items):
            return min(map(_distance, items))
        case Sequence():
            return sum(map(_distance, parts(regex)))
        case Repeat(item, minimum):
            return minimum * _distance(item) if minimum else 0
        case Characters():
            return 1
        case Not():
            return 0 if regex.is_nullable else 1
        case Empty():
            return 0


def are_disjoint(a: Regex, b: Regex, max_states: int = 2000) -> bool | None:
    """Whether no text matches both; None where that was not decided within the limit."""
    low_a, high_a = length_bounds(a)
    low_b, high_b = length_bounds(b)
    if (high_a is not None and high_a < low_b) or (high_b is not None and high_b < low_a):
        return True
    return is_empty(both(a, b), max_states)


def can_always_grow(regex: Regex, max_states: int = 500) -> bool | None:
    """Whether everything that can still become a match can become ever longer ones.

    Then no finite set of forbidden words leaves a beginning without an end. None where that was
    not decided within the limit.
    """
    graph = _explore(regex, max_states)
    if graph is None:
        return None
    live = _live(graph)
    return live <= _endless(graph, live)


def words(regex: Regex, limit: int) -> list[str] | None:
    """Every text that matches, if there are at most `limit` (and that is soon found); else None."""
    graph = _explore(regex, max(2000, limit))
    if graph is None:
        return None
    live = _live(graph)
    if _endless(graph, live):
        return None
    found: list[str] = []
    pending: list[tuple[str, Regex]] = [("", regex)] if regex in live else []
    while pending:
        start, state = pending.pop()
        if state.is_nullable:
            found.append(start)
        for class_, follower in transitions(state):
            if follower not in live:
                continue
            # each leads to one word at least, so this many unfinished ones are too many
            if len(found) + len(pending) + ranges.size(class_) > limit:
                return None
            pending.extend((start + chr(c), follower) for c in ranges.code_points(class_))
    return sorted(found) if len(found) <= limit else None


def length_bounds(regex: Regex) -> tuple[int, int | None]:
    """Bounds on the number of code points, from the regex's shape alone; None: no upper one."""
    match regex:
        case Empty():
            return 0, 0
        case Characters():
            return 1, 1
        case Sequence():
            low, high = length_bounds(regex.first)
            rest: Regex = regex.rest
            while isinstance(rest, Sequence):
                low, high = _add((low, high), length_bounds(rest.first))
                rest = rest.rest
            return _add((low, high), length_bounds(rest))
        case Repeat(item, minimum, maximum):
            low, high = length_bounds(item)
            top = None if maximum is None or high is None else high * maximum
            return low * minimum, top
        case Alternatives(items):
            bounds = [length_bounds(item) for item in items]
            tops = [high for _, high in bounds if high is not None]
            return min(low for low, _ in bounds), (max(tops) if len(tops) == len(bounds) else None)
        case And(items):
            bounds = [length_bounds(item) for item in items]
            tops = [high for _, high in bounds if high is not None]
            return max(low for low, _ in bounds), min(tops, default=None)
        case Not():
            return (0 if regex.is_nullable else 1), None


def transitions(regex: Regex) -> list[tuple[ranges.Ranges, Regex]]:
    """Each class of characters that the regex does not tell apart, and the derivative by it."""
    alphabet = _alphabet(frozenset(_first_classes(regex)))
    return [
        (class_, follower)
        for class_, example in zip(alphabet.classes, alphabet.examples, strict=True)
        if (follower := derivative(regex, example)) is not NOTHING
    ]


def successors(regex: Regex) -> list[Regex]:
    """The derivatives by any character."""
    examples = _alphabet(frozenset(_first_classes(regex))).examples
    return [follower for c in examples if (follower := derivative(regex, c)) is not NOTHING]


def derivative(regex: Regex, code_point: int) -> Regex:
    """What may follow this character."""
    match regex:
        case Empty():
            return NOTHING
        case Characters(pairs):
            return EMPTY if _contains(pairs, code_point) else NOTHING
        case Sequence():
            return alternatives(*_sequence_derivatives(regex, code_point))
        case Repeat(item, minimum, maximum):
            rest = repeat(item, max(minimum - 1, 0), None if maximum is None else maximum - 1)
            return sequence(derivative(item, code_point), rest)
        case Alternatives(items):
            return alternatives(*(derivative(item, code_point) for item in items))
        case And(items):
            return both(*(derivative(item, code_point) for item in items))
        case Not(item):
            return complement(derivative(item, code_point))


def _sequence_derivatives(regex: Regex, code_point: int) -> Iterable[Regex]:
    """One for each part that may come first, because those before it may be empty."""
    while isinstance(regex, Sequence):
        yield sequence(derivative(regex.first, code_point), regex.rest)
        if not regex.first.is_nullable:
            return
        regex = regex.rest
    yield derivative(regex, code_point)


def _first_classes(regex: Regex) -> set[Characters]:
    """The classes that decide on a derivative."""
    found: set[Characters] = set()
    pending = [regex]
    while pending:
        match pending.pop():
            case Characters() as node:
                found.add(node)
            case Sequence(first, rest):
                pending.append(first)
                if first.is_nullable:
                    pending.append(rest)
            case Alternatives(items) | And(items):
                pending.extend(items)
            case Repeat(item) | Not(item):
                pending.append(item)
            case Empty():
                pass
    return found


@dataclass(frozen=True, slots=True)
class _Alphabet:
    """All characters, parted so that each given class holds all or none of a part."""

    classes: tuple[ranges.Ranges, ...]
    examples: tuple[int, ...]
    starts: tuple[int, ...]  # where each stretch of one class begins
    numbers: tuple[int, ...]  # and which class that is

    def number(self, code_point: int) -> int:
        """The class of a character."""
        return self.numbers[bisect_right(self.starts, code_point) - 1]


@lru_cache(maxsize=1024)
def _alphabet(given: frozenset[Characters]) -> _Alphabet:
    parted: list[ranges.Ranges] = [ranges.EVERY]
    for node in given:
        halves = (
            half
            for part in parted
            for half in (ranges.intersect(part, node.ranges), ranges.subtract(part, node.ranges))
        )
        parted = [half for half in halves if half]
    stretches = sorted((low, i) for i, part in enumerate(parted) for low, _ in part)
    return _Alphabet(
        tuple(parted),
        tuple(part[0][0] for part in parted),
        tuple(low for low, _ in stretches),
        tuple(i for _, i in stretches),
    )


@dataclass(slots=True)
class _Automaton:
    """The states found so far, each with its alphabet and its known successors by class."""

    rows: dict[Regex, tuple[_Alphabet, dict[int, Regex]]] = field(default_factory=dict)

    def step(self, state: Regex, code_point: int) -> Regex:
        row = self.rows.get(state)
        if row is None:
            if len(self.rows) >= _MAX_KEPT_STATES:
                self.rows.clear()
            row = self.rows[state] = (_alphabet(frozenset(_first_classes(state))), {})
        alphabet, known = row
        number = alphabet.number(code_point)
        follower = known.get(number)
        if follower is None:
            follower = known[number] = derivative(state, alphabet.examples[number])
        return follower


@lru_cache(maxsize=64)
def _automaton(regex: Regex) -> _Automaton:
    return _Automaton()


_Graph = dict[Regex, list[Regex]]


def _explore(regex: Regex, max_states: int) -> _Graph | None:
    """Every state and its successors; None where there are more than the limit."""
    graph: _Graph = {}
    pending = [regex]
    while pending:
        state = pending.pop()
        if state in graph:
            continue
        if len(graph) >= max_states:
            return None
        graph[state] = successors(state)
        pending.extend(graph[state])
    return graph


def _live(graph: _Graph) -> set[Regex]:
    """The states from which a match can be reached."""
    return _reaching(graph, {state for state in graph if state.is_nullable})


def _endless(graph: _Graph, live: set[Regex]) -> set[Regex]:
    """The live states from which a cycle of live ones can be reached."""
    num_followers = {state: len({f for f in graph[state] if f in live}) for state in live}
    predecessors = _reversed(graph)
    pending = [state for state, count in num_followers.items() if count == 0]
    finite = set(pending)
    while pending:
        for state in predecessors.get(pending.pop(), ()):
            if state in live:
                num_followers[state] -= 1
                if num_followers[state] == 0:
                    finite.add(state)
                    pending.append(state)
    return live - finite


def _reaching(graph: _Graph, targets: set[Regex]) -> set[Regex]:
    predecessors = _reversed(graph)
    found = set(targets)
    pending = list(targets)
    while pending:
        for state in predecessors.get(pending.pop(), ()):
            if state not in found:
                found.add(state)
                pending.append(state)
    return found


def _reversed(graph: _Graph) -> dict[Regex, set[Regex]]:
    predecessors: dict[Regex, set[Regex]] = {}
    for state, followers in graph.items():
        for follower in followers:
            predecessors.setdefault(follower, set()).add(state)
    return predecessors


def _contains(pairs: ranges.Ranges, code_point: int) -> bool:
    i = bisect_right(pairs, (code_point, ranges.MAX_CODE_POINT)) - 1
    return i >= 0 and pairs[i][0] <= code_point <= pairs[i][1]


def _add(a: tuple[int, int | None], b: tuple[int, int | None]) -> tuple[int, int | None]:
    return a[0] + b[0], None if a[1] is None or b[1] is None else a[1] + b[1]
