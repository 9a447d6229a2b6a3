"""POST /v1/completions: text behind a prompt, without a chat template."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from typing import Any

from structspec.call_run import result_of
from structspec.chat.fields import refuse
from structspec.chat.logprobs import LogprobsReader
from structspec.request import Request
from structspec.server.bodies import CompletionBody
from structspec.server.chat import Job, check_model, count_choices, prepare_choices
from structspec.server.chat_body import Head, finish_reason, usage_of
from structspec.server.chat_endpoint import check_first, written_text
from structspec.server.constraints import read_constraint
from structspec.server.runs import read_all, run_all
from structspec.server.sampling import read_sampling
from structspec.server.settings import ServerSettings
from structspec.server.sse import DONE, dump, error_event
from structspec.service import Service, TokenPrompt

_KIND = "text_completion"


def make_head(model: str) -> Head:
    """What all pieces of one answer have in common."""
    return Head(model, f"cmpl-{secrets.token_hex(12)}")


def prepare_completion(service: Service, settings: ServerSettings, body: CompletionBody) -> Job:
    """Read a request and start compiling; raises ApiError, and then nothing is started."""
    check_model(settings, body)
    for name in ("echo", "suffix"):
        if getattr(body, name):
            raise refuse(f"{name} is not supported", name, "unsupported_parameter")
    if body.best_of not in (None, body.n or 1):
        raise refuse("best_of is not supported; n outputs are all told", "best_of")
    options = read_sampling(body)
    if body.logprobs is not None:
        options["logprobs"] = body.logprobs
    wanted = read_constraint(body)
    prepared = []
    prompts = _list_prompts(body)
    count_choices(settings, body, len(prompts))
    for one in prompts:
        prompt = TokenPrompt(service.tokenizer.encode(one) if isinstance(one, str) else one)
        prepared += prepare_choices(service, settings, body, prompt, options, wanted)
    return Job(prepared, wanted)


def _list_prompts(body: CompletionBody) -> list[Any]:
    """Each prompt, as text or tokens: of one text, several, tokens, or several lists of them."""
    prompts: list[Any] = [body.prompt] if isinstance(body.prompt, str) else list(body.prompt)
    if prompts and all(isinstance(one, int) for one in prompts):
        prompts = [prompts]
    if not prompts or not all(prompts):
        raise refuse("prompt must not be empty", "prompt")
    return prompts


async def complete_text(service: Service, job: Job, head: Head) -> dict[str, Any]:
    """The whole answer; raises ApiError if a choice failed."""
    outcomes = await run_all(service, job.prepared)
    for outcome in outcomes:
        job.check(outcome.result)
    choices = [
        _choice(
            index,
            written_text(service, job, outcome),
            finish_reason(outcome.request, has_calls=False),
            _logprobs(service, outcome.request),
        )
        for index, outcome in enumerate(outcomes)
    ]
    usage = usage_of([outcome.request for outcome in outcomes])
    return {**head.fields(_KIND), "choices": choices, "usage": usage}


def _choice(
    index: int, text: str, reason: str | None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _logprobs(service: Service, request: Request) -> dict[str, Any] | None:
    reader = LogprobsReader(request, service.vocabulary)
    return reader.columns() if reader.is_on else None


async def stream_text(
    service: Service, job: Job, head: Head, *, has_usage: bool
) -> AsyncGenerator[bytes]:
    """The answer as it is written, in server-sent events."""
    fields = head.fields(_KIND)

    def chunk(choices: list[dict[str, Any]], usage: Any = None) -> bytes:
        body = {**fields, "choices": choices, **({"usage": usage} if has_usage else {})}
        return f"data: {dump(body)}\n\n".encode()

    has_begun = False
    async for piece in read_all(service, job.prepared):
        if not has_begun:
            check_first(service, job, piece)
            has_begun = True
        if piece.text:
            yield chunk([_choice(piece.index, piece.text, None)])
        if not piece.is_finished:
            continue
        prepared = job.prepared[piece.index]
        if (error := job.failure(result_of(service, prepared))) is not None:
            yield error_event(error)
            return
        reason = finish_reason(prepared.request, has_calls=False)
        logprobs = _logprobs(service, prepared.request)  # of the whole, with the last piece
        yield chunk([_choice(piece.index, "", reason, logprobs)])
    if has_usage:
        yield chunk([], usage_of([one.request for one in job.prepared]))
    yield DONE
