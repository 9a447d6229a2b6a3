"""Every error structspec raises on purpose.

StructspecError
├── InvalidRequest (ValueError)        the call itself: contradictory or impossible arguments
│   └── PromptTooLong                  the prompt leaves no room for output
├── GrammarError (ValueError)          the constraint: says where (JSON pointer, or line and column)
│   ├── UnsupportedConstraint          understood, but no backend can hold it
│   └── CompileTimeout                 compiling took longer than its limit
├── ModelError                         the model: cannot be loaded
│   ├── ModelNotFound                  no such name, folder or hub id
│   └── OutOfMemory                    its weights and KV cache do not fit the device
├── ServerError                        a server elsewhere: not reached, refuses the key, or fails
└── GenerationError                    the output: carries `text`, `usage` and `errors`
    ├── Truncated                      ended (max_tokens, stop) before its constraint was met
    ├── OutputInvalid                  finished, but does not validate
    ├── NothingAllowed                 no token is left that every limit of the request allows
    ├── Cancelled                      the caller, or a closing engine, gave it up
    └── EngineError                    structspec's own fault; please report it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structspec.request import Usage


class StructspecError(Exception):
    """The base of all errors that structspec raises on purpose."""


class InvalidRequest(StructspecError, ValueError):
    """The call cannot be carried out as written; nothing was started."""


class PromptTooLong(InvalidRequest):
    """The prompt does not fit the model's context together with any output."""


class GrammarError(StructspecError, ValueError):
    """A constraint is wrong; the message starts with the place, as `#/properties/age: …`.

    `pointer` is a JSON pointer into the schema; `line` and `column` (from 1) are a place in a
    regex or grammar. What is not known is None.
    """

    def __init__(
        self,
        message: str,
        *,
        pointer: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        place = pointer
        if line is not None:
            place = f"line {line}, column {column}" if column is not None else f"line {line}"
        super().__init__(f"{place}: {message}" if place else message)
        self.pointer = pointer
        self.line = line
        self.column = column


class UnsupportedConstraint(GrammarError):
    """The constraint is well formed, but no backend can enforce it."""


class CompileTimeout(GrammarError):
    """Compiling the constraint took longer than its limit."""


class ModelError(StructspecError):
    """The model cannot be loaded."""


class ModelNotFound(ModelError):
    """There is no model under that name, folder or hub id."""


class OutOfMemory(ModelError):
    """The device has too little memory for the model as configured; nothing is served."""


class ServerError(StructspecError):
    """A server cannot be reached, lets the caller not in, or fails; told once retries are used up.

    `status` is that of its answer, None where there was none. `text` is what came of an answer that
    broke off, `usage` that of the attempts before it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        text: str = "",
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.text = text
        self.usage = usage


class GenerationError(StructspecError):
    """The output cannot be returned; what was generated is on the exception."""

    def __init__(
        self,
        message: str,
        *,
        text: str = "",
        usage: Usage | None = None,
        errors: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.text = text
        self.usage = usage
        self.errors = errors


class Truncated(GenerationError):
    """The output ended before its constraint was met; `text` holds what there is."""


class OutputInvalid(GenerationError):
    """The finished text does not validate; `errors` says what is wrong with it."""


class NothingAllowed(GenerationError):
    """The request's limits leave no token that may come next; the message names them."""


class Cancelled(GenerationError):
    """The request was given up before it finished."""


class EngineError(GenerationError):
    """The engine failed on this request through no fault of the caller."""
