"""Server-sent events."""

from __future__ import annotations

import json
from typing import Any

from structspec.server.errors import ApiError

# Line ends to Unicode, if not to server-sent events: what splits text at them would cut an event.
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})

DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def one_line(text: str) -> str:
    """JSON without anything in it that might be taken for the end of a line."""
    return text if text.isascii() else text.translate(_LINE_ENDS)


def dump(data: Any) -> str:
    """A value as JSON in one line, other scripts as they are."""
    return one_line(json.dumps(data, ensure_ascii=False))


def event(name: str, data: dict[str, Any]) -> bytes:
    """An event with a name of its own."""
    return f"event: {name}\ndata: {dump(data)}\n\n".encode()


def error_event(error: ApiError) -> bytes:
    """What went wrong after the answer had begun; SDKs raise it as an APIError."""
    return f"data: {dump(error.body)}\n\n".encode()
