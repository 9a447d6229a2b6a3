"""The wide rows of a step: one for each grammar whose requests are drawn before they are looked at.

requests      free | [a-z]+, 2 guesses |  \\d+  | [a-z]+
logits row      0  |   1     2     3   |   4   |   5
bitmask row        |   0     0     0   |   1   |   0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec.bitmask import first_logits_rows
from structspec.engine.batch import Batch
from structspec.grammars.base import Row


@dataclass(frozen=True, slots=True)
class WideMasks:
    """The wide rows, each once, and which of them masks which logits row."""

    bitmask_rows: Sequence[Row]
    rows: NDArray[np.int64]  # [num_wide] logits rows
    places: NDArray[np.int64]  # [num_wide] indices of bitmask_rows


class WideFinder:
    """Finds the wide rows of each step, and again only where the step before was another.

    To look takes a microsecond for a request, which most steps need not spend: the same requests
    write one token each.
    """

    def __init__(self) -> None:
        self._asked: Any = None
        self._found: WideMasks

    def find(
        self,
        batch: Batch,
        is_masked: Sequence[bool],
        num_guesses: Sequence[int],
        starts: Mapping[int, Row],
    ) -> WideMasks:
        """For the sampled requests that are not masked, and whose grammar has such a row.

        `starts` are rows, by request's index, that the first of its logits rows has instead.
        """
        keys = [id(scheduled.request.wide_row) for scheduled in batch.requests]
        is_sampled = [scheduled.is_sampled for scheduled in batch.requests]
        asked = keys, is_sampled, [*is_masked], [*num_guesses]
        if starts:
            self._asked = None
            return _look(batch, is_masked, num_guesses, starts)
        if asked != self._asked:
            # it holds its rows: they keep their id
            self._found = _look(batch, is_masked, num_guesses, starts)
            self._asked = asked
        return self._found


def _look(
    batch: Batch,
    is_masked: Sequence[bool],
    num_guesses: Sequence[int],
    starts: Mapping[int, Row],
) -> WideMasks:
    firsts = first_logits_rows(num_guesses, [s.is_sampled for s in batch.requests])
    found: dict[int, tuple[int, Row]] = {}  # by identity: equal rows are one
    rows: list[int] = []
    places: list[int] = []
    for index, scheduled in enumerate(batch.requests):
        if is_masked[index] or not scheduled.is_sampled:
            continue
        wide = scheduled.request.wide_row
        wanted = [wide] * (1 + num_guesses[index])
        wanted[0] = starts.get(index, wide)
        for logits_row, row in enumerate(wanted, firsts[index]):
            if row is not None:
                place, _ = found.setdefault(id(row), (len(found), row))
                rows.append(logits_row)
                places.append(place)
    return WideMasks(
        [row for _, row in found.values()], np.array(rows, np.int64), np.array(places, np.int64)
    )
