"""What a request to /v1/responses comes down to: items as messages, the rest as in chat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from structspec.chat.fields import refuse
from structspec.chat.formats import Wanted, read_format
from structspec.chat.messages import read_message, text_of
from structspec.chat.tool_choice import read_tools
from structspec.server.bodies import ResponsesBody
from structspec.server.chat import Job, check_model, prepare_job, template_options
from structspec.server.constraints import read_constraint
from structspec.server.sampling import read_sampling
from structspec.server.settings import ServerSettings
from structspec.server.store import ResponseStore
from structspec.service import Service


@dataclass(frozen=True, slots=True)
class ResponseJob:
    """A request that is ready to start, and the items before its answer."""

    job: Job
    body: ResponsesBody
    items: Sequence[dict[str, Any]]
    should_store: bool

    @property
    def num_choices(self) -> int:
        """One."""
        return self.job.num_choices


def prepare_response(
    service: Service, settings: ServerSettings, store: ResponseStore, body: ResponsesBody
) -> ResponseJob:
    """Read a request and start compiling; raises ApiError, and then nothing is started."""
    check_model(settings, body)
    for name in ("background", "conversation"):
        if getattr(body, name):
            raise refuse(f"{name} is not supported", name, "unsupported_parameter")
    if body.n not in (None, 1):
        raise refuse("a response has one output: n must be 1", "n")
    items = _read_items(body, store)
    num_before = len(items) - (1 if isinstance(body.input, str) else len(body.input))
    messages = [read_message(one, place) for place, one in _to_messages(items, -num_before)]
    if body.instructions:
        messages = [{"role": "system", "content": body.instructions}, *messages]
    options = read_sampling(body)
    if body.max_output_tokens is not None:
        options["max_tokens"] = body.max_output_tokens
    if body.top_logprobs or "message.output_text.logprobs" in (body.include or ()):
        options["logprobs"] = body.top_logprobs or 0
    effort = (body.reasoning or {}).get("effort")
    if not isinstance(effort, str | None):
        raise refuse(f"reasoning.effort must be text, not {effort!r}", "reasoning.effort")
    if effort == "none":
        options["reasoning"] = False
    tools = read_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
    job = prepare_job(
        service,
        settings,
        body,
        messages,
        options,
        tools,
        _read_wanted(body),
        template_options(effort, body.chat_template_kwargs),
    )
    return ResponseJob(job, body, items, body.store is not False)


def _read_wanted(body: ResponsesBody) -> Wanted | None:
    """The constraint, from `text.format` or any of the other fields."""
    wanted = read_constraint(body)
    form = (body.text or {}).get("format")
    if form is None:
        return wanted
    if not isinstance(form, Mapping):
        raise refuse(f"text.format must be an object, not {form!r}", "text.format")
    told = read_format(form, "text.format")
    if told is not None and wanted is not None:
        raise refuse(
            f"text.format and {wanted.param} contradict each other: send one of them", "text.format"
        )
    return told or wanted


def _read_items(body: ResponsesBody, store: ResponseStore) -> list[dict[str, Any]]:
    before: Iterable[dict[str, Any]] = ()
    if body.previous_response_id is not None:
        before = store.get(body.previous_response_id, "previous_response_id").items
    given = body.input
    new = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not new:
        raise refuse("input must hold at least one item", "input", "empty_array")
    places = (f"input[{index}].id" for index in range(len(new)))
    return [*before, *(_found(one, store, place) for one, place in zip(new, places, strict=True))]


def _found(item: dict[str, Any], store: ResponseStore, param: str) -> dict[str, Any]:
    """The item itself, where only its id is sent."""
    is_reference = item.get("type") == "item_reference"
    return store.item(str(item.get("id")), param) if is_reference else item


def _to_messages(
    items: Iterable[dict[str, Any]], start: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Items as chat messages, and where each stands; neighbouring calls are one message.

    `start` is the index of the first item in the request.
    """
    calls: list[dict[str, Any]] = []
    reasoning = ""

    def called() -> dict[str, Any]:
        told = {"reasoning": reasoning} if reasoning else {}
        return {"role": "assistant", "content": None, "tool_calls": calls, **told}

    place = "input"
    for index, item in enumerate(items, start):
        before, place = place, f"input[{index}]"
        kind = item.get("type") or "message"
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            calls.append({"id": item.get("call_id"), "function": function})
            continue
        if calls:
            yield before, called()
            calls, reasoning = [], ""
        if kind == "message":
            yield place, {**item, **({"reasoning": reasoning} if reasoning else {})}
            reasoning = ""
        elif kind == "function_call_output":
            output, call_id = item.get("output"), item.get("call_id")
            yield place, {"role": "tool", "content": output, "tool_call_id": call_id}
        elif kind == "reasoning":
            told = [text_of(item.get(name), f"{place}.{name}") for name in ("content", "summary")]
            reasoning = "\n".join(filter(None, told))
        else:
            raise refuse(
                f"{place}: items of type {kind!r} are not supported",
                f"{place}.type",
                "unsupported_content",
            )
    if calls:
        yield place, called()
