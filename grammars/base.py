"""The protocols of the grammar layer: what a backend, a compiled grammar and a matcher owe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from structspec.constraint import Constraint
from structspec.errors import UnsupportedConstraint
from structspec.vocabulary import Vocabulary

Bitmask = NDArray[np.int32]  # [num_rows, ceil(vocab_size / 32)], bit v % 32 of word v // 32
Row = NDArray[np.int32]  # [ceil(vocab_size / 32)], one of a bitmask


class MatcherFailed(RuntimeError):
    """A grammar library gave up on one matcher (a limit, a bug); the matcher is of no more use."""


class DeadEnd(MatcherFailed):
    """No token may stand behind this text; says whose wish that is. The matcher is well."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one keyword: where it stands, and a sentence on why."""

    pointer: str
    keyword: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a backend does with each part of a constraint; nothing is ever left out.

    `exact` is True when the mask holds everything: finished output is valid by construction.
    """

    backend: str
    enforced: tuple[Finding, ...] = ()
    approximated: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    changes: tuple[str, ...] = ()
    reason: str = ""  # why this backend, where the router chose it

    @property
    def exact(self) -> bool:
        """Whether a finished text always conforms."""
        return not self.approximated and not self.refused


def check_refused(report: Report) -> None:
    """Raise UnsupportedConstraint for the first part that the backend refuses, if any."""
    for finding in report.refused:
        raise UnsupportedConstraint(
            f"{finding.keyword}: {finding.reason}" if finding.reason else finding.keyword,
            pointer=finding.pointer or None,
        )


@dataclass(frozen=True, slots=True)
class Packed:
    """A compiled grammar as bytes."""

    report: Report
    data: bytes
    compile_ms: float


class Matcher(Protocol):
    """One request's position in one compiled grammar; used by one thread at a time.

    Laws: `accept(t)` is True exactly when bit t of a filled row is 1; `fill` changes no state; a
    refused `accept` changes nothing; k accepts then `rollback(k)` restores the row bit for bit;
    after a stop token only stop tokens are allowed.
    """

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`.

        With a budget, only those after which the text can still end within that many tokens;
        ignored where `tokens_to_end` is None. A wrapped matcher may raise DeadEnd, and the row
        holds stop tokens then, which it refuses as it does all others.
        """

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens, stop tokens included, to any depth."""

    def forced(self, limit: int) -> bytes:
        """The text that every valid continuation starts with, at most `limit` bytes."""

    def forced_tokens(self, limit: int) -> list[int]:
        """The tokens that the masks leave no choice about from here on, at most `limit`.

        Empty where more than one token is allowed, though they all begin the same text.
        """

    def tokens_to_end(self) -> int | None:
        """The fewest tokens to a valid end; None where the backend cannot know."""


Move = tuple[Matcher, Sequence[int]]  # a matcher and the tokens that it is to be moved by


class Look(NamedTuple):
    """A matcher, guesses behind its text, and how much is wanted: guesses and certain tokens."""

    matcher: Matcher
    token_ids: Sequence[int]
    limit: int


class Seen(NamedTuple):
    """How many guesses a grammar takes, and the tokens that are certain behind them."""

    num_taken: int
    certain: list[int]


@dataclass(frozen=True, slots=True)
class FillJob:
    """One request's rows in a batch of masks: 1 + len(draft_token_ids) from `first_row` on."""

    matcher: Matcher
    first_row: int
    draft_token_ids: Sequence[int]


class CompiledGrammar(Protocol):
    """A grammar ready to use, its tables shared by every matcher made from it."""

    report: Report  # what is enforced, approximated and refused
    # [num_words], allows what any row does; None where it would forbid little. Set by the compiler
    wide_row: Row | None
    start_row: Row | None  # [num_words], the row at the start of the text, if it is at hand

    @property
    def compile_ms(self) -> float:
        """How long compiling took, in milliseconds."""

    @property
    def num_bytes(self) -> int:
        """About how much memory its tables take, shared by all its matchers."""

    @property
    def backend(self) -> BatchMatching:
        """The backend that made it, which fills rows of many of its matchers at once."""

    def expect(self) -> None:
        """Say that a matcher will be asked for soon; thread-safe, returns at once."""

    def matcher(self) -> Matcher:
        """A matcher at the start of the text; cheap."""

    def pack(self) -> Packed | None:
        """Itself as bytes, for `Backend.unpack` in another process or on another day.

        None where the library has no way to.
        """


class BatchMatching(Protocol):
    """Rows and tokens of many matchers at once; thread-safe."""

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill the rows of many requests at once and say how many drafts each one's grammar takes.

        Row `first_row + i` masks the logits that verify draft i; the last is the bonus row. What
        is in a row behind the first refused draft means nothing. No matcher's state changes. Raises
        MatcherFailed when the library gives up on one of them; rows are then not to be used.
        """

    def take_shown(self, moves: Sequence[Move]) -> list[Exception | None]:
        """Move each matcher by tokens that the rows filled for them allow, one behind the other.

        Says what went wrong with each, if anything; such a matcher is of no more use.
        """

    def take_unseen(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move each matcher by tokens that no row was filled for, up to the first it refuses.

        Says how many each took, or what went wrong with it; one that failed is of no more use. A
        refused token changes nothing, and is not looked behind.
        """

    def take_first(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move each matcher by the first of its tokens that the grammar takes, if there is one.

        Says which it was, by its place (len(token_ids) for none), or what went wrong with it.
        """

    def look_ahead(self, looks: Sequence[Look]) -> list[Seen | Exception]:
        """What each grammar takes of some guesses, and what is certain behind them.

        A stop token may only be the last of them. Certain is what `forced_tokens` says behind those
        that were taken, at most `limit` of both together. No matcher's state changes; one that
        failed is of no more use.
        """


class Backend(BatchMatching, Protocol):
    """One grammar library (or our own automaton) behind the laws of `Matcher`; thread-safe."""

    def report(self, constraint: Constraint) -> Report:
        """What this backend would do with each part of `constraint`; makes no tables.

        A part it cannot hold is in `refused`; a constraint that is wrong raises GrammarError.
        """

    def compile(self, constraint: Constraint) -> CompiledGrammar:
        """Compile for this backend's vocabulary; slow, raises GrammarError with the place.

        What it returns was probed: its first masks were filled and its first tokens taken.
        """

    def unpack(self, packed: Packed) -> CompiledGrammar:
        """What `pack` gave, made for an equal vocabulary; quick beside compiling.

        Raises GrammarError or ValueError for bytes that are no grammar of this backend.
        """


__all__ = [
    "Backend",
    "BatchMatching",
    "Bitmask",
    "CompiledGrammar",
    "DeadEnd",
    "FillJob",
    "Finding",
    "Look",
    "Matcher",
    "MatcherFailed",
    "Move",
    "Packed",
    "Report",
    "Row",
    "Seen",
    "Vocabulary",
    "check_refused",
]
