"""One request's draft in the making."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from structspec.drafters.spelling import NUM_CONTEXT_TOKENS
from structspec.drafters.tracked import TrackedMatcher
from structspec.engine.batch import DraftSource
from structspec.grammars.base import BatchMatching
from structspec.request import Request

_WORTH_A_CALL = 3  # tokens: fewer are asked about as quickly one by one


@dataclass(slots=True)
class Walk:
    """A draft that grows; the matcher, if there is one, stands behind its last token.

    The first `num_certain` tokens are all that the grammar allows. Behind a stop token nothing is
    drafted.
    """

    request: Request
    matcher: TrackedMatcher | None
    num_slots: int
    max_num_guessed: int
    stop_token_ids: Collection[int]
    matching: BatchMatching | None = None  # what may move the matcher by many tokens at once
    token_ids: list[int] = field(default_factory=list)
    is_forced: list[bool] = field(default_factory=list)
    spelled: list[int] = field(default_factory=list)  # places of tokens that spell forced text
    num_certain: int = 0
    held_back: tuple[int, int] | None = None  # the last token of a forced text, and its place
    sources: list[DraftSource] = field(default_factory=list)  # of all of them, in order

    @property
    def context(self) -> list[int]:
        """The last tokens, drafted ones included."""
        output = self.request.last_output_token_ids(NUM_CONTEXT_TOKENS)
        return [*output, *self.token_ids][-NUM_CONTEXT_TOKENS:]

    @property
    def num_free(self) -> int:
        """How many tokens may still be drafted."""
        is_ended = bool(self.token_ids) and self.token_ids[-1] in self.stop_token_ids
        return 0 if is_ended else self.num_slots - len(self.token_ids)

    @property
    def num_guesses(self) -> int:
        """How many of them may be guesses."""
        return min(self.num_free, self.max_num_guessed - self.is_forced.count(False))

    def take(
        self, token_ids: Sequence[int], *, is_forced: bool = False, is_spelled: bool = False
    ) -> int:
        """Draft these up to the end or the first that the matcher refuses; says how many."""
        wanted = self._up_to_end(token_ids)
        num_taken = self._move(wanted)
        if is_spelled:
            self.spelled += range(len(self.token_ids), len(self.token_ids) + num_taken)
        self.token_ids += wanted[:num_taken]
        self.is_forced += [is_forced] * num_taken
        return num_taken

    def _up_to_end(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Those that there is room for, and none behind a stop token."""
        some = token_ids[: max(0, self.num_free)]
        ends = (place for place, token_id in enumerate(some, 1) if token_id in self.stop_token_ids)
        return some[: next(ends, len(some))]

    def _move(self, token_ids: Sequence[int]) -> int:
        """Move the matcher by these tokens up to the first that it refuses; says how many."""
        if self.matcher is None:
            return len(token_ids)
        if self.matching is None or len(token_ids) < _WORTH_A_CALL:
            return sum(1 for _ in takewhile(self.matcher.accept, token_ids))
        return self.matcher.take(self.matching, token_ids)

    def put(self, source: str, guesses: Sequence[int], certain: Sequence[int]) -> None:
        """Draft guesses and what is certain behind them; the matcher is not moved."""
        if not guesses and not self.token_ids:
            self.num_certain = len(certain)
        self.token_ids += guesses
        self.token_ids += certain
        self.is_forced += [False] * len(guesses) + [True] * len(certain)
        self.count(source, len(guesses))
        self.count("forced", len(certain))

    def note(self, token_ids: Sequence[int]) -> int:
        """Draft what is forced and the matcher has accepted already; says how many."""
        self.token_ids += token_ids
        self.is_forced += [True] * len(token_ids)
        return len(token_ids)

    def count(self, source: str, num_tokens: int) -> int:
        """Say what has drafted the last so many tokens, and how many again."""
        if num_tokens:
            if self.sources and self.sources[-1].name == source:
                num_before = self.sources.pop().num_tokens
                self.sources.append(DraftSource(source, num_before + num_tokens))
            else:
                self.sources.append(DraftSource(source, num_tokens))
        return num_tokens
