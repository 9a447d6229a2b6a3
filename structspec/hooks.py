"""Hooks: functions of the caller's that are told what becomes of requests.

request      an attempt was handed to the engine
compiled     its constraint is compiled: `report`
first_token  its first text is there
step         more of its text is there: `text`
done         it has ended: `result`, the Generation or the error
retry        that did not validate, and another attempt follows
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from structspec.errors import InvalidRequest
from structspec.grammars.base import CompiledGrammar, Report
from structspec.request import Usage
from structspec.results import Result

logger = logging.getLogger("structspec")

HookName = Literal["request", "compiled", "first_token", "step", "done", "retry"]


@dataclass(frozen=True, slots=True)
class HookEvent:
    """Something that became of one attempt at an output, `seconds` after that began.

    `usage` is that of this attempt so far. What does not belong to its kind is None or empty.
    """

    kind: HookName
    request_id: int
    attempt: int
    seconds: float
    usage: Usage
    text: str = ""
    report: Report | None = None
    result: Result | None = None


Hook = Callable[[HookEvent], object]


class Observed(Protocol):
    """The attempt that something becomes of; of a server's, `compiled` is its own affair."""

    @property
    def request_id(self) -> int:
        """Its number."""

    @property
    def arrival_time(self) -> float:
        """When it was handed over, as perf_counter counts."""

    @property
    def usage(self) -> Usage:
        """What it has used so far."""

    @property
    def compiled(self) -> Future[CompiledGrammar] | None:
        """Its constraint, once that is compiled."""


class Hooks:
    """Tells each event to the function that listens for it, if there is one.

    They are called on the thread where it happens, `first_token` and `step` on the engine's: they
    must return at once. What one raises is logged, and changes nothing.
    """

    def __init__(self, hooks: Mapping[HookName, Hook] | None) -> None:
        known = get_args(HookName)
        for name, hook in (hooks or {}).items():
            if name not in known:
                raise InvalidRequest(f"there is no hook {name!r}; there are {', '.join(known)}")
            if not callable(hook):
                raise InvalidRequest(f"the hook {name!r} must be callable, not {hook!r}")
        self._hooks = dict(hooks or {})

    @property
    def wants_text(self) -> bool:
        """Whether somebody listens while a text is written."""
        return not self._hooks.keys().isdisjoint(("first_token", "step"))

    def tell(self, kind: HookName, request: Observed, attempt: int, **more: Any) -> None:
        """Something happened; costs a look into a dict where nobody listens."""
        hook = self._hooks.get(kind)
        if hook is None:
            return
        seconds = time.perf_counter() - request.arrival_time
        try:
            hook(HookEvent(kind, request.request_id, attempt, seconds, request.usage, **more))
        except Exception:  # a hook's own fault must not cost a request its result
            logger.exception("the hook %r failed", kind)

    def tell_start(self, request: Observed, attempt: int) -> None:
        """An attempt was handed to the engine; also once its constraint is compiled."""
        self.tell("request", request, attempt)
        if request.compiled is None or "compiled" not in self._hooks:
            return

        def tell_compiled(done: Future[CompiledGrammar]) -> None:
            if done.exception() is None:
                self.tell("compiled", request, attempt, report=done.result().report)

        request.compiled.add_done_callback(tell_compiled)

    def teller(self, request: Observed, attempt: int) -> Callable[[str], None]:
        """What is to be called with each piece of an attempt's text."""
        has_begun = False

        def tell(text: str) -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                self.tell("first_token", request, attempt, text=text)
            self.tell("step", request, attempt, text=text)

        return tell
