"""Server-sent events."""

from __future__ import annotations

import json
from typing import Any

from structspec.server.errors import ApiError

DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def event(name: str, data: dict[str, Any]) -> bytes:
    """An event with a name of its own."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def error_event(error: ApiError) -> bytes:
    """What went wrong after the answer had begun; SDKs raise it as an APIError."""
    return f"data: {json.dumps(error.body, ensure_ascii=False)}\n\n".encode()
