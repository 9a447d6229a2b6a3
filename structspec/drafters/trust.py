"""Whether a model spells forced text as its tokenizer does: learnt from what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.request import Request

_WINDOW = 64  # tokens judged at a time
_MIN_HELD = 0.5  # of them; fewer, and a run of such drafts brings less than one token on average
_REST = 1024  # places that are not spelled before it is tried again


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
