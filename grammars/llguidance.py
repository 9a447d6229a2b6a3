"""llguidance behind the laws of `Matcher`: compiles in a millisecond, forces text, walks drafts."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits
from llguidance.numpy import (
    fill_next_token_bitmask,
    fill_next_token_bitmask_par,
    fill_next_token_bitmask_par_with_draft_tokens,
)

from structspec.constraint import Constraint, Grammar, Regex, StructuralTag
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import (
    Bitmask,
    FillJob,
    MatcherFailed,
    Packed,
    Report,
    check_refused,
)
from structspec.grammars.composition import form_of
from structspec.grammars.drafts import allowed_tokens, fill_job, fill_stop_row, is_allowed
from structspec.grammars.form import Cfg, leaves
from structspec.grammars.llguidance_form import special_token_ids
from structspec.grammars.llguidance_lowering import Lowered, grammar_error, lower
from structspec.grammars.llguidance_tokens import SPECIAL, make_tokenizer
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
_PLAIN, _GUARDED = b"0", b"1"  # what packed grammars start with
_NUM_SPARES = 16  # matchers kept for reuse per grammar


class LLGuidanceBackend:
    """Compiles constraints with llguidance; thread-safe, one tokenizer for all its grammars."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        parallel_above_s: float = 5e-4,
        num_threads: int | None = None,
    ) -> None:
        """Steps whose rows are expected to take more than `parallel_above_s` use threads.

        By default one for each core.
        """
        self.vocabulary = vocabulary
        self.tokenizer = make_tokenizer(vocabulary)
        self._executor = LLExecutor(num_threads=num_threads or os.cpu_count() or 1)
        self._parallel_above_s = parallel_above_s
        self._seconds_per_row = 0.0  # a running mean over recent steps
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

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill many requests' rows: one by one while that is quick, else in parallel.

        A row costs from 2 us to 0.5 ms, waking threads some 100 us; both ways give equal rows.
        """
        num_rows = sum(1 + len(job.draft_token_ids) for job in jobs)
        is_long = num_rows * self._seconds_per_row >= self._parallel_above_s
        start = time.perf_counter()
        if is_long and len(jobs) > 1:
            counts = self._fill_in_parallel(jobs, bitmask)
        else:
            counts = [fill_job(job, bitmask) for job in jobs]
        seconds = (time.perf_counter() - start) / max(1, num_rows)
        self._seconds_per_row += (seconds - self._seconds_per_row) / 8
        return counts

    def _fill_in_parallel(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        walks = [_Walk(job) for job in jobs]
        alone = [(walk.scout, walk.first_row) for walk in walks if walk.is_single_row]
        drafted = [
            (walk.scout, walk.first_row, walk.text_draft) for walk in walks if walk.text_draft
        ]
        if alone:
            fill_next_token_bitmask_par(self._executor, alone, bitmask)
        if drafted:
            fill_next_token_bitmask_par_with_draft_tokens(self._executor, drafted, bitmask)
        return [walk.finish(bitmask) for walk in walks]


class LLGuidanceGrammar:
    """One compiled constraint; keeps a few matchers for reuse.

    Matchers come from independent originals: llguidance's own copies share a lock and cannot be
    filled in parallel. A used one is rewound and kept, with the lexer states it has found.
    """

    def __init__(self, backend: LLGuidanceBackend, lowered: Lowered) -> None:
        self.backend = backend
        self.report = lowered.report
        self.compile_ms = 0.0
        # between what was measured when fresh (50 kB and 12 bytes a character) and after a walk
        self.num_bytes = 100_000 + 25 * len(lowered.grammar)
        self._grammar = lowered.grammar
        self._has_free_keys = lowered.has_free_keys
        if lowered.has_free_keys:  # made here, where it keeps no step waiting
            token_table(backend.vocabulary)
        self._markers = special_token_ids(lowered.grammar)
        self._spares: deque[LLMatcher] = deque(maxlen=_NUM_SPARES)
        first = self._build()
        self._probe(first)
        self._spares.append(first)

    def pack(self) -> Packed:
        """The grammar's text: parsing it again takes a millisecond."""
        flag = _GUARDED if self._has_free_keys else _PLAIN
        return Packed(self.report, flag + self._grammar.encode(), self.compile_ms)

    def matcher(self) -> LLGuidanceMatcher | GuardedMatcher:
        """A matcher at the start of the text: a rewound one, else built anew."""
        try:
            library = self._spares.pop()
        except IndexError:
            library = self._build()
        matcher = LLGuidanceMatcher(library, self.backend.vocabulary, self._markers)
        weakref.finalize(matcher, _keep, self._spares, library).atexit = False
        return GuardedMatcher(matcher, self.backend.vocabulary) if self._has_free_keys else matcher

    def _build(self) -> LLMatcher:
        library = LLMatcher(self.backend.tokenizer, self._grammar, log_level=0, limits=LIMITS)
        if library.is_error():
            raise grammar_error(library.get_error())
        return library

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


def _keep(spares: deque[LLMatcher], library: LLMatcher) -> None:
    if not library.is_error() and library.reset():
        spares.append(library)


class LLGuidanceMatcher:
    """One request's position. Stop tokens are counted here: the library forgets them.

    The library also keeps the last mask it computed, over rollbacks and resets too, under a key
    that does not tell branches apart: one computed further on may be taken for that of another
    branch. So after a rollback the next mask is computed where the text stands (what is kept then
    is right, or replaced); where tokens came in between, by a copy, a scout, that is thrown away.
    """

    __slots__ = ("__weakref__", "_markers", "_num_astray", "_num_stops", "_vocabulary", "library")

    def __init__(
        self, library: LLMatcher, vocabulary: Vocabulary, markers: frozenset[int] = frozenset()
    ) -> None:
        """`markers` are the special tokens that the grammar names."""
        self.library = library
        self._vocabulary = vocabulary
        self._markers = markers
        self._num_stops = 0
        # tokens since the text left that of the kept mask; None: the mask is of this text
        self._num_astray: int | None = 0  # the kept mask is that of whoever had the library before

    @property
    def is_stopped(self) -> bool:
        """Whether a stop token was accepted."""
        return self._num_stops > 0

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary its rows are for."""
        return self._vocabulary

    def is_writable(self, token_id: int) -> bool:
        """Whether the grammar can have anything to do with this token."""
        return self._vocabulary.is_text(token_id) or token_id in self._markers

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`; the budget is ignored."""
        if self._num_stops:
            fill_stop_row(bitmask, row, self._vocabulary.stop_token_ids)
            return
        library = self.library
        if self._num_astray:
            library = library.deep_copy()
        else:
            self._num_astray = None
        fill_next_token_bitmask(library, bitmask, row)
        check(library)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        if token_id in self._vocabulary.stop_token_ids:
            is_allowed_here = self._num_stops > 0 or bool(self.library.is_accepting())
            self._num_stops += is_allowed_here
            return is_allowed_here
        if self._num_stops or not self.is_writable(token_id):
            return False
        if not self._is_shown(token_id):
            return False
        return self._consume([token_id]) == 1

    def _consume(self, token_ids: list[int]) -> int:
        """Advance by the first of these tokens that the grammar takes; how many that were."""
        num_taken: int = self.library.try_consume_tokens(token_ids)
        if num_taken < len(token_ids):
            check(self.library)
        if self._num_astray is not None:
            self._num_astray += num_taken
        return num_taken

    def _is_shown(self, token_id: int) -> bool:
        """Whether the mask may have it: where text is forced it has one token, the canonical."""
        if not self.library.compute_ff_bytes():  # quick beside looking for tokens
            return True
        forced = self.library.compute_ff_tokens()
        return not forced or forced[0] == token_id

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens, stop tokens included."""
        num_stops = min(num_tokens, self._num_stops)
        self._num_stops -= num_stops
        if num_tokens > num_stops:
            self._num_astray = max(0, (self._num_astray or 0) - num_tokens + num_stops)
            if not self.library.rollback(num_tokens - num_stops):
                check(self.library)

    def forced(self, limit: int) -> bytes:
        """The text every valid continuation starts with; empty where the text may end."""
        if self._num_stops or self.library.is_accepting():
            return b""
        forced: bytes = self.library.compute_ff_bytes()
        return forced.partition(SPECIAL)[0][:limit]

    def forced_tokens(self, limit: int) -> list[int]:
        """The canonical tokens of forced text, as far as nothing may merge with them."""
        forced: list[int] = []
        while len(forced) < limit and not self._num_stops and not self.library.is_accepting():
            tokens = self.library.compute_ff_tokens()
            num_taken = self._consume(tokens)
            forced += tokens[:num_taken]
            if num_taken == 0:
                break
        self.rollback(len(forced))
        return forced[:limit]

    def tokens_to_end(self) -> int | None:
        """llguidance cannot know."""
        return None


def check(library: LLMatcher) -> None:
    """Raise MatcherFailed if the library has given up: its rows would then allow the end."""
    if library.is_error():
        raise MatcherFailed(library.get_error())


class _Walk:
    """One job split into what llguidance walks itself (text) and what comes behind it."""

    __slots__ = ("_job", "_matcher", "_places", "first_row", "is_single_row", "scout", "text_draft")

    def __init__(self, job: FillJob) -> None:
        guard = job.matcher if isinstance(job.matcher, GuardedMatcher) else None
        matcher = job.matcher if guard is None else guard.inner
        assert isinstance(matcher, LLGuidanceMatcher)
        self._job, self._matcher, self.first_row = job, matcher, job.first_row
        self._places = [] if guard is None else guard.places_of(job.draft_token_ids)
        self.scout = matcher.library.deep_copy()
        # the library stops at a stop token and fails on an id it does not know
        self.text_draft: list[int] = []
        is_walked = self._places is not None and not matcher.is_stopped
        if is_walked:
            self.text_draft = list(takewhile(matcher.is_writable, job.draft_token_ids))
        self.is_single_row = is_walked and not self.text_draft  # the library's is the first alone

    def finish(self, bitmask: Bitmask) -> int:
        """How many drafts are taken; fills the rows behind a stop token."""
        if self._places is None:  # a draft repeats a key: rare
            return fill_job(self._job, bitmask)
        row, stops = self.first_row, self._matcher.vocabulary.stop_token_ids
        if self._matcher.is_stopped:
            fill_stop_row(bitmask, row, stops)
        check(self.scout)
        num_valid = 0
        for token_id in self._job.draft_token_ids:
            if not is_allowed(bitmask, row + num_valid, token_id):
                break
            num_valid += 1
            if token_id in stops:
                fill_stop_row(bitmask, row + num_valid, stops)
        if isinstance(self._job.matcher, GuardedMatcher):
            self._job.matcher.take_repeats(bitmask, row, self._places[: num_valid + 1])
        return num_valid
