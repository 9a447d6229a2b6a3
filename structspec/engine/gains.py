"""What guesses will gain: how much of a glimpse is written, and what drafts make true of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from structspec.drafters.base import Glimpse
from structspec.request import Request

_KEPT = 0.98  # of what matches of one kind showed, with each later one
_PRIOR_WEIGHT = 4.0  # matches
_PRIOR_HELD = 1.0  # guesses of each
_PRIOR_TOKENS = 16.0  # foreseen and gained
_SHORT_MATCH = 1  # token, which may be one by chance
_FORGIVEN = 0.0005  # of the distrust in what is foreseen, with each step without guesses


@dataclass(slots=True)
class Trust:
    """What drafts make true of gains that were foreseen: they may be shorter, or not look as far.

    And what is chosen for being much is less in truth.
    """

    foreseen: float = 0.0  # of the next step with guesses; 0 where another has foreseen it
    _all_foreseen: float = _PRIOR_TOKENS
    _all_gained: float = _PRIOR_TOKENS

    @property
    def share(self) -> float:
        """How much of it may be believed."""
        return min(1.0, self._all_gained / self._all_foreseen)

    def landed(self, gained: int | None) -> None:
        """Compare a step's gain with what was foreseen; None: it had no guesses."""
        if gained is None:  # believe a little more: it may be otherwise now
            self._all_gained += _FORGIVEN * max(0.0, self._all_foreseen - self._all_gained)
        elif self.foreseen > 0:
            self._all_foreseen = _KEPT * self._all_foreseen + self.foreseen
            self._all_gained = _KEPT * self._all_gained + gained
            self.foreseen = 0.0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A glimpse whose tokens may not be written yet."""

    request: Request
    first: int  # where it begins among the request's tokens
    glimpse: Glimpse


class Gains:
    """How many tokens of a glimpse are written as it says: learnt for each kind of match.

    Where the first of them is on its way already, only those behind it are gained; if it turns out
    to be another, as many as behind any token that no long match was foreseen for.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}  # by request: one at a time
        self._known: dict[tuple[str, int], _Held] = {}
        self._anywhere = _Held()

    def expect(
        self, requests: Sequence[Request], glimpses: Sequence[Glimpse], *, is_ahead: bool
    ) -> float:
        """How many will be gained, of all requests together.

        `is_ahead`: whether a step is running that writes one more token of each.
        """
        self._judge()
        gain = 0.0
        for request, glimpse in zip(requests, glimpses, strict=True):
            gain += min(self._of(glimpse, is_ahead=is_ahead), _room(request))
            self._remember(request, glimpse)
        return gain

    def forget_pending(self) -> None:
        """Let go of requests whose glimpses are not judged yet."""
        self._pending.clear()

    def _of(self, glimpse: Glimpse, *, is_ahead: bool) -> float:
        num_tokens = len(glimpse.token_ids)
        anywhere = self._anywhere.mean if is_ahead else 0.0
        if not num_tokens:
            return anywhere
        held = self._known.setdefault(glimpse.kind, _Held())
        if not is_ahead:
            return min(held.mean, num_tokens)
        return min(held.behind_first, num_tokens - 1) + held.share_failed * anywhere

    def _remember(self, request: Request, glimpse: Glimpse) -> None:
        if not glimpse.token_ids:
            self._anywhere.note(0)
        elif request.request_id not in self._pending:
            pending = _Pending(request, len(request.token_ids), glimpse)
            self._pending[request.request_id] = pending

    def _judge(self) -> None:
        """Look at what was written where glimpses were taken."""
        for request_id, pending in list(self._pending.items()):
            guessed = pending.glimpse.token_ids
            written = pending.request.token_ids[pending.first : pending.first + len(guessed)]
            num_held = _count_alike(guessed, written)
            is_known = num_held < len(written) or len(written) == len(guessed)
            if is_known:
                self._note(pending.glimpse.kind, num_held)
            if is_known or pending.request.is_finished:
                del self._pending[request_id]

    def _note(self, kind: tuple[str, int], num_held: int) -> None:
        self._known[kind].note(num_held)
        if kind[1] == _SHORT_MATCH:
            self._anywhere.note(num_held)


@dataclass(slots=True)
class _Held:
    """What was written as matches said; the older, the less it counts."""

    num_matches: float = _PRIOR_WEIGHT
    num_held: float = _PRIOR_WEIGHT * _PRIOR_HELD  # tokens
    num_begun: float = _PRIOR_WEIGHT / 2  # matches of which one held at least

    @property
    def mean(self) -> float:
        """Tokens of a match that hold."""
        return self.num_held / self.num_matches

    @property
    def behind_first(self) -> float:
        """Of them, those behind a match's first token."""
        return (self.num_held - self.num_begun) / self.num_matches

    @property
    def share_failed(self) -> float:
        """Of the matches, those of which nothing holds."""
        return 1 - self.num_begun / self.num_matches

    def note(self, num_held: int) -> None:
        """Count a match."""
        self.num_matches = _KEPT * self.num_matches + 1
        self.num_held = _KEPT * self.num_held + num_held
        self.num_begun = _KEPT * self.num_begun + (num_held > 0)


def _room(request: Request) -> int:
    """How many guesses it may have at most."""
    wanted = request.params.speculation.num_speculative_tokens
    num_left = max(0, request.max_tokens - request.num_output_tokens - 1)
    return num_left if wanted is None else min(wanted, num_left)


def _count_alike(guessed: Sequence[int], written: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(guessed, written, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
