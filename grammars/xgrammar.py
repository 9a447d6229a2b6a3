"""xgrammar behind the laws of `Matcher`: EBNF, indented JSON, and what it is known to hold."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import xgrammar

from structspec.constraint import Constraint
from structspec.grammars.base import (
    Bitmask,
    FillJob,
    Look,
    Move,
    Packed,
    Report,
    Row,
    Seen,
    check_refused,
)
from structspec.grammars.drafts import (
    clear_tail,
    fill_job,
    fill_stop_row,
    look_each,
    take_allowed,
    take_each,
    take_first_allowed,
)
from structspec.grammars.probe import probe
from structspec.grammars.unique_keys import GuardedMatcher, token_table
from structspec.grammars.xgrammar_lowering import check_finite, lower, translate_error
from structspec.vocabulary import Vocabulary

_PLAIN, _GUARDED = b"0", b"1"  # what packed grammars start with


class XGrammarBackend:
    """Compiles constraints with xgrammar; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._info = xgrammar.TokenizerInfo(
            [data or b"" for data in vocabulary.token_bytes],  # empty: special, never text
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.vocab_size,
            stop_token_ids=list(vocabulary.stop_token_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(
            self._info,
            max_threads=max(1, (os.cpu_count() or 1) // 2),
            cache_enabled=False,  # ours is in front
        )
        self._batch = xgrammar.BatchGrammarMatcher()

    def report(self, constraint: Constraint) -> Report:
        """What xgrammar would do with each part of `constraint`; makes no tables."""
        return lower(constraint).report

    def compile(self, constraint: Constraint) -> XGrammarGrammar:
        """Compile; raises GrammarError with the place."""
        start = time.perf_counter()
        lowered = lower(constraint)
        check_refused(lowered.report)
        try:
            grammar = lowered.build()
            check_finite(str(grammar))
            compiled = self._compiler.compile_grammar(grammar)
        except RuntimeError as error:
            raise translate_error(str(error), constraint) from None
        made = XGrammarGrammar(self, compiled, lowered.report, has_free_keys=lowered.has_free_keys)
        made.compile_ms = (time.perf_counter() - start) * 1e3
        probe(made, self.vocabulary)
        return made

    def unpack(self, packed: Packed) -> XGrammarGrammar:
        """Read the library's own JSON: some 25 ms a megabyte; ValueError where it is none."""
        has_free_keys, text = packed.data[:1] == _GUARDED, packed.data[1:].decode()
        try:
            compiled = xgrammar.CompiledGrammar.deserialize_json(text, self._info)
        except RuntimeError as error:
            raise ValueError(f"not a grammar of this library: {error}") from None
        made = XGrammarGrammar(self, compiled, packed.report, has_free_keys=has_free_keys)
        made.compile_ms = packed.compile_ms
        return made

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill many requests' rows; those without drafts in parallel."""
        alone = [job for job in jobs if not job.draft_token_ids and not _own(job).is_stopped]
        if len(alone) < 2:
            return [fill_job(job, bitmask) for job in jobs]
        self._batch.batch_fill_next_token_bitmask(
            [_own(job).library for job in alone], bitmask, [job.first_row for job in alone]
        )
        for job in alone:
            clear_tail(bitmask, job.first_row, self.vocabulary.vocab_size)
            if isinstance(job.matcher, GuardedMatcher):
                job.matcher.take_repeats_here(bitmask, job.first_row)
        done = {id(job) for job in alone}
        return [0 if id(job) in done else fill_job(job, bitmask) for job in jobs]

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


class XGrammarGrammar:
    """One compiled constraint."""

    def __init__(
        self,
        backend: XGrammarBackend,
        compiled: xgrammar.CompiledGrammar,
        report: Report,
        *,
        has_free_keys: bool,
    ) -> None:
        self.backend = backend
        self.report = report
        self.wide_row: Row | None = None
        self.start_row: Row | None = None
        self.compile_ms = 0.0
        self.num_bytes = int(compiled.memory_size_bytes)
        self._compiled = compiled
        self._has_free_keys = has_free_keys
        if has_free_keys:  # made here, where it keeps no step waiting
            token_table(backend.vocabulary)

    def pack(self) -> Packed:
        """The library's own JSON, some eight times as large as its tables."""
        flag = _GUARDED if self._has_free_keys else _PLAIN
        data = flag + self._compiled.serialize_json().encode()
        return Packed(self.report, data, self.compile_ms)

    def expect(self) -> None:
        """Nothing is to be prepared."""

    def matcher(self) -> XGrammarMatcher | GuardedMatcher:
        """A matcher at the start of the text; cheap."""
        vocabulary = self.backend.vocabulary
        matcher = XGrammarMatcher(xgrammar.GrammarMatcher(self._compiled), vocabulary)
        return GuardedMatcher(matcher, vocabulary) if self._has_free_keys else matcher


class XGrammarMatcher:
    """One request's position. Stop tokens are counted here: the library takes one only."""

    __slots__ = ("_num_stops", "_vocabulary", "library")

    def __init__(self, library: xgrammar.GrammarMatcher, vocabulary: Vocabulary) -> None:
        self.library = library
        self._vocabulary = vocabulary
        self._num_stops = 0

    @property
    def is_stopped(self) -> bool:
        """Whether a stop token was accepted."""
        return self._num_stops > 0

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`; the budget is ignored."""
        if self._num_stops:
            fill_stop_row(bitmask, row, self._vocabulary.stop_token_ids)
        else:
            self.library.fill_next_token_bitmask(bitmask, row)
            clear_tail(bitmask, row, self._vocabulary.vocab_size)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        if token_id in self._vocabulary.stop_token_ids:
            is_allowed = self._num_stops > 0 or bool(self.library.is_completed())
            self._num_stops += is_allowed
            return is_allowed
        if self._num_stops or not self._vocabulary.is_text(token_id):
            return False  # the library would take it too, but with a line on stderr
        return bool(self.library.accept_token(token_id))

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens, stop tokens included."""
        num_stops = min(num_tokens, self._num_stops)
        self._num_stops -= num_stops
        if num_tokens > num_stops:
            self.library.rollback(num_tokens - num_stops)

    def forced(self, limit: int) -> bytes:
        """The text every valid continuation starts with; empty where the text may end."""
        if self._num_stops or self.library.is_completed():
            return b""
        forced: str = self.library.find_jump_forward_string()
        return forced.encode()[:limit]

    def forced_tokens(self, limit: int) -> list[int]:
        """None: where text is forced the masks show all that spell it."""
        return []

    def tokens_to_end(self) -> int | None:
        """xgrammar cannot know."""
        return None


def _own(job: FillJob) -> XGrammarMatcher:
    """The matcher that the library is asked by."""
    matcher = job.matcher
    if isinstance(matcher, GuardedMatcher):
        matcher = matcher.inner
    assert isinstance(matcher, XGrammarMatcher)
    return matcher
