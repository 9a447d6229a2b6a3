"""Conversations that /v1/responses can go on from: the latest, in memory."""

from __future__ import annotations

import threading
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
    """The last so many responses by their id; thread-safe."""

    def __init__(self, max_responses: int) -> None:
        self._max_responses = max_responses
        self._stored: OrderedDict[str, Stored] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, stored: Stored) -> None:
        """Keep a response, and forget the oldest where there are too many."""
        with self._lock:
            self._stored[stored.body["id"]] = stored
            while len(self._stored) > self._max_responses:
                self._stored.popitem(last=False)

    def get(self, response_id: str, param: str) -> Stored:
        """A response; raises where it is not known, or no longer."""
        with self._lock:
            stored = self._stored.get(response_id)
            if stored is None:
                raise self._missing("response", response_id, param)
            self._stored.move_to_end(response_id)
            return stored

    def item(self, item_id: str, param: str) -> dict[str, Any]:
        """An item of the latest response that has it; raises where none that is kept does."""
        with self._lock:
            for stored in reversed(self._stored.values()):
                for item in stored.items:
                    if item.get("id") == item_id:
                        return item
        raise self._missing("item", item_id, param)

    def _missing(self, kind: str, wanted: str, param: str) -> ApiError:
        return ApiError(
            404,
            f"there is no {kind} {wanted!r}; only the last {self._max_responses} responses are"
            " kept, and none of those sent with store false",
            param=param,
            code=f"{kind}_not_found",
        )

    def delete(self, response_id: str) -> None:
        """Forget a response; raises where it is not known."""
        with self._lock:
            if self._stored.pop(response_id, None) is None:
                raise self._missing("response", response_id, "response_id")
