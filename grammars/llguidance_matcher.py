"""One request's position in a grammar that llguidance runs."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLMatcher
from llguidance.numpy import fill_next_token_bitmask

from structspec.grammars.base import Bitmask, MatcherFailed
from structspec.grammars.drafts import fill_stop_row
from structspec.grammars.llguidance_followers import Follower, Work
from structspec.grammars.llguidance_originals import Original
from structspec.grammars.llguidance_pool import Claim
from structspec.grammars.llguidance_tokens import SPECIAL
from structspec.vocabulary import Vocabulary


class LLGuidanceMatcher:
    """A copy of an original. Stop tokens are counted here: the library forgets them.

    The library also keeps the last mask it computed, in copies and over rollbacks too, under a key
    that does not tell branches apart: one computed further on may be taken for that of another
    branch. So once the text has left that of the kept mask, the next mask is computed by a new copy
    of the original, which has kept none, behind the same tokens.

    What takes time in Python is put off: tokens that a follower has taken, or that its row has
    shown, are noted, and the library sees them when it is asked for something.
    """

    __slots__ = (
        "__weakref__",
        "_claim",
        "_is_astray",
        "_library",
        "_markers",
        "_num_kept",
        "_num_shown",
        "_stop_token_ids",
        "_vocabulary",
        "follower",
        "num_stops",
        "original",
        "token_ids",
    )

    def __init__(
        self,
        original: Original,
        vocabulary: Vocabulary,
        markers: frozenset[int] = frozenset(),
        claim: Claim | None = None,
    ) -> None:
        """`markers` are the special tokens that the grammar names."""
        self.original = original
        self._library: LLMatcher = original.library.deep_copy()
        self._claim = claim
        # as the claim's; another thread may give it that, and its own thread this
        self.follower: Follower | None = None if claim is None else claim.follower
        self._vocabulary = vocabulary
        self._stop_token_ids = vocabulary.stop_token_ids
        self._markers = markers
        self.token_ids: list[int] = []  # without stop tokens; to be changed here alone
        self._num_shown = 0  # of them to the library
        self.num_stops = 0
        # The kept mask is that behind so many tokens, or goes on otherwise from there
        # (`_is_astray`). A new mask may be kept or not: where text is forced none is.
        self._num_kept = 0
        self._is_astray = False
        original.note_user(self)

    @property
    def is_stopped(self) -> bool:
        """Whether a stop token was accepted."""
        return self.num_stops > 0

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary its rows are for."""
        return self._vocabulary

    @property
    def library(self) -> LLMatcher:
        """The library's matcher, where the text stands."""
        if self._num_shown < len(self.token_ids):
            self._library.consume_tokens(self.token_ids[self._num_shown :])
            self._num_shown = len(self.token_ids)
        return self._library

    def ask_for_follower(self) -> Follower | None:
        """Its follower, if there is one by now: others make it."""
        if self.follower is None and self._claim is not None:
            self.follower = self._claim.ask()
        return self.follower

    def follower_for(self, num_new: int) -> Follower | None:
        """The follower that may be moved by so many new tokens: another, where it is astray."""
        follower = self.follower
        if follower is None or not follower.is_astray:
            return follower
        if num_new or follower.num_taken < len(self.token_ids):
            assert self._claim is not None
            self.follower = self._claim.change()
        return self.follower

    def drop_follower(self) -> None:
        """It has failed: from now on rows are the library's."""
        if self._claim is not None:
            self._claim.take_away()
        self.follower = self._claim = None

    @property
    def has_followed_row(self) -> bool:
        """Whether the follower has filled the row where the text stands."""
        return self.follower is not None and self.follower.has_row_at(len(self.token_ids))

    def is_writable(self, token_id: int) -> bool:
        """Whether the grammar can have anything to do with this token."""
        return self._vocabulary.is_text(token_id) or token_id in self._markers

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`; the budget is ignored."""
        if self.num_stops:
            fill_stop_row(bitmask, row, self._stop_token_ids)
            return
        fill_next_token_bitmask(self.library_for_row(), bitmask, row)
        self.note_row()

    def library_for_row(self) -> LLMatcher:
        """What may compute a row where the text stands; `note_row` is to follow."""
        if self._is_astray and len(self.token_ids) > self._num_kept:
            self._start_again()
        return self.library

    def scout(self) -> LLMatcher:
        """A copy that may be moved along drafts and compute rows there."""
        if self._is_astray:
            self._start_again()
        return self.library.deep_copy()

    def note_row(self) -> None:
        """The library has computed a row here, and keeps it unless what follows is forced."""
        if self._library.is_error():
            self.check()
        self._num_kept = len(self.token_ids)
        if self._is_astray and not self.library.compute_ff_bytes():
            self._is_astray = False

    def _start_again(self) -> None:
        self._library = self.original.library.deep_copy()
        num_taken = self._num_shown = self._library.try_consume_tokens(self.token_ids)
        self.check()
        assert num_taken == len(self.token_ids)
        self._num_kept, self._is_astray = num_taken, False

    def check(self) -> None:
        """Raise MatcherFailed if the library has given up: its rows would then allow the end."""
        if self._library.is_error():
            self.original.has_failed = True
            raise MatcherFailed(self._library.get_error())

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        if token_id in self._stop_token_ids:
            is_allowed_here = self.num_stops > 0 or bool(self.library.is_accepting())
            self.num_stops += is_allowed_here
            return is_allowed_here
        if self.num_stops or not self.is_writable(token_id):
            return False
        if not self.is_shown(token_id):
            return False
        return self._consume([token_id]) == 1

    def ends_with(self, token_id: int) -> bool:
        """Whether this is a stop token: the library is not to see it."""
        return token_id in self._stop_token_ids

    def follow(self, work: Work, token_ids: Sequence[int]) -> None:
        """Have the follower look at these tokens, and note them as if it took them.

        If it does not, `note_refused` and `rollback` are to follow.
        """
        assert self.follower is not None
        work.add(self.follower, self.token_ids, token_ids)
        self.token_ids += token_ids

    def note_chosen(self, token_id: int) -> None:
        """The follower has taken this token of text."""
        assert self.follower is not None
        self.follower.num_taken += 1
        self.token_ids.append(token_id)

    def note_refused(self, num_tokens: int) -> None:
        """The follower has not taken the last tokens that were noted."""
        assert self.follower is not None
        self.follower.num_taken -= num_tokens

    def note_taken(self, token_ids: Sequence[int], *, is_shown: bool = True) -> None:
        """Rows allowed these tokens; all but stop tokens were shown to the library, or will be."""
        if self._library.is_error():
            self.check()
        for token_id in token_ids:
            if token_id in self._stop_token_ids:
                self.num_stops += 1
            else:
                self.token_ids.append(token_id)
                self._num_shown += is_shown

    def _consume(self, token_ids: list[int]) -> int:
        """Advance by the first of these tokens that the grammar takes; how many that were."""
        num_taken: int = self.library.try_consume_tokens(token_ids)
        if num_taken < len(token_ids):
            self.check()
        self.token_ids += token_ids[:num_taken]
        self._num_shown += num_taken
        return num_taken

    def is_shown(self, token_id: int) -> bool:
        """Whether the mask may have it: where text is forced it has one token, the canonical."""
        if not self.library.compute_ff_bytes():  # quick beside looking for tokens
            return True
        forced = self.library.compute_ff_tokens()
        return not forced or forced[0] == token_id

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens, stop tokens included."""
        num_stops = min(num_tokens, self.num_stops)
        self.num_stops -= num_stops
        num_tokens -= num_stops
        if num_tokens == 0:
            return
        del self.token_ids[-num_tokens:]
        num_left = len(self.token_ids)
        if self._num_shown > num_left:
            if not self._library.rollback(self._num_shown - num_left):
                self.check()
            self._num_shown = num_left
        if self.follower is not None:
            self.follower.note_rollback(num_left)
        if num_left < self._num_kept:
            self._num_kept, self._is_astray = num_left, True

    def forced(self, limit: int) -> bytes:
        """The text every valid continuation starts with; empty where the text may end."""
        if self.num_stops or self.library.is_accepting():
            return b""
        forced: bytes = self.library.compute_ff_bytes()
        return forced.partition(SPECIAL)[0][:limit]

    def forced_tokens(self, limit: int) -> list[int]:
        """The canonical tokens of forced text, as far as nothing may merge with them.

        Asked for one by one: behind the first of them a row may spell the rest otherwise.
        """
        forced: list[int] = []
        try:
            while len(forced) < limit and not self.num_stops and not self.library.is_accepting():
                tokens = self.library.compute_ff_tokens()[:1]
                if self._consume(tokens) == 0:
                    break
                forced += tokens
        finally:
            self.rollback(len(forced))
        return forced

    def tokens_to_end(self) -> int | None:
        """llguidance cannot know."""
        return None
