"""Generators that clean up behind them, though nobody ever asks them for anything."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

T = TypeVar("T")


def primed(parts: Generator[T | None]) -> Generator[T]:
    """The same, run to a first `yield` of nothing: closing it runs its `finally` from now on.

    Python closes a generator that has not begun without running a line of it.
    """
    next(parts)
    return cast(Generator[T], parts)
