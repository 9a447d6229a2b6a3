"""Conversations that /v1/responses can go on from: the latest, in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from structspec.server.errors import ApiError


@dataclass(frozen=True, slots=True)
class Stored:
    """One response, and the items that led to it and that it consists of."""

    body: dict[str, Any]
    items: Sequence[dict[str, Any]]


class ResponseStore:
    """The last so many responses by their id; used by one event loop."""

    def __init__(self, max_responses: int) -> None:
        self._max_responses = max_responses
        self._stored: OrderedDict[str, Stored] = OrderedDict()

    def put(self, stored: Stored) -> None:
        """Keep a response, and forget the oldest where there are too many."""
        self._stored[stored.body["id"]] = stored
        while len(self._stored) > self._max_responses:
            self._stored.popitem(last=False)

    def get(self, response_id: str, param: str) -> Stored:
        """A response; raises where it is not known, or no longer."""
        stored = self._stored.get(response_id)
        if stored is None:
            raise ApiError(
                404,
                f"there is no response {response_id!r}; only the last {self._max_responses} are"
                " kept, and none of those sent with store false",
                param=param,
                code="response_not_found",
            )
        self._stored.move_to_end(response_id)
        return stored

    def delete(self, response_id: str) -> None:
        """Forget a response; raises where it is not known."""
        self.get(response_id, "response_id")
        del self._stored[response_id]
