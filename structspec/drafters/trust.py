"""Whether a model spells forced text as its tokenizer does: learnt from what it wrote.

forced     "paid":␣           the blank is all that is forced of what comes next,
written    "paid": false      which begins with ` false`, one token: so it is at this place
forced     "total":␣          every time, while here digits follow, and the blank stands
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.request import Request

_WINDOW = 64  # tokens judged at a time
_MIN_HELD = 0.5  # of them; fewer, and a run of such drafts brings less than one token on average
_REST = 1024  # places that are not spelled before it is tried again
_NUM_PLACE_TOKENS = 4  # what a place is known by: a key and its quotes, more or less
_MAX_PLACES = 4096
_MOST_AHEAD = 2  # a place that has changed shows soon


@dataclass(frozen=True, slots=True)
class _Pending:
    """A draft whose step may not be read yet."""

    request: Request
    first: int  # where it begins among the request's tokens
    token_ids: Sequence[int]
    spelled: frozenset[int]  # which of them spell forced text that other tokens could spell too


class SpellingTrust:
    """Says whether to spell out forced text where the masks leave a choice of tokens.

    A model that was trained on other splits refuses such drafts again and again. Of one engine's
    model this is learnt over all requests: a token counts once all before it in its draft held.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._num_judged = self._num_held = 0
        self._num_to_rest = 0

    def allows(self) -> bool:
        """Whether to spell at this place; to be asked once for each."""
        if self._num_to_rest == 0:
            return True
        self._num_to_rest -= 1
        return False

    def note(self, request: Request, token_ids: Sequence[int], spelled: Sequence[int]) -> None:
        """Remember a draft behind all of the request's tokens, and which of it was spelled."""
        if spelled:
            first = len(request.token_ids)
            pending = _Pending(request, first, token_ids, frozenset(spelled))
            self._pending[request.request_id] = pending

    def judge(self) -> None:
        """Look at what was written where drafts were noted; to be called before new ones are."""
        for request_id, pending in list(self._pending.items()):
            if len(pending.request.token_ids) > pending.first:
                self._count(pending)
            elif not pending.request.is_finished:
                continue
            del self._pending[request_id]
        if self._num_judged >= _WINDOW:
            if self._num_held < _MIN_HELD * self._num_judged:
                self._num_to_rest = _REST
            self._num_judged = self._num_held = 0

    def _count(self, pending: _Pending) -> None:
        written = pending.request.token_ids[pending.first :]
        for place, (drafted, token_id) in enumerate(zip(pending.token_ids, written, strict=False)):
            if place in pending.spelled:
                self._num_judged += 1
                self._num_held += drafted == token_id
            if drafted != token_id:
                return


class TailTrust:
    """Says whether to draft the last token of a forced text, which what follows may merge with.

    A place is known by its last tokens. It is learnt what is written there, drafted or not.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _PendingTail] = {}
        self._num_ahead: dict[tuple[int, ...], int] = {}  # how much oftener it stood than not

    def allows(self, request: Request, token_ids: Sequence[int], tail: int) -> bool:
        """Whether to draft this tail behind these drafts.

        Of those that are asked for in a step the first is learnt from: it stands on the least.
        """
        key = (*request.last_output_token_ids(_NUM_PLACE_TOKENS), *token_ids, tail)
        key = key[-_NUM_PLACE_TOKENS:]
        if request.request_id not in self._pending:
            first = len(request.token_ids)
            pending = _PendingTail(request, first, (*token_ids, tail), key)
            self._pending[request.request_id] = pending
        return self._num_ahead.get(key, 0) > -_MOST_AHEAD

    def judge(self) -> None:
        """Look at what was written where tails were asked for; to be called once a step."""
        for request_id, pending in list(self._pending.items()):
            length = len(pending.token_ids)
            written = pending.request.token_ids[pending.first : pending.first + length]
            num_known = min(len(written), length - 1)
            is_there = tuple(written[:num_known]) == pending.token_ids[:num_known]
            if len(written) < length and is_there and not pending.request.is_finished:
                continue  # not written yet
            del self._pending[request_id]
            if len(written) == length and is_there:
                self._count(pending.key, written[-1] == pending.token_ids[-1])

    def _count(self, key: tuple[int, ...], has_stood: bool) -> None:
        num_ahead = self._num_ahead.pop(key, 0)  # the latest places come last
        num_ahead += 1 if has_stood else -1
        self._num_ahead[key] = max(-_MOST_AHEAD, min(_MOST_AHEAD, num_ahead))
        if len(self._num_ahead) > _MAX_PLACES:
            del self._num_ahead[next(iter(self._num_ahead))]


@dataclass(frozen=True, slots=True)
class _PendingTail:
    """A tail, drafted or not, whose place may not be reached yet."""

    request: Request
    first: int  # where the draft begins among the request's tokens
    token_ids: tuple[int, ...]  # of the draft, the tail at its end
    key: tuple[int, ...]
