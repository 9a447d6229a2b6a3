"""Which engine a framework's model runs on, where its user brings one."""

from __future__ import annotations

from typing import Any

from structspec.async_llm import AsyncLLM
from structspec.client.sync_client import Client
from structspec.errors import InvalidRequest
from structspec.llm import LLM

Engine = LLM | AsyncLLM | Client


def check_engine(engine: Any, model: str | None) -> Engine:
    """What was given as one; raises InvalidRequest for what cannot be, or runs another model."""
    if not isinstance(engine, Engine):
        raise InvalidRequest(f"engine= must be an LLM, AsyncLLM or Client, not {engine!r}")
    runs = model_of(engine)
    if model is not None and runs is not None and model != runs:
        raise InvalidRequest(f"engine= runs {runs!r}, no model {model!r}: leave model= out")
    return engine


def model_of(engine: Engine) -> str | None:
    """The name of its model; None where a server was not asked yet which it has."""
    name: str | None = getattr(engine._service, "model_name", None)
    return name
