"""When requests' new text is told: with every step while few are written, else in rounds.

A piece of text costs those who pass it on tens of microseconds of the interpreter that the engine
needs as well. At 64 streams of 800 tokens a second that would be more time than there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from structspec.request import Request

_FEW = 4  # so many are told of every step


class NewsRounds:
    """Puts off the news of some requests, so that pieces are at most so many a second.

    Never that of a request's first text or of its end. What is put off is not lost: a request's
    next piece has all text since the last one. 0 a second is no limit.
    """

    def __init__(
        self, max_pieces_per_second: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._piece_s = 1 / max_pieces_per_second if max_pieces_per_second else 0.0
        self._clock = clock
        self._waiting: dict[Request, None] = {}
        self._next_round = 0.0

    def take(self, news: Sequence[Request], *, is_last: bool = False) -> Sequence[Request]:
        """Those to be told of now, given those with news; all of them if nothing is to come."""
        self._waiting.update(dict.fromkeys(news))
        now = self._clock()
        if is_last or len(self._waiting) <= _FEW or now >= self._next_round:
            told, self._waiting = list(self._waiting), {}
            self._next_round = now + self._piece_s * len(told)
        else:
            told = [one for one in news if one.is_finished or not _is_told(one)]
            for request in told:
                del self._waiting[request]
        return told


def _is_told(request: Request) -> bool:
    """Whether any of its text, reasoning or answer, has been handed out."""
    reasoning = request.reasoning
    return request.text.has_begun or (reasoning is not None and reasoning.text.has_begun)
