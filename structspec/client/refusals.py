"""What a server's refusal is in our words."""

from __future__ import annotations

import json
from typing import Any

from structspec.client.exchange import UNREACHED, Answer
from structspec.client.holding import Held
from structspec.constraint import escape
from structspec.errors import (
    CompileTimeout,
    GrammarError,
    InvalidRequest,
    NothingAllowed,
    OutputInvalid,
    PromptTooLong,
    ServerError,
    StructspecError,
    UnsupportedConstraint,
)

_NOT_THE_CALLS = {UNREACHED, 401, 403, 408, 409, 429}
_TOO_LONG = ("maximum context length", "context size", "longer than the model's context")


def to_error(answer: Answer, held: Held | None) -> StructspecError:
    """The error that an answer is; `held` is how the constraint was sent."""
    told = read_error(answer.text)
    message = str(told.get("message") or answer.text[:500] or "no reason is given")
    if answer.status in _NOT_THE_CALLS or answer.status >= 500:
        return ServerError(_of_server(answer, message), status=answer.status or None)
    if answer.status == 404 and told.get("code") != "model_not_found" and "model" not in message:
        return ServerError(f"the server has no chat completions: {message}", status=404)
    return of_request(told, message, held)


def of_request(told: dict[str, Any], message: str, held: Held | None) -> StructspecError:
    """The error that is the call's own fault, or its output's."""
    match told.get("code"):
        case "output_invalid":
            return OutputInvalid(message)
        case "schema_too_complex":
            return CompileTimeout(message)
        case "nothing_allowed":
            return NothingAllowed(message)
        case "cancelled" | "engine_error" | "internal_error" | "server_error":
            return ServerError(message)
        case int(status) if status >= 500:  # vLLM's
            return ServerError(message, status=status)
    is_too_long = any(words in message for words in _TOO_LONG)
    if told.get("code") == "context_length_exceeded" or is_too_long:
        return PromptTooLong(message)
    param = told.get("param")
    param = param if isinstance(param, str) else ""
    if held is not None and _is_about(param, held, told):
        pointer = pointer_of(param, held.place)
        # the place comes before the message anyway
        reason = message.partition(f"{pointer}: ")[2] if pointer else ""
        is_place = pointer != "#" or bool(reason)  # a regex has none
        is_unsupported = told.get("code") == "unsupported_constraint"
        kind = UnsupportedConstraint if is_unsupported else GrammarError
        return kind(reason or message, pointer=pointer if is_place else None)
    return InvalidRequest(f"{param}: {message}" if param and param not in message else message)


def read_error(text: str) -> dict[str, Any]:
    """The error object of a body, in whichever of the known forms it has."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(body, dict):
        return {}
    inner = body.get("error", body)
    if isinstance(inner, str):
        return {"message": inner}
    if not isinstance(inner, dict):
        return {}
    if "message" not in inner and "detail" in inner:  # FastAPI's own
        return {**inner, "message": json.dumps(inner["detail"])}
    return inner


def pointer_of(param: str, place: str) -> str | None:
    """`response_format.json_schema.schema.properties.x` is `#/properties/x` of what stands there.

    None where the fault is not within it.
    """
    if not param.startswith(place):
        return None
    rest = param[len(place) :].replace("[", ".").replace("]", "")
    return "/".join(["#", *(escape(part) for part in rest.split(".")[1:])])


def _is_about(param: str, held: Held, told: dict[str, Any]) -> bool:
    top = held.place.partition(".")[0]
    return told.get("code") == "invalid_json_schema" or param.startswith(top)


def _of_server(answer: Answer, message: str) -> str:
    match answer.status:
        case 0:
            return f"the server cannot be reached: {message}"
        case 401 | 403:
            return f"the server refuses the API key: {message}"
        case 429:
            return f"the server is busy, and was so until retries were used up: {message}"
    return f"the server failed (HTTP {answer.status}): {message}"
