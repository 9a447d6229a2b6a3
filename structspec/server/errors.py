"""Errors as OpenAI's clients read them: `{"error": {message, type, param, code}}`.

A client tries again on 408, 409, 429 and every 5xx, so what would fail once more is a 4xx.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from structspec.chat.fields import InvalidField, refuse
from structspec.errors import (
    Cancelled,
    CompileTimeout,
    GenerationError,
    GrammarError,
    InvalidRequest,
    NothingAllowed,
    OutputInvalid,
    PromptTooLong,
    StructspecError,
    UnsupportedConstraint,
)
from structspec.options import CONSTRAINT_FIELDS, GenerateOptions

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
OPTIONS = GenerateOptions.__optional_keys__
_NEVER_AGAIN = {"x-should-retry": "false"}


class ApiError(Exception):
    """What a client is answered instead: status, message, and where in its body the fault is."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """As clients read it."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body, self.status, headers=self.headers)


def to_api_error(error: BaseException, place: str | None = None) -> ApiError:
    """What an error of ours is to a client; `place` is the field whose constraint failed."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    match error:
        case ClientDisconnect():
            return ApiError(400, "the client went away", code="disconnected")
        case InvalidField():
            return ApiError(400, message, param=error.param, code=error.code)
        case PromptTooLong():
            return ApiError(400, message, param="messages", code="context_length_exceeded")
        case CompileTimeout():
            return ApiError(400, message, param=place, code="schema_too_complex")
        case GrammarError():
            param = None if place is None else below(place, error.pointer)
            is_wrong = not isinstance(error, UnsupportedConstraint)
            code = "invalid_json_schema" if is_wrong else "unsupported_constraint"
            return ApiError(400, message, param=param, code=code)
        case InvalidRequest():
            return ApiError(400, message, param=_option_in(message) or place, code="invalid_value")
        case NothingAllowed():
            return ApiError(400, message, code="nothing_allowed")
        case OutputInvalid():
            return ApiError(422, message, code="output_invalid", headers=_NEVER_AGAIN)
        case Cancelled():
            return ApiError(503, message, code="cancelled")
        case GenerationError() | StructspecError():
            return ApiError(500, message, code="engine_error")
    return ApiError(500, "the server failed on this request", code="internal_error")


def _option_in(message: str) -> str | None:
    """The option that a message begins with, unless that is a constraint."""
    name = re.split(r"[^a-z_]", message, maxsplit=1)[0]
    return name if name in OPTIONS and name not in CONSTRAINT_FIELDS else None


def below(place: str, pointer: str | None) -> str:
    """The path of a part: `tools` and `#/0/function` are `tools[0].function`."""
    parts = (pointer or "").removeprefix("#").split("/")[1:]
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        place += f"[{name}]" if name.isdecimal() else f".{name}"
    return place


def of_validation(error: ValidationError) -> InvalidField:
    """The first thing that is wrong with a body, and where."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = [part for part in first["loc"] if not _is_branch(part)]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    param = param.removeprefix(".")
    is_json = first["type"] == "json_invalid"
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_type"
    place = f"{param}: " if param else ""
    return refuse(f"{place}{first['msg']}", param or None, "invalid_json" if is_json else code)


def _is_branch(part: int | str) -> bool:
    """Whether it names an alternative of a union rather than a place in the body."""
    return isinstance(part, str) and (part in ("str", "bool", "int", "float") or "[" in part)
