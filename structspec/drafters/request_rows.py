"""Rows of a table, one for each request that is not finished."""

from __future__ import annotations

from dataclasses import dataclass

from structspec.request import Request


@dataclass(slots=True)
class RequestRow:
    """A request's row, and how many of its tokens stand there."""

    request: Request
    index: int
    num_known: int = 0


class RequestRows:
    """Gives rows to requests and takes them back; what was in a row stays there."""

    def __init__(self) -> None:
        self._rows: dict[int, RequestRow] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many requests have a row."""
        return len(self._rows)

    @property
    def num_used(self) -> int:
        """How many rows the table needs: all below this are given or free."""
        return len(self._rows) + len(self._free)

    def num_known(self, request: Request) -> int:
        """How many of a request's tokens stand in its row; 0 where it has none."""
        row = self._rows.get(request.request_id)
        return 0 if row is None else row.num_known

    def of(self, request: Request) -> RequestRow:
        """A request's row, from now on its own."""
        row = self._rows.get(request.request_id)
        if row is None:
            index = self._free.pop() if self._free else len(self._rows)
            row = self._rows[request.request_id] = RequestRow(request, index)
        return row

    def forget_finished(self) -> None:
        """Take back the rows of finished requests."""
        for key in [key for key, row in self._rows.items() if row.request.is_finished]:
            self._free.append(self._rows.pop(key).index)
