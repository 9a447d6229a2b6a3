"""Very many prompts of one call: what is asked of them, and the bar that says how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from structspec.errors import InvalidRequest
from structspec.generation import Generation
from structspec.prompts import Prompt
from structspec.results import OnResult, Result

DEFAULT_MAX_IN_FLIGHT = 512  # twice as many as a GPU runs at once: there is always one waiting


class Batch:
    """The prompts of a batch, checked, and who is told of results."""

    def __init__(
        self,
        prompts: Iterable[Prompt],
        on_result: OnResult | None,
        max_in_flight: int,
        progress: bool | None,
    ) -> None:
        if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
            raise InvalidRequest(
                f"generate_batch takes many prompts, a list or a generator, not {prompts!r};"
                " for one use generate"
            )
        if type(max_in_flight) is not int or max_in_flight < 1:
            raise InvalidRequest(f"max_in_flight must be at least 1, not {max_in_flight!r}")
        self.prompts = prompts
        self._on_result = on_result
        self._progress = progress

    @contextmanager
    def shown(self) -> Iterator[OnResult | None]:
        """A bar on stderr for as long as this lasts, if one is wanted; who is to be told."""
        console = Console(stderr=True)
        is_shown = console.is_terminal if self._progress is None else self._progress
        if not is_shown:
            yield self._on_result
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[errors]}"),
        )
        with Progress(*columns, console=console) as bar:
            total = len(self.prompts) if isinstance(self.prompts, Sized) else None
            task = bar.add_task("prompts", total=total, errors="")
            num_errors = 0

            def tell(index: int, result: Result) -> None:
                nonlocal num_errors
                num_errors += isinstance(result, Exception)
                bar.update(task, advance=1, errors=f"{num_errors} failed" if num_errors else "")
                if self._on_result is not None:
                    self._on_result(index, result)

            yield tell


def values_of(results: Sequence[Result]) -> list[Any]:
    """The values of what was generated; errors stand where they stood."""
    return [one.value if isinstance(one, Generation) else one for one in results]
