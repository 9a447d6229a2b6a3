"""What a call gives for all its prompts, from the results of single requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from structspec.generation import Generation

T = TypeVar("T")
Result = Generation | Exception
OnResult = Callable[[int, Result], None]


def arranged(outputs: Sequence[T], n: int | None, *, is_batch: bool) -> Any:
    """The outputs of all prompts as they were asked for: of each one, or a list of n."""
    if n is None:
        return outputs if is_batch else outputs[0]
    of_prompts = [[*outputs[i : i + n]] for i in range(0, len(outputs), n)]
    return of_prompts if is_batch else of_prompts[0]


def all_or_raise(results: Sequence[Result]) -> list[Generation]:
    """The results, if none of them is an error; otherwise raises the first one."""
    finished = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        finished.append(result)
    return finished


def texts_of(read: str | Generation) -> Iterator[str]:
    """Of the pieces of a text and its Generation the pieces."""
    if isinstance(read, str):
        yield read
