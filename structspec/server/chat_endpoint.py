"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

from structspec.call_reader import CallReader
from structspec.call_run import result_of
from structspec.chat.logprobs import LogprobsReader
from structspec.chat.spelled_text import SpelledText
from structspec.errors import Truncated
from structspec.generation import Generation
from structspec.grammars.envelopes import ENVELOPES
from structspec.server.chat import Job
from structspec.server.chat_body import (
    Chunks,
    Head,
    choice_body,
    deltas,
    finish_reason,
    logprobs_body,
    read_message,
    reasoning_fields,
    usage_of,
)
from structspec.server.prompt_logprobs import prompt_fields
from structspec.server.runs import Outcome, Piece, read_all, run_all
from structspec.server.sse import DONE, error_event
from structspec.server.token_details import TokenDetailsReader
from structspec.service import Service


async def complete_chat(service: Service, job: Job, head: Head) -> dict[str, Any]:
    """The whole answer; raises ApiError if a choice failed."""
    outcomes = await run_all(service, job.prepared)
    for outcome in outcomes:
        job.check(outcome.result)
    choices = [_choice(service, job, index, outcome) for index, outcome in enumerate(outcomes)]
    requests = [outcome.request for outcome in outcomes]
    prompt = prompt_fields(requests[0], service.vocabulary)
    body = {**head.fields("chat.completion"), "choices": choices, "usage": usage_of(requests)}
    return {**body, **prompt}


def _choice(service: Service, job: Job, index: int, outcome: Outcome) -> dict[str, Any]:
    text = written_text(service, job, outcome)
    message = read_message(text, job.reader())
    request = outcome.request
    if job.tells_reasoning and request.reasoning is not None and request.reasoning.has_begun:
        message.reasoning = request.reasoning.text.text
    reason = finish_reason(request, has_calls=bool(message.calls))
    logprobs = LogprobsReader(request, service.vocabulary)
    told = logprobs_body(logprobs.take()) if logprobs.is_on else None
    body = choice_body(index, message.body(), reason, told)
    details = TokenDetailsReader(request, service.vocabulary)
    return {**body, "structspec": details.body(is_last=True)} if details.is_on else body


def written_text(service: Service, job: Job, outcome: Outcome) -> str:
    """What a finished request has written, with the special tokens that calls are read by."""
    if _spells(job):
        return SpelledText(outcome.request, service.vocabulary).take(is_last=True)
    result = outcome.result
    return result.text if isinstance(result, Generation | Truncated) else ""


def make_spelled(service: Service, job: Job, index: int) -> SpelledText | None:
    """What spells a choice's special tokens, where calls are read by them."""
    if not _spells(job):
        return None
    return SpelledText(job.prepared[index].request, service.vocabulary)


def _spells(job: Job) -> bool:
    return job.tools is not None and bool(ENVELOPES[job.tools.envelope].markers)


class ChoiceReader:
    """Reads one streamed choice: text, or the deltas of calls."""

    def __init__(self, service: Service, job: Job, index: int) -> None:
        self._reader: CallReader | None = job.reader()
        self._spelled = make_spelled(service, job, index)
        self._tells_reasoning = job.tells_reasoning
        request = job.prepared[index].request
        self._logprobs = LogprobsReader(request, service.vocabulary)
        self.details = TokenDetailsReader(request, service.vocabulary)
        self.has_calls = False
        # whether a piece of the answer is what it adds, and nothing else
        self.is_plain = not (self._reader or self._spelled or self._logprobs.is_on)

    def take(self, piece: Piece) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        """What a piece adds to the answer: deltas, the first of text with all new logprobs."""
        if piece.reasoning and self._tells_reasoning:
            yield reasoning_fields(piece.reasoning), None
        entries = self._logprobs.take() if self._logprobs.is_on else []
        for delta in self._deltas(piece.text, is_last=piece.is_finished):
            yield delta, logprobs_body(entries) if entries else None
            entries = []
        if entries:
            yield {"content": ""}, logprobs_body(entries)

    def _deltas(self, text: str, *, is_last: bool) -> list[dict[str, Any]]:
        if self._spelled is not None:
            text = self._spelled.take(is_last=is_last)
        if self._reader is None:
            return [{"content": text}] if text else []
        found = list(deltas(self._reader.feed(text)))
        if is_last:
            found += deltas(self._reader.finish())
        self.has_calls |= any("tool_calls" in delta for delta in found)
        return found


def check_first(service: Service, job: Job, piece: Piece) -> None:
    """Raise what ended a request before it wrote anything: an answer of its own, not an event."""
    if piece.is_finished:
        job.check(result_of(service, job.prepared[piece.index]))


async def stream_chat(
    service: Service, job: Job, head: Head, *, has_usage: bool
) -> AsyncGenerator[bytes]:
    """The answer as it is written, in server-sent events."""
    chunks = Chunks(head, has_usage=has_usage)
    readers = [ChoiceReader(service, job, index) for index in range(len(job.prepared))]
    has_begun = False
    async for piece in read_all(service, job.prepared):
        if not has_begun:
            check_first(service, job, piece)
            has_begun = True
            for index in range(len(readers)):  # SDKs want to meet choices in rising order
                yield chunks.delta(index, {"role": "assistant", "content": "", "refusal": None})
            if told := prompt_fields(job.prepared[piece.index].request, service.vocabulary):
                yield chunks.beside(told)
        prepared, reader = job.prepared[piece.index], readers[piece.index]
        if reader.is_plain and not piece.reasoning:
            if piece.text:
                yield chunks.text(piece.index, piece.text)
        else:
            for delta, logprobs in reader.take(piece):
                yield chunks.delta(piece.index, delta, logprobs)
        if reader.details.is_on:
            yield chunks.details(piece.index, reader.details.body(is_last=piece.is_finished))
        if not piece.is_finished:
            continue
        if (error := job.failure(result_of(service, prepared))) is not None:
            yield error_event(error)
            return
        reason = finish_reason(prepared.request, has_calls=reader.has_calls)
        yield chunks.end(piece.index, reason)
    if has_usage:
        yield chunks.usage(usage_of([one.request for one in job.prepared]))
    yield DONE
