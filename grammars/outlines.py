"""outlines-core behind the laws of `Matcher`: regexes and choices, where its index is whole.

Version 0.2.14 drops every transition out of an accepting state into one that does not accept:
`[0-9]+(\\.[0-9]+)?` never gets its dot. So an index over single bytes is built first and walked
beside llguidance's reading of the same regex, which shares its dialect; where a state allows other
bytes the constraint is refused. Over longer tokens no more is dropped than over single bytes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import outlines_core

from structspec.constraint import Choice, Constraint, Regex
from structspec.errors import UnsupportedConstraint
from structspec.grammars.base import (
    Bitmask,
    CompiledGrammar,
    FillJob,
    Finding,
    Look,
    Move,
    Packed,
    Report,
    Row,
    Seen,
    check_refused,
)
from structspec.grammars.choice import check_choices
from structspec.grammars.drafts import (
    fill_job,
    fill_stop_row,
    look_each,
    take_allowed,
    take_each,
    take_first_allowed,
)
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.probe import probe
from structspec.grammars.regex import read_regex, translate
from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.derive import transitions
from structspec.grammars.regexes.syntax import NOTHING, alternatives
from structspec.grammars.regexes.syntax import Regex as RegexTree
from structspec.grammars.regexes.syntax import text as text_regex
from structspec.vocabulary import Vocabulary

_NUM_ROWS = 64  # rows kept for reuse per grammar
_MAX_PAIRS = 20_000
_BYTES = Vocabulary.bytes()


class OutlinesBackend:
    """Compiles regexes and choices with outlines-core; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._tokens = _token_table(vocabulary)
        self._byte_tokens = _token_table(_BYTES)
        self._reference = LLGuidanceBackend(_BYTES)

    def report(self, constraint: Constraint) -> Report:
        """What outlines-core would do with `constraint`; whether its index is whole shows later."""
        if isinstance(constraint, Regex | Choice):
            keyword = type(constraint).__name__.lower()
            return Report("outlines", enforced=(Finding("", keyword),))
        reason = "outlines is used for regexes and choices only; use backend 'auto'"
        return Report("outlines", refused=(Finding("", type(constraint).__name__, reason),))

    def compile(self, constraint: Constraint) -> OutlinesGrammar:
        """Compile; UnsupportedConstraint where the index would lose something."""
        start = time.perf_counter()
        report = self.report(constraint)
        check_refused(report)
        pattern = _pattern(constraint)
        reference = self._reference.compile(constraint)  # raises where the constraint is wrong
        try:
            byte_index = outlines_core.Index(pattern, self._byte_tokens)
            _check_whole(byte_index, reference)
            _check_apart(byte_index, _regex(constraint))
            index = outlines_core.Index(pattern, self._tokens)
        except ValueError as error:
            if isinstance(error, UnsupportedConstraint):
                raise
            raise UnsupportedConstraint(f"outlines-core refuses it: {error}") from None
        grammar = OutlinesGrammar(self, index, report, (time.perf_counter() - start) * 1e3)
        probe(grammar, self.vocabulary)
        return grammar

    def unpack(self, packed: Packed) -> OutlinesGrammar:
        """Read the library's own bytes; ValueError where they are none."""
        index = outlines_core.Index.from_binary(packed.data)
        return OutlinesGrammar(self, index, packed.report, packed.compile_ms)

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill many requests' rows, one by one: the library holds the interpreter's lock."""
        return [fill_job(job, bitmask) for job in jobs]

    def take_shown(self, moves: Sequence[Move]) -> list[Exception | None]:
        """Move matchers one by one."""
        return take_each(moves)

    def take_unseen(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move matchers one by one."""
        return take_allowed(moves)

    def take_first(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move matchers one by one."""
        return take_first_allowed(moves)

    def look_ahead(self, looks: Sequence[Look]) -> list[Seen | Exception]:
        """Look ahead of matchers one by one."""
        return look_each(looks)


class OutlinesGrammar:
    """One compiled constraint: the index, and the rows of the states used last."""

    def __init__(
        self,
        backend: OutlinesBackend,
        index: outlines_core.Index,
        report: Report,
        compile_ms: float,
    ) -> None:
        self.backend = backend
        self.report = report
        self.wide_row: Row | None = None
        self.start_row: Row | None = None
        self.compile_ms = compile_ms
        self.index = index
        self._rows: OrderedDict[int, Bitmask] = OrderedDict()
        # in memory a transition is an entry of a hash table, some three times as large as packed
        self.num_bytes = 3 * len(self.pack().data) + 4 * _NUM_ROWS * backend.vocabulary.num_words

    def expect(self) -> None:
        """Nothing is to be prepared."""

    def matcher(self) -> OutlinesMatcher:
        """A matcher at the start of the text; cheap."""
        return OutlinesMatcher(self, self.backend.vocabulary)

    def pack(self) -> Packed:
        """The library's own bytes."""
        _, (data,) = self.index.__reduce__()
        return Packed(self.report, data, self.compile_ms)

    def row(self, state: int) -> Bitmask:
        """What a state allows, stop tokens included."""
        row = self._rows.get(state)
        if row is None:
            row = self._rows[state] = self._make_row(state)
            if len(self._rows) > _NUM_ROWS:
                self._rows.popitem(last=False)
        return row

    def _make_row(self, state: int) -> Bitmask:
        vocabulary = self.backend.vocabulary
        row = np.zeros((1, vocabulary.num_words), np.int32)
        if self.index.is_final_state(state):
            fill_stop_row(row, 0, vocabulary.stop_token_ids)
        allowed = np.zeros(32 * vocabulary.num_words, np.uint8)
        ids = np.array(self.index.get_allowed_tokens(state) or [], np.int64)
        allowed[ids[ids != vocabulary.stop_token_ids[0]]] = 1
        row[0] |= np.packbits(allowed, bitorder="little").view(np.int32)
        filled: Bitmask = row[0]
        return filled


class OutlinesMatcher:
    """One request's position: the states it went through. Stop tokens are counted here."""

    __slots__ = ("_grammar", "_num_stops", "_states", "_vocabulary")

    def __init__(self, grammar: OutlinesGrammar, vocabulary: Vocabulary) -> None:
        self._grammar = grammar
        self._vocabulary = vocabulary
        self._states: list[int] = [grammar.index.get_initial_state()]
        self._num_stops = 0

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`; the budget is ignored."""
        if self._num_stops:
            fill_stop_row(bitmask, row, self._vocabulary.stop_token_ids)
        else:
            bitmask[row] = self._grammar.row(self._states[-1])

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        index = self._grammar.index
        if token_id in self._vocabulary.stop_token_ids:
            is_allowed = self._num_stops > 0 or bool(index.is_final_state(self._states[-1]))
            self._num_stops += is_allowed
            return is_allowed
        if self._num_stops or not self._vocabulary.is_text(token_id):
            return False
        state = index.get_next_state(self._states[-1], token_id)
        if state is None:
            return False
        self._states.append(state)
        return True

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens, stop tokens included."""
        num_stops = min(num_tokens, self._num_stops)
        self._num_stops -= num_stops
        del self._states[len(self._states) - (num_tokens - num_stops) :]

    def forced(self, limit: int) -> bytes:
        """Nothing: the index knows tokens, not text."""
        return b""

    def forced_tokens(self, limit: int) -> list[int]:
        """None: where text is forced the masks show all that spell it."""
        return []

    def tokens_to_end(self) -> int | None:
        """outlines-core cannot know."""
        return None


def _token_table(vocabulary: Vocabulary) -> outlines_core.Vocabulary:
    ids: dict[bytes, list[int]] = {}
    for token_id, data in enumerate(vocabulary.token_bytes):
        if data is not None:
            ids.setdefault(data, []).append(token_id)
    return outlines_core.Vocabulary(vocabulary.stop_token_ids[0], ids)


def _pattern(constraint: Constraint) -> str:
    """The constraint as one regex in Rust's syntax."""
    if isinstance(constraint, Regex):
        return translate(constraint.pattern)
    assert isinstance(constraint, Choice)
    choices = check_choices(constraint)
    return "|".join("".join(f"\\x{{{ord(c):x}}}" for c in choice) for choice in choices)


def _regex(constraint: Constraint) -> RegexTree:
    """The constraint as our own regex."""
    if isinstance(constraint, Regex):
        return read_regex(constraint.pattern)
    assert isinstance(constraint, Choice)
    return alternatives(*map(text_regex, check_choices(constraint)))


def _check_apart(index: outlines_core.Index, regex: RegexTree) -> None:
    """Raise UnsupportedConstraint where one state of the byte index stands for two of the regex.

    `(a|ab)[ab]?` is read as if it could only match the first of two ways: `ab` leads where `aa`
    does. So states are followed in pairs, by the ends of each class of characters.
    """
    start = (index.get_initial_state(), regex)
    waiting, seen = [start], {start}
    while waiting:
        state, rest = waiting.pop()
        is_apart = bool(index.is_final_state(state)) != rest.is_nullable
        followers = transitions(rest)
        others = ranges.invert(ranges.normalise(pair for pairs, _ in followers for pair in pairs))
        for pairs, following in (*followers, (others, NOTHING)):
            for end in {end for low, high in pairs for end in (low, high)}:
                next_state = _after(index, state, chr(end).encode())
                is_apart = is_apart or (next_state is None) != (following is NOTHING)
                if next_state is not None and (next_state, following) not in seen:
                    seen.add((next_state, following))
                    waiting.append((next_state, following))
        if is_apart or len(seen) > _MAX_PAIRS:
            reason = "loses a part of it" if is_apart else "makes too many states of it"
            raise UnsupportedConstraint(f"outlines-core {reason}; use backend 'llguidance'")


def _after(index: outlines_core.Index, state: int, data: bytes) -> int | None:
    """The state behind these bytes; None where they are not allowed."""
    found: int | None = state
    for byte in data:
        if found is None:
            return None
        found = index.get_next_state(found, byte)
    return found


def _check_whole(index: outlines_core.Index, reference: CompiledGrammar) -> None:
    """Raise UnsupportedConstraint where a state of the byte index allows not what it should.

    Depth first: the reference follows one path to each state and is rolled back in between.
    """
    matcher, stop = reference.matcher(), _BYTES.stop_token_ids[0]
    bitmask = np.zeros((1, _BYTES.num_words), np.int32)
    path: list[int] = []
    waiting = [(index.get_initial_state(), 0, -1)]  # state, how long the path to it is, last byte
    seen = {index.get_initial_state()}
    while waiting:
        state, depth, byte = waiting.pop()
        if depth:
            matcher.rollback(len(path) - (depth - 1))
            path[depth - 1 :] = [byte]
            assert matcher.accept(byte)
        matcher.fill(bitmask, 0)
        row = np.unpackbits(bitmask[0].view(np.uint8), bitorder="little")
        allowed = set(index.get_allowed_tokens(state) or ()) - {stop}
        if index.is_final_state(state):
            allowed.add(stop)
        if missing := set(np.flatnonzero(row).tolist()) ^ allowed:
            text = bytes(path).decode(errors="replace")
            what = "an end" if stop in missing else repr(bytes([min(missing)]))[1:]
            raise UnsupportedConstraint(
                f"outlines-core loses a part of it: it does not go on with {what} after {text!r}"
                " as it should; use backend 'llguidance'"
            )
        for token_id in allowed - {stop}:
            following = index.get_next_state(state, token_id)
            if following not in seen:
                seen.add(following)
                waiting.append((following, depth + 1, token_id))
