"""What a call says to a server, as steps that somebody else carries out: blocking or in asyncio.

The logic of a call is a generator: it yields an `Ask` and is sent the `Answer`, or yields a `Wait`.
So it is written once, and tested without a network.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

UNREACHED = 0  # the status of an answer that there is none of
_NOT_FOR_EVER = {UNREACHED, 408, 409, 429}
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 8.0
_LONGEST_HEEDED_S = 60.0  # a server that asks for more is not waited for


@dataclass(frozen=True, slots=True)
class Ask:
    """One HTTP request; a `body` is sent as JSON. Of a streamed one the answer's text is left."""

    method: str
    path: str  # from the base URL, or a whole URL
    body: Mapping[str, Any] | None = None
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `text` is why nothing did where the status is UNREACHED."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    stream: Any = None  # the open response, where its text is left

    @property
    def is_ok(self) -> bool:
        """Whether it is what was asked for."""
        return 200 <= self.status < 300

    @property
    def object(self) -> dict[str, Any]:
        """The JSON object that it is; an empty one where it is none, or not what was asked for."""
        try:
            value = json.loads(self.text) if self.is_ok else {}
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


Steps = Generator[Ask | Wait, Answer | None, T]


def ask(request: Ask, max_retries: int = 0) -> Steps[Answer]:
    """Its answer; what may pass (no connection, 408, 409, 429, 5xx) is tried again, later."""
    attempt = 0
    while True:
        answer = yield request
        assert answer is not None
        seconds = _wait_s(answer, attempt)
        if attempt >= max_retries or seconds is None:
            return answer
        yield Wait(seconds)
        attempt += 1


def _wait_s(answer: Answer, attempt: int) -> float | None:
    """How long to wait before asking again; None where that would be for nothing."""
    may_pass = answer.status in _NOT_FOR_EVER or answer.status >= 500
    if not may_pass or answer.headers.get("x-should-retry") == "false":
        return None
    told = _told_s(answer)
    if told is not None:
        return told if told <= _LONGEST_HEEDED_S else None
    # by chance a bit less: those who were sent away together do not come back together
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**attempt) * random.uniform(0.75, 1)


def _told_s(answer: Answer) -> float | None:
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(answer.headers[name]) * unit_s
        except (KeyError, ValueError):  # a date: clocks differ, and ours is not asked
            continue
        if seconds >= 0:
            return seconds
    return None
