"""llguidance behind the laws of `Matcher`: compiles in a millisecond, forces text, walks drafts."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer
from llguidance.numpy import fill_next_token_bitmask

from structspec.constraint import Constraint, Grammar, Regex, StructuralTag
from structspec.errors import GrammarError, UnsupportedConstraint
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
from structspec.grammars.composition import form_of
from structspec.grammars.drafts import allowed_tokens, look_each, take_allowed, take_first_allowed
from structspec.grammars.form import Cfg, leaves
from structspec.grammars.llguidance_batch import fill_followed, fill_many, fill_one, take_many
from structspec.grammars.llguidance_form import special_token_ids
from structspec.grammars.llguidance_lowering import Lowered, grammar_error, lower
from structspec.grammars.llguidance_matcher import LLGuidanceMatcher
from structspec.grammars.llguidance_native import NativeMatcher, NativeTokenizer, new_matcher
from structspec.grammars.llguidance_originals import Originals
from structspec.grammars.llguidance_pool import FollowerPool
from structspec.grammars.llguidance_threads import STOP, can_fill, fill_threads
from structspec.grammars.llguidance_tokens import make_native_tokenizer, make_tokenizer
from structspec.grammars.llguidance_unseen import choose_followed, look_followed, take_followed
from structspec.grammars.placing import placed
from structspec.grammars.unique_keys import GuardedMatcher, token_table
from structspec.vocabulary import Vocabulary

_NUM_PROBE_TOKENS = 1  # rules that never end are found before: this finds limits that trip
LIMITS = LLParserLimits(
    max_items_in_row=20_000,  # the default of 2,000 fails beyond some 500 optional properties
    # `pattern` with a length takes more than the defaults; running out is no error there but a
    # token refused, so it must not happen
    initial_lexer_fuel=10_000_000,
    step_lexer_fuel=5_000_000,
    verbose_errors=False,
)
_TIMED_EVERY = 16  # steps that are filled in parallel, between two looks at what a row takes
_MANY_THREADS = 4  # fewer are not worth waking for moves, which take 5 us each
_FOLLOWED_THREADS = 8  # with fewer, what followers add to the work is more than they save
_PLAIN, _GUARDED = b"0", b"1"  # what packed grammars start with


class LLGuidanceBackend:
    """Compiles constraints with llguidance; thread-safe, one tokenizer for all its grammars."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        parallel_above_s: float = 5e-4,
        num_threads: int | None = None,
        max_originals: int | None = None,
        has_followers: bool | None = None,
    ) -> None:
        """Steps whose rows are expected to take more than `parallel_above_s` use threads.

        By default one for each core, and as many originals of a grammar. Followers, which take
        about twice the work but never wait for each other, are used where there are many threads.
        """
        self.vocabulary = vocabulary
        self.tokenizer = make_tokenizer(vocabulary)
        self.num_threads = num_threads or os.cpu_count() or 1
        self._executor = LLExecutor(num_threads=self.num_threads)
        self.max_originals = max_originals or self.num_threads
        many = self.num_threads >= _FOLLOWED_THREADS
        self.has_followers = can_fill() and (many if has_followers is None else has_followers)
        self._kinds = array("B", map(vocabulary.is_text, range(vocabulary.vocab_size)))
        for token_id in vocabulary.stop_token_ids:
            self._kinds[token_id] = STOP
        self.builders = ThreadPoolExecutor(self.num_threads, "structspec-originals")
        # not the same: an engine may wait for originals, and nobody for followers
        self._copiers = ThreadPoolExecutor(-(-self.num_threads // 2), "structspec-followers")
        self._native_tokenizer: NativeTokenizer | None = None  # made when first wanted
        self._is_tokenizer_ordered = False
        # here, before any compile's clock runs: on a fresh machine they take seconds to be made
        self._threads = fill_threads(self.num_threads) if self.has_followers else None
        self._native_lock = threading.Lock()
        self._parallel_above_s = parallel_above_s
        self._seconds_per_row = 0.0  # of rows filled one by one: a running mean
        self._num_parallel = 0
        stops = vocabulary.stop_token_ids  # they end the text and stand in none
        self._writable_tokens = {
            n: i for n, i in vocabulary.special_tokens.items() if i not in stops
        }

    def report(self, constraint: Constraint) -> Report:
        """What llguidance would do with each part of `constraint`; makes no tables."""
        return lower(constraint, self._writable_tokens).report

    def compile(self, constraint: Constraint) -> LLGuidanceGrammar:
        """Compile; raises GrammarError with the place."""
        start = time.perf_counter()
        lowered = lower(constraint, self._writable_tokens)
        check_refused(lowered.report)
        try:
            grammar = LLGuidanceGrammar(self, lowered)
        except GrammarError as error:
            if isinstance(constraint, StructuralTag):
                self._check_grammars_inside(constraint)
            is_regex = isinstance(constraint, Regex)
            if isinstance(constraint, Grammar) or (error.line is None and not is_regex):
                raise
            # its place is one in what was made of the constraint
            reason = str(error).split("error: ")[-1].split(": ", 1)[-1]
            name, place = ("the regex", None) if is_regex else ("all of this", "#")
            raise UnsupportedConstraint(
                f"llguidance cannot hold {name}: {reason}", pointer=place
            ) from None
        grammar.compile_ms = (time.perf_counter() - start) * 1e3
        return grammar

    def _check_grammars_inside(self, tag: StructuralTag) -> None:
        """Raise for the first grammar in a tag that is wrong by itself, with its place in both."""
        for leaf in leaves(form_of(tag)):
            if isinstance(leaf, Cfg):
                try:
                    self.compile(leaf.constraint)
                except GrammarError as error:
                    raise placed(error, leaf.pointer, "lark") from None

    def unpack(self, packed: Packed) -> LLGuidanceGrammar:
        """Parse the text again; raises GrammarError where it is none."""
        grammar_text, has_free_keys = packed.data[1:].decode(), packed.data[:1] == _GUARDED
        grammar = LLGuidanceGrammar(self, Lowered(grammar_text, packed.report, has_free_keys))
        grammar.compile_ms = packed.compile_ms
        return grammar

    def new_native_matcher(self, grammar: str) -> NativeMatcher:
        """A matcher of the C interface."""
        return new_matcher(self._have_native_tokenizer(), grammar, LIMITS)

    def new_pool(self, grammar: str) -> FollowerPool:
        """The followers of a grammar."""
        build = partial(self.new_native_matcher, grammar)
        return FollowerPool(build, self._copiers, self.vocabulary)

    def order_native_tokenizer(self) -> None:
        """Have the tokenizer of the C interface made in the background: it takes half a second."""
        if not self._is_tokenizer_ordered:
            self._is_tokenizer_ordered = True
            self._copiers.submit(self._have_native_tokenizer)

    def _have_native_tokenizer(self) -> NativeTokenizer:
        with self._native_lock:
            if self._native_tokenizer is None:
                self._native_tokenizer = make_native_tokenizer(self.vocabulary)
            return self._native_tokenizer

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill many requests' rows: by followers, else one by one if that is quick, or in parallel.

        A row costs from 2 us to 0.5 ms, waking threads some 100 us; all ways give equal rows.
        """
        num_rows = len(jobs) + sum([len(job.draft_token_ids) for job in jobs])
        expected_s = num_rows * self._seconds_per_row
        is_quick = len(jobs) < 2 or expected_s < self._parallel_above_s
        counts = [0] * len(jobs)
        left: Sequence[int] = range(len(jobs))
        if self._threads is not None:
            left = fill_followed(jobs, bitmask, self._threads, self._kinds, not is_quick)
        if left:
            some = [jobs[index] for index in left]
            for index, count in zip(left, self._fill_left(some, bitmask, is_quick), strict=True):
                counts[index] = count
        return counts

    def _fill_left(self, jobs: list[FillJob], bitmask: Bitmask, is_quick: bool) -> list[int]:
        """Fill rows by the matchers of the library's Python interface."""
        if is_quick:
            return self._fill_timed(jobs, bitmask)
        self._num_parallel += 1
        if self._num_parallel % _TIMED_EVERY == 0:
            # filled again below, which costs next to nothing
            self._fill_timed([jobs[self._num_parallel // _TIMED_EVERY % len(jobs)]], bitmask)
        return fill_many(self._executor, jobs, bitmask)

    def _fill_timed(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill rows one by one and note what a row takes: no other thread can make that longer."""
        num_rows = sum(1 + len(job.draft_token_ids) for job in jobs)
        start = time.perf_counter()
        counts = [fill_one(self._executor, job, bitmask) for job in jobs]
        seconds = (time.perf_counter() - start) / max(1, num_rows)
        self._seconds_per_row += (seconds - self._seconds_per_row) / 8
        return counts

    def take_shown(self, moves: Sequence[Move]) -> list[Exception | None]:
        """Move matchers by tokens of their rows: without looking for these once more."""
        return take_many(self._executor if self.num_threads >= _MANY_THREADS else None, moves)

    def take_unseen(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move matchers as far as their grammars go: followers in parallel, others one by one."""
        if self._threads is None:
            return take_allowed(moves)
        return take_followed(moves, self._threads, self._kinds)

    def take_first(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move matchers by one of some tokens: followers in parallel, others one by one."""
        if self._threads is None:
            return take_first_allowed(moves)
        return choose_followed(moves, self._threads, self._kinds)

    def look_ahead(self, looks: Sequence[Look]) -> list[Seen | Exception]:
        """Look ahead of matchers: followers in parallel, others one by one."""
        if self._threads is None:
            return look_each(looks)
        return look_followed(looks, self._threads, self._kinds)


class LLGuidanceGrammar:
    """One compiled constraint: the text it was made of, and originals that matchers copy."""

    def __init__(self, backend: LLGuidanceBackend, lowered: Lowered) -> None:
        self.backend = backend
        self.report = lowered.report
        self.wide_row: Row | None = None
        self.start_row: Row | None = None
        self.compile_ms = 0.0
        # between what was measured when fresh (50 kB and 12 bytes a character) and after a walk
        self.num_bytes = 100_000 + 25 * len(lowered.grammar)
        self._grammar = lowered.grammar
        self._has_free_keys = lowered.has_free_keys
        if lowered.has_free_keys:  # made here, where it keeps no step waiting
            token_table(backend.vocabulary)
        self._markers = special_token_ids(lowered.grammar)
        build = partial(_build, backend.tokenizer, lowered.grammar)
        first = build()
        self._probe(first)
        self.followers: FollowerPool | None = None
        if backend.has_followers:
            self.followers = backend.new_pool(lowered.grammar)
        self._originals = Originals(build, first, backend.builders, backend.max_originals)

    def pack(self) -> Packed:
        """The grammar's text: parsing it again takes a millisecond."""
        flag = _GUARDED if self._has_free_keys else _PLAIN
        return Packed(self.report, flag + self._grammar.encode(), self.compile_ms)

    def expect(self) -> None:
        """Have what one more matcher takes built in the background."""
        self._originals.expect()
        if self.followers is not None:
            self.backend.order_native_tokenizer()
            self.followers.expect()

    def matcher(self) -> LLGuidanceMatcher | GuardedMatcher:
        """A matcher at the start of the text, copied from an original."""
        original = self._originals.take()
        vocabulary = self.backend.vocabulary
        claim = None if self.followers is None else self.followers.claim()
        matcher = LLGuidanceMatcher(original, vocabulary, self._markers, claim)
        return GuardedMatcher(matcher, self.backend.vocabulary) if self._has_free_keys else matcher

    def _probe(self, library: LLMatcher) -> None:
        """Take the first few tokens, as `probe` does for other libraries.

        By one matcher that computes the masks too: only so does this library notice that rules
        never end.
        """
        vocabulary = self.backend.vocabulary
        bitmask = np.zeros((1, vocabulary.num_words), np.int32)
        scout = library.deep_copy()
        num_taken = 0
        for _ in range(_NUM_PROBE_TOKENS):
            fill_next_token_bitmask(scout, bitmask)
            if self.start_row is None:
                self.start_row = bitmask[0].copy()
            allowed = allowed_tokens(bitmask, 0)
            tokens = (i for i in allowed if vocabulary.is_text(i) or i in self._markers)
            token_id = next(tokens, None)
            if token_id is None or scout.is_error():
                break
            num_taken += scout.try_consume_tokens([token_id])
        if scout.is_error() or (num_taken == 0 and not scout.is_accepting()):
            raise GrammarError(
                "no text at all satisfies this constraint (does it recurse forever?)"
            )


def _build(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    library = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    if library.is_error():
        raise grammar_error(library.get_error())
    return library
