"""Models of pydantic 1, which live on as `pydantic.v1`: a JSON schema, and values read by them."""

from __future__ import annotations

import sys
from typing import Any

from structspec.grammars.base import Finding
from structspec.json_value import MAX_ERRORS, json_pointer

_SCHEMA = "http://json-schema.org/draft-07/schema#"  # in which they write theirs


def is_v1_model(schema: Any) -> bool:
    """Whether it is one; costs nothing where nobody has imported pydantic.v1."""
    module = sys.modules.get("pydantic.v1.main")
    return module is not None and isinstance(schema, type) and issubclass(schema, module.BaseModel)


def schema_of(model: Any) -> dict[str, Any]:
    """Its JSON schema."""
    return {"$schema": _SCHEMA, **model.schema(by_alias=True)}


def unheld_of(model: Any) -> tuple[Finding, ...]:
    """What it asks beyond that: nobody tells, so it may be anything."""
    reason = "a model of pydantic 1 may check more than its JSON schema says"
    return (Finding("", model.__name__, reason),)


def violations_of(error: Exception) -> tuple[str, ...]:
    """How a text breaks a model, by what the model raised; empty where that is another error."""
    module = sys.modules["pydantic.v1.error_wrappers"]
    if not isinstance(error, module.ValidationError):
        return ()
    details = error.errors()[:MAX_ERRORS]
    return tuple(f"{json_pointer(_loc(one['loc']))}: {one['msg']}" for one in details)


def _loc(loc: tuple[Any, ...]) -> tuple[Any, ...]:
    return () if loc == ("__root__",) else loc
