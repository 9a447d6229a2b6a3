"""What a chat request comes down to: prompts for the engine, and how their text is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from structspec.call_reader import CallReader
from structspec.chat.fields import refuse
from structspec.chat.formats import Wanted
from structspec.chat.messages import read_messages, text_of
from structspec.chat.tool_choice import ToolChoice, read_tools
from structspec.constraint import Tools
from structspec.errors import StructspecError, Truncated
from structspec.grammars.tools import tools_of
from structspec.options import resolve_options
from structspec.prompting import show_schema
from structspec.server.bodies import ChatBody, Json, SamplingFields
from structspec.server.constraints import read_constraint
from structspec.server.errors import ApiError, to_api_error
from structspec.server.sampling import read_sampling
from structspec.server.settings import ServerSettings
from structspec.service import ChatPrompt, Prepared, Service, TokenPrompt
from structspec.tool_prompt import choose_envelope, place_tools

_OTHER_NAMES = {  # of fields, by what they are called in chats or in Python
    "messages": ("prompt", "input"),
    "max_tokens": ("max_completion_tokens", "max_output_tokens"),
    "max_reasoning_tokens": ("thinking_token_budget",),
    "logprobs": ("top_logprobs",),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One API request, ready to start: a prepared request for each choice."""

    prepared: Sequence[Prepared]
    wanted: Wanted | None
    tools: Tools | None = None
    tells_reasoning: bool = True

    @property
    def num_choices(self) -> int:
        """How many outputs are written for it."""
        return len(self.prepared)

    def reader(self) -> CallReader | None:
        """What reads calls out of a choice's text; None where there can be none."""
        return None if self.tools is None else CallReader(self.tools)

    def failure(self, result: object) -> ApiError | None:
        """What a client is told of a choice that failed; one that was cut short has not."""
        if isinstance(result, Exception) and not isinstance(result, Truncated):
            return self.explain(result)
        return None

    def check(self, result: object) -> None:
        """Raise what a client is told of a choice that failed."""
        error = self.failure(result)
        if error is not None:
            assert isinstance(result, Exception)
            raise error from result

    def explain(self, error: Exception) -> ApiError:
        """What a client is told of an error that a choice ended with."""
        place = None if self.wanted is None else self.wanted.param
        told = to_api_error(error, place)
        is_of_schema = told.code in ("invalid_json_schema", "unsupported_constraint")
        if is_of_schema and self.wanted is not None and self.wanted.name:
            # in the words that users search for
            name = self.wanted.name
            message = f"Invalid schema for response_format '{name}': {told.message}"
            return ApiError(told.status, message, param=told.param, code=told.code)
        return told


def prepare_chat(service: Service, settings: ServerSettings, body: ChatBody) -> Job:
    """Read a chat request and start compiling; raises ApiError, and then nothing is started."""
    check_model(settings, body)
    if body.functions or body.function_call not in (None, "none"):
        raise refuse(
            "functions and function_call are no longer supported: send tools and tool_choice",
            "functions" if body.functions else "function_call",
            "unsupported_parameter",
        )
    options = {**read_sampling(body), **_read_rest(body)}
    tools = read_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
    wanted = read_constraint(body)
    messages = read_messages(body.messages, "messages")
    return prepare_job(
        service,
        settings,
        body,
        messages,
        options,
        tools,
        wanted,
        template_options(body.reasoning_effort, body.chat_template_kwargs),
        tells_reasoning=body.include_reasoning is not False,
    )


def prepare_job(
    service: Service,
    settings: ServerSettings,
    body: SamplingFields,
    messages: list[dict[str, Any]],
    options: dict[str, Any],
    tools: ToolChoice | None,
    wanted: Wanted | None,
    template_options: Json | None,
    *,
    tells_reasoning: bool = True,
) -> Job:
    """Messages and all that was read of a request, as prepared requests."""
    template = service.tokenizer.chat_template
    held: Tools | None = None
    if tools is not None:
        wanted = tools.constrain(wanted, choose_envelope(template))
        held = wanted.options["grammar"]
        try:
            tools_of(held)
            messages = _show_answer(messages, held, body)
        except StructspecError as error:
            raise Job([], wanted).explain(error) from None
    told = place_tools(messages, () if tools is None else tools.tools, template)
    prompt = ChatPrompt(*told, template_options or {})
    prepared = prepare_choices(service, settings, body, prompt, options, wanted)
    return Job(prepared, wanted, held, tells_reasoning)


def _show_answer(
    messages: list[dict[str, Any]], tools: Tools, body: SamplingFields
) -> list[dict[str, Any]]:
    """The messages with the schema of an answer that may be given instead of calls."""
    if tools.response is None:
        return messages
    mode = {} if body.schema_in_prompt is None else {"schema_in_prompt": body.schema_in_prompt}
    asked = resolve_options({"schema": tools.response, **mode})  # type: ignore[typeddict-item]
    return show_schema(messages, asked.target, asked.schema_in_prompt)


def prepare_choices(
    service: Service,
    settings: ServerSettings,
    body: SamplingFields,
    prompt: ChatPrompt | TokenPrompt,
    options: dict[str, Any],
    wanted: Wanted | None,
) -> list[Prepared]:
    """As many requests as there are choices, each with a seed of its own where one is given."""
    if wanted is not None:
        options = {**options, **wanted.options, **_read_policy(body, wanted)}
    check_size(settings, wanted)
    num_choices = count_choices(settings, body)
    try:
        task = resolve_options(options)  # type: ignore[arg-type]
        return service.prepare_all([prompt], task, num_choices)
    except StructspecError as error:
        raise _as_sent(Job([], wanted).explain(error), body) from None


def _as_sent(error: ApiError, body: SamplingFields) -> ApiError:
    """The same error, of the field as this request calls it."""
    for name in _OTHER_NAMES.get(error.param or "", ()):
        if getattr(body, name, None) is not None:
            return ApiError(error.status, error.message, param=name, code=error.code)
    return error


def check_model(settings: ServerSettings, body: SamplingFields) -> None:
    """Raise where another model is asked for than the one that is served."""
    if body.model is not None and body.model != settings.model_name:
        raise ApiError(
            404,
            f"the model {body.model!r} does not exist; this server has {settings.model_name!r}",
            param="model",
            code="model_not_found",
        )


def check_size(settings: ServerSettings, wanted: Wanted | None) -> None:
    """Raise for a constraint that is larger than the server takes."""
    if wanted is None:
        return
    size = sum(len(str(value)) for value in wanted.options.values())
    if size > settings.max_schema_bytes:
        raise refuse(
            f"{wanted.param} is larger than the {settings.max_schema_bytes} bytes allowed",
            wanted.param,
            "schema_too_large",
        )


def count_choices(settings: ServerSettings, body: SamplingFields, num_prompts: int = 1) -> int:
    """How many there are to be of each prompt; raises where those of all are too many."""
    num_choices = 1 if body.n is None else body.n
    if not 1 <= num_choices <= settings.max_choices:
        raise refuse(f"n must be from 1 to {settings.max_choices}, not {num_choices}", "n")
    if num_prompts * num_choices > settings.max_choices:
        raise refuse(
            f"{num_prompts} prompts with {num_choices} outputs each are more than the"
            f" {settings.max_choices} that one request may ask for",
            "prompt",
        )
    return num_choices


def template_options(effort: str | None, given: Json | None) -> Json:
    """What a chat template is told beside the messages; some know how hard to reason."""
    return {**({} if effort in (None, "none") else {"reasoning_effort": effort}), **(given or {})}


def _read_rest(body: ChatBody) -> dict[str, Any]:
    """The options that only chat has."""
    options: dict[str, Any] = {}
    if body.max_completion_tokens is not None:
        options["max_tokens"] = body.max_completion_tokens
    if body.prediction is not None:
        content = body.prediction.get("content")
        options["prediction"] = text_of(content, "prediction.content")
    if body.top_logprobs and not body.logprobs:
        raise refuse("top_logprobs needs logprobs to be true", "top_logprobs")
    if body.logprobs:
        options["logprobs"] = body.top_logprobs or 0
    for name in ("prompt_logprobs", "token_details"):
        if (number := getattr(body, name)) is not None:
            options[name] = number
    if body.reasoning_effort == "none":
        options["reasoning"] = False
    if body.thinking_token_budget is not None:
        options["max_reasoning_tokens"] = body.thinking_token_budget
    return options


def _read_policy(body: SamplingFields, wanted: Wanted) -> dict[str, Any]:
    policy: dict[str, Any] = {
        name: getattr(body, name) for name in ("on_unsupported", "max_attempts", "retry_feedback")
    }
    if wanted.schema is not None:
        policy["schema_in_prompt"] = body.schema_in_prompt
    return {name: value for name, value in policy.items() if value is not None}
