"""Running (prompt, options) pairs on the real model and looking at the tokens themselves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from structspec import LLM
from structspec.engine.loop import News
from structspec.options import resolve_options
from structspec.request import Request

Pair = tuple[str, dict[str, Any]]


def run_together(llm: LLM, pairs: Sequence[Pair], **options: Any) -> list[Request]:
    """The finished requests of all pairs, generated in one batch."""
    service = llm._service
    prepared = [
        service.prepare(prompt, resolve_options({**own, **options})) for prompt, own in pairs
    ]
    all_done = threading.Barrier(2)
    num_left = len(prepared)

    def listen(news: News) -> None:  # called by the engine's thread alone
        nonlocal num_left
        if news.finished is not None:
            num_left -= 1
            if num_left == 0:
                all_done.wait(timeout=60)

    for one in prepared:
        service.start(one, listen)
    all_done.wait(timeout=600)
    return [one.request for one in prepared]


def run_alone(llm: LLM, pairs: Sequence[Pair], **options: Any) -> list[Request]:
    """The finished requests of all pairs, one after the other."""
    return [run_together(llm, [pair], **options)[0] for pair in pairs]
