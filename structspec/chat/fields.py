"""What is wrong with a field of a chat request, wherever it came from."""

from __future__ import annotations

from structspec.errors import InvalidRequest


class InvalidField(InvalidRequest):
    """A field cannot be honoured; `param` is its path as `tools[0].function`, `code` a word."""

    def __init__(self, message: str, param: str | None, code: str) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def refuse(message: str, param: str | None = None, code: str = "invalid_value") -> InvalidField:
    """A fault of the request's own."""
    return InvalidField(message, param, code)
