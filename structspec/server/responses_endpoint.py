"""POST /v1/responses, whole and streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

from structspec.call_reader import AnswerText, CallReader, Event
from structspec.call_run import result_of
from structspec.chat.logprobs import LogprobsReader
from structspec.request import Request
from structspec.server.chat_endpoint import check_first, make_spelled, written_text
from structspec.server.responses import ResponseJob
from structspec.server.responses_body import ResponseBody
from structspec.server.runs import read_all, run_all
from structspec.server.store import ResponseStore, Stored
from structspec.service import Service


async def respond(
    service: Service, store: ResponseStore, model: str, job: ResponseJob
) -> dict[str, Any]:
    """The whole response; raises ApiError if it failed."""
    (outcome,) = await run_all(service, job.job.prepared)
    job.job.check(outcome.result)
    response = ResponseBody(model, job.body)
    reasoning = outcome.request.reasoning
    if reasoning is not None and reasoning.has_begun:
        for _ in response.reason(reasoning.text.text):
            pass  # nobody listens
    text = written_text(service, job.job, outcome)
    for _ in response.add(_events(job.job.reader(), text, is_last=True)):
        pass
    _end(service, response, outcome.request)
    return _kept(store, job, response.ended(outcome.request))


async def stream_response(
    service: Service, store: ResponseStore, model: str, job: ResponseJob
) -> AsyncGenerator[bytes]:
    """The response as it is written, in server-sent events."""
    response = ResponseBody(model, job.body)
    (prepared,) = job.job.prepared
    reader, spelled = job.job.reader(), make_spelled(service, job.job, 0)
    has_begun = False
    async for piece in read_all(service, job.job.prepared):
        if not has_begun:
            check_first(service, job.job, piece)
            has_begun = True
            for told in response.begin():
                yield told
        is_last = piece.is_finished
        if piece.reasoning:
            for told in response.reason(piece.reasoning):
                yield told
        text = piece.text if spelled is None else spelled.take(is_last=is_last)
        for told in response.add(_events(reader, text, is_last=is_last)):
            yield told
    if (error := job.job.failure(result_of(service, prepared))) is not None:
        for told in response.fail(error.code, error.message):
            yield told
        return
    for told in _end(service, response, prepared.request):
        yield told
    yield response.end(prepared.request)
    _kept(store, job, response.ended(prepared.request))


def _events(reader: CallReader | None, text: str, *, is_last: bool) -> Iterator[Event]:
    if reader is not None:
        yield from reader.feed(text)
        if is_last:
            yield from reader.finish()
    elif text:
        yield AnswerText(text)


def _end(service: Service, response: ResponseBody, request: Request) -> list[bytes]:
    """Close what is open; where no answer was written, the empty message that it is."""
    is_answered = any(item["type"] != "reasoning" for item in response.items)
    told = [] if is_answered else list(response.add(iter((AnswerText(""),))))
    status = "incomplete" if request.finish_reason == "length" else "completed"
    logprobs = LogprobsReader(request, service.vocabulary)
    return [*told, *response.close(status, logprobs.take())]


def _kept(store: ResponseStore, job: ResponseJob, body: dict[str, Any]) -> dict[str, Any]:
    if job.should_store:
        store.put(Stored(body, [*job.items, *body["output"]]))
    return body
