"""The matcher around a request's near its end, see `ending.py`.

The ending is looked at behind a token: it is followed where the text goes on as it does, kept where
a string or number that it closes goes on, and else looked for, from what ended the text before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from structspec.bitmask import allocate_bitmask, pack_row, unpack_row
from structspec.ending_row import is_known_to_fit, narrow_known, narrowed
from structspec.ending_search import Closers, Ending, Place
from structspec.grammars.base import Bitmask, FillJob, Matcher, Row
from structspec.grammars.drafts import taken_ahead
from structspec.grammars.scouts import Scout, last_tokens, may_stand, reads_bytes, scout_of
from structspec.grammars.wrapping import WrappedMatcher

if TYPE_CHECKING:
    from structspec.ending import EndInTime

_MOST_FOLLOWED = 64  # tokens, the last: more are not taken back at once
_AGAIN = 8  # where no ending is known one is looked for every so many tokens


class TimelyMatcher(WrappedMatcher):
    """What the matcher inside allows, as long as the text can still end in time.

    Where no ending is known that fits, all stays as it was.
    """

    __slots__ = ("_followed", "_looks", "_next_look", "_num_taken", "_plan", "_row")

    def __init__(self, inner: Matcher, plan: EndInTime, num_taken: int) -> None:
        super().__init__(inner)
        self._plan = plan
        self._num_taken = num_taken
        self._looks: list[tuple[int, Place]] = []  # behind how many tokens, and what was found
        self._next_look = plan.first  # behind so many tokens
        self._row: NDArray[np.bool_] | None = None  # what is allowed here, once that is known
        # by how many tokens were taken, the last of them and the places before it and behind it:
        # drafts are looked at, taken back and taken again
        self._followed: dict[int, tuple[Place, int, Place]] = {}
        if num_taken >= plan.first:
            self._look(self._place_at_first())

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        self.inner.fill(bitmask, row, budget)
        self._narrow_row(bitmask[row])

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        place = self._tight_place
        if place is not None and not self._is_allowed(token_id, place):
            return False
        here = self._place
        if not self.inner.accept(token_id):
            return False
        self._num_taken += 1
        self._row = None
        if self._num_taken == self._next_look:
            self._look(self._place_behind(here, token_id))
        return True

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        if not num_tokens:
            return
        self.inner.rollback(num_tokens)
        self._num_taken -= num_tokens
        self._row = None
        while self._looks and self._looks[-1][0] > self._num_taken:
            del self._looks[-1]
        self._next_look = self._after_look() if self._looks else self._plan.first

    def forced_tokens(self, limit: int) -> list[int]:
        """What the matcher inside leaves no choice about."""
        forced = self.inner.forced_tokens(limit)
        if self.passes(len(forced)):
            return forced
        return taken_ahead(self, forced)

    def inner_job(self, job: FillJob) -> FillJob | None:
        """The same for the matcher inside, where no row behind a draft is narrowed."""
        num_more = len(job.draft_token_ids)
        if num_more and (self._tight_place is not None or not self.passes(num_more)):
            return None
        return FillJob(self.inner, job.first_row, job.draft_token_ids)

    def narrow(self, job: FillJob, bitmask: Bitmask, num_valid: int) -> int:
        """Narrow the row of a job without drafts; those with some are loose."""
        self._narrow_row(bitmask[job.first_row])
        return num_valid

    def passes(self, num_tokens: int) -> bool:
        """Whether the matcher inside alone can be moved by so many tokens."""
        return self._num_taken + num_tokens < self._next_look

    def may_look_inside(self, num_tokens: int) -> bool:
        """Whether the matcher inside says well enough what may be drafted."""
        return self._tight_place is None

    def passed(self, num_tokens: int) -> None:
        """Note that the matcher inside was moved by so many tokens."""
        self._num_taken += num_tokens
        self._row = None

    @property
    def knows_an_end(self) -> bool:
        """Whether tokens are known that end the text here."""
        return self._place is not None and self._place.ending is not None

    @property
    def _num_left(self) -> int:
        return self._plan.max_tokens - self._num_taken

    @property
    def _place(self) -> Place | None:
        """What was found here, where the end was looked at."""
        if not self._looks or self._looks[-1][0] != self._num_taken:
            return None
        return self._looks[-1][1]

    @property
    def _tight_place(self) -> Place | None:
        """What was found here, where some token might leave too few for the end."""
        place = self._place
        # unknown, or too late for all of it
        if place is None or place.ending is None or len(place.ending) >= self._num_left:
            return None
        if self._spare(place.ending, self._num_taken) >= 0:
            return None
        most = place.closers.most
        return None if most is not None and most <= self._num_left - 2 else place

    def _spare(self, ending: Ending, num_taken: int) -> int:
        """How many tokens are left beyond an ending, what a token may add to it, and that token."""
        return self._plan.max_tokens - num_taken - 2 - len(ending) - self._plan.growth

    def _look(self, place: Place) -> None:
        self._looks.append((self._num_taken, place))
        self._next_look = self._after_look()

    def _after_look(self) -> int:
        """Where the end is to be looked at next: before that no row can be too wide."""
        num_taken, place = self._looks[-1]
        if place.ending is None and not num_taken:
            return self._plan.max_tokens + 1  # with fewer tokens there is none either
        if place.ending is None or len(place.ending) >= self._plan.max_tokens - num_taken:
            # what takes long to look for in vain is looked for a few times only
            return num_taken + max(_AGAIN, (self._plan.max_tokens - num_taken) // 2)
        spare = self._spare(place.ending, num_taken)
        # what adds so much to an ending takes some tokens to be opened once more
        return num_taken + max(1, (spare - self._plan.growth) // (1 + self._plan.growth // 4))

    def _place_at_first(self) -> Place:
        """The place where looking begins; that of an empty text is looked for once for all."""
        starts = self._plan.starts
        if self._num_taken or isinstance(self.inner, WrappedMatcher):
            return self._place_behind(None, None)
        if not starts:
            starts.append(self._place_behind(None, None).ending)
        return Place(starts[0], b"", self._new_closers())

    def _place_behind(self, here: Place | None, token_id: int | None) -> Place:
        """The place behind a token that was just taken at a place that is known, or is not.

        Where a search fails nothing is known of the end; the text may be well for all that.
        """
        last = b"" if token_id is None else self._plan.search.last_byte([token_id], b"")
        try:
            if token_id is None:
                return self._found(last)
            if here is None or here.ending is None:
                return self._found_again(last)
            before, followed, behind = self._followed.get(self._num_taken, (None, -1, here))
            if before is not here or followed != token_id:
                behind = self._follow(here, token_id)
                self._followed[self._num_taken] = here, token_id, behind
                self._followed.pop(self._num_taken - _MOST_FOLLOWED, None)
            return behind
        except Exception:
            return Place(None, last, self._new_closers())

    def _kept_through(self, ending: Ending, num_new: int) -> Ending | None:
        """What is left of an ending behind the last so many tokens, if that can be seen."""
        new = last_tokens(self.inner, num_new)
        kept = None if new is None else self._plan.search.keep_through(ending, new)
        if not kept:
            return None
        if self._plan.are_alike and self._may_stand(kept):
            return kept
        return kept if self._scout().ends_with(kept) else None

    def _new_closers(self) -> Closers:
        return Closers(self._num_left - 2)

    def _scout(self) -> Scout:
        return scout_of(self.inner, self._plan.search.stop_token_ids)

    def _found(self, last: bytes) -> Place:
        limit = max(0, self._num_left - 1)
        found = self._plan.search.find_among(self._scout(), limit, last)
        return Place(found, last, self._new_closers())

    def _found_again(self, last: bytes) -> Place:
        """The place some tokens behind the last look: what ended the text there may still do so."""
        num_taken, place = self._looks[-1] if self._looks else (0, None)
        if place is None or not place.ending:
            return self._found(last)
        num_new = self._num_taken - num_taken
        limit = max(0, self._num_left - 1)
        ending, search = place.ending, self._plan.search
        kept = self._kept_through(ending, num_new)
        if kept is None:
            kept = search.find(self._scout(), limit, last, ending, num_skipped=num_new)
        if kept is None or self._spare(kept, self._num_taken) < 0:  # perhaps another is shorter
            found = self._found(last)
            if kept is None or (found.ending is not None and len(found.ending) < len(kept)):
                return found
        return Place(kept, last, self._new_closers())

    def _follow(self, place: Place, token_id: int) -> Place:
        """The place behind a token that was just taken."""
        search = self._plan.search
        last = search.last_byte([token_id], place.last)
        assert place.ending is not None
        if self._goes_on(place, token_id):
            return place._replace(last=last, is_plain=True)
        if self._may_stay(place, token_id):
            return place._replace(last=last, is_plain=False, is_unsure=not self._plan.are_alike)
        kept = search.keep_exactly(place.ending, [token_id], by_bytes=reads_bytes(self.inner))
        if kept is not None and place.is_unsure and not self._scout().ends_with(kept):
            kept = None
        if kept is None and self._plan.are_alike:
            left = search.tokens.left_of(place.ending, search.tokens.bytes_of(token_id))
            kept = left if left and self._may_stand(left) else None
        if kept is None and self._plan.are_alike:
            other = self._other_value(place.ending, token_id)
            # it is not spelled in as few tokens as may be, which matters near the end
            if other and self._spare(other, self._num_taken) >= 0:
                kept = other
        if kept is None:
            kept = search.keep(self._scout(), place.ending, token_id)
        if kept is None:
            # as in its row: what was found there is found again
            kept = search.find(
                self._scout(),
                min(len(place.ending) + self._plan.room, place.closers.limit),
                last,
                place.ending,
            )
            if kept is None or len(kept) >= self._num_left:
                return self._found(last)
            return Place(kept, last, self._new_closers())
        is_within = kept is place.ending and search.tokens.stays_in_string(token_id)
        # in the middle of a pattern one more character may be one too many
        is_closing = search.closes_a_string(kept) and not search.closes_a_key(kept)
        shares = is_within and is_closing
        is_plain = shares and bool(search.tokens.plain[token_id])
        return Place(kept, last, place.closers if shares else self._new_closers(), is_plain)

    def _goes_on(self, place: Place, token_id: int) -> bool:
        """Whether a token only lengthens a string whose closing quote may stand anywhere."""
        search, ending = self._plan.search, place.ending
        if not (place.is_plain and place.closers.stays.get("plain") and ending):
            return False
        is_plain = bool(search.tokens.plain[token_id])
        return is_plain and search.closes_a_string(ending) and not search.closes_a_key(ending)

    def _may_stay(self, place: Place, token_id: int) -> bool:
        """Whether the ending closes a string or number that a token goes on with, as far as seen.

        To be asked for sure where that is closed: there a token may add no more than elsewhere.
        """
        search, ending = self._plan.search, place.ending
        if (
            not ending
            or self._spare(ending, self._num_taken) < 0
            or not search.goes_on(ending, token_id)
        ):
            return False
        return self._may_stand(ending)

    def _may_stand(self, ending: Ending) -> bool:
        """Whether an ending may stand here that ends the text behind another value of this place.

        Where nothing hangs on values it is seen from what closes this one, and some more: what
        looks like its quote may be behind a backslash.
        """
        near = self._plan.search.near(ending) if self._plan.are_alike else ending
        return may_stand(self.inner, near)

    def _other_value(self, ending: Ending, token_id: int) -> Ending:
        """The ending behind a token that begins another value than it does; empty: it does not."""
        others = self._plan.search.other_values(ending, token_id)
        return next((other for other in others if self._may_stand(other)), ())

    def _narrow_row(self, row: Row) -> None:
        """Take from a row of the matcher inside what leaves too little for the end."""
        place = self._tight_place
        tokens = self._plan.search.tokens
        if place is None or narrow_known(tokens, place, row, self._num_left):
            return
        pack_row(self._narrowed(row, place), row)

    def _is_allowed(self, token_id: int, place: Place) -> bool:
        """As the row here says, which is filled for that where it has to be."""
        if is_known_to_fit(self._plan.search.tokens, place, token_id, self._num_left):
            return True
        if self._row is None:
            bitmask = allocate_bitmask(1, self._plan.search.tokens.vocab_size)
            self.inner.fill(bitmask, 0)
            self._narrowed(bitmask[0], place)
        assert self._row is not None
        return 0 <= token_id < len(self._row) and bool(self._row[token_id])

    def _narrowed(self, row: Row, place: Place) -> NDArray[np.bool_]:
        """[vocab_size]: those that a row of the matcher inside allows and that leave an ending."""
        if self._row is None:
            inside = unpack_row(row, self._plan.search.tokens.vocab_size)
            self._row = self._narrow(inside, place)
        return self._row

    def _narrow(self, inside: NDArray[np.bool_], place: Place) -> NDArray[np.bool_]:
        """The same, or all that is allowed inside where no matcher can be sent ahead."""
        plan = self._plan
        try:
            return narrowed(plan.search, self._scout(), place, inside, self._num_left, plan.room)
        except Exception:
            return inside
