"""What runs the models of StructSpec objects: an engine that they share, or a client."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from structspec.chat.engines import Engine
from structspec.chat.shared_llm import shared_llm
from structspec.client.remote_service import RemoteService
from structspec.client.sync_client import Client
from structspec.errors import InvalidRequest
from structspec.service import Service


def make_engine(model: str | None, base_url: str | None, api_key: str | None) -> Engine:
    """The engine of a model, loaded once for all who use it at a time; or a client of a server."""
    if base_url is not None:
        return Client(base_url, api_key, model)
    if model is None:
        raise InvalidRequest(
            "which model? StructSpec takes model=, a server as base_url=, or engine=LLM(...)"
        )
    return shared_llm(model)


def context_window_of(engine: Engine) -> int | None:
    """How many tokens prompt and output may have together; None where the server does not say."""
    service = engine._service
    if isinstance(service, Service):
        return service.max_model_len
    return service.server().max_model_len if isinstance(service, RemoteService) else None


def tokenizer_of(engine: Engine) -> Callable[[str], list[int]]:
    """What makes tokens of a text; raises InvalidRequest where a server does so."""
    service = engine._service
    if not isinstance(service, Service):
        raise InvalidRequest("a server keeps its tokenizer to itself: give Settings another one")
    return service.tokenizer.encode


def refuse_unknown(given: Iterable[str], known: set[str]) -> None:
    """Raise InvalidRequest for a field there is not: pydantic would drop it without a word."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}=? " if close else ""
            raise InvalidRequest(
                f"StructSpec has no field {name!r}; {hint}Options of generate go into"
                " additional_kwargs={...}, and an engine of your own into engine=LLM(...)"
            )
