"""POST /v1/choose: how likely the model finds each of several answers; no API of OpenAI's."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from structspec.chat.messages import read_messages
from structspec.errors import StructspecError
from structspec.results import all_or_raise
from structspec.runner import Scoring
from structspec.server.errors import ApiError, of_validation, to_api_error
from structspec.server.runs import run_all
from structspec.server.settings import ServerSettings
from structspec.service import ChatPrompt, Service


class ChooseBody(BaseModel):
    """Nothing else is asked for: a field that were ignored could be meant to change the answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    messages: list[dict[str, Any]]
    choices: list[str]
    chat_template_kwargs: dict[str, Any] | None = None


def read_choices(data: bytes) -> ChooseBody:
    """A request's body; raises InvalidField with the field that is wrong."""
    try:
        return ChooseBody.model_validate_json(data)
    except ValidationError as error:
        raise of_validation(error) from None


async def choose(service: Service, settings: ServerSettings, body: ChooseBody) -> dict[str, Any]:
    """The scores; raises ApiError."""
    scoring = await asyncio.to_thread(_prepare, service, settings, body)
    outcomes = await run_all(service, scoring.prepared)
    chosen = scoring.compare(all_or_raise([outcome.result for outcome in outcomes]))
    usage = asdict(chosen.usage)
    return {
        "object": "choose",
        "model": settings.model_name,
        "best": chosen.best,
        "choices": [
            {"text": text, "logprob": logprob, "prob": chosen.probs[text]}
            for text, logprob in chosen.logprobs.items()
        ],
        "usage": {**usage, "total_tokens": chosen.usage.total_tokens},
    }


def _prepare(service: Service, settings: ServerSettings, body: ChooseBody) -> Scoring:
    if body.model not in (None, settings.model_name):
        message = f"the model {body.model!r} does not exist; there is {settings.model_name!r}"
        raise ApiError(404, message, param="model", code="model_not_found")
    messages = read_messages(body.messages, "messages")
    prompt = ChatPrompt(messages, None, body.chat_template_kwargs or {})
    try:
        return service.prepare_choices(prompt, body.choices)
    except StructspecError as error:
        raise to_api_error(error, "choices") from None
