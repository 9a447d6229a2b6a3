"""What clients send: the fields that are looked at, and their types.

Fields that change nothing about an answer (`user`, `metadata`, `store` …) are let pass; those that
constrain it are here, and are honoured or refused with their name.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from structspec.chat.fields import refuse
from structspec.server.errors import of_validation
from structspec.server.unheeded import check_unheeded

Json = dict[str, Any]


class RequestBody(BaseModel):
    """A JSON object; what is not looked at is kept aside."""

    model_config = ConfigDict(extra="allow", strict=True)


class ConstraintFields(RequestBody):
    """How clients of OpenAI, vLLM, SGLang and llama.cpp say what an answer must be."""

    response_format: Json | None = None
    structured_outputs: Json | None = None  # vLLM
    guided_json: Json | str | None = None  # vLLM, before 0.12
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_json_object: bool | None = None
    guided_whitespace_pattern: str | None = None
    guided_decoding_backend: str | None = None
    regex: str | None = None  # SGLang
    ebnf: str | None = None
    json_schema: Json | str | None = None  # SGLang, llama.cpp
    grammar: str | None = None  # llama.cpp
    schema_in_prompt: str | None = None  # ours
    on_unsupported: str | None = None
    max_attempts: int | None = None
    retry_feedback: bool | None = None


class SamplingFields(ConstraintFields):
    """How tokens are drawn; None is the model's own choice."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    logprobs_mode: str | None = None  # ours
    speculative: bool | Json | None = None
    stream: bool | None = None
    stream_options: Json | None = None


class ChatBody(SamplingFields):
    """POST /v1/chat/completions."""

    messages: list[Json]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None  # vLLM
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Json] | None = None
    function_call: str | Json | None = None
    prediction: Json | None = None
    reasoning_effort: str | None = None
    thinking_token_budget: int | None = None
    token_details: int | None = None  # ours
    include_reasoning: bool | None = None
    chat_template_kwargs: Json | None = None


class CompletionBody(SamplingFields):
    """POST /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class ResponsesBody(SamplingFields):
    """POST /v1/responses."""

    input: str | list[Json]
    instructions: str | None = None
    text: Json | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    reasoning: Json | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    store: bool | None = None
    background: bool | None = None
    metadata: Json | None = None
    chat_template_kwargs: Json | None = None


_Body = TypeVar("_Body", bound=RequestBody)

_MAY_OVERFLOW = re.compile(rb"[eE]\+?\d{3}|\d{309}")  # numbers that no float holds


def read_body(kind: type[_Body], data: bytes) -> _Body:
    """A request's body; raises InvalidField with the field that is wrong."""
    try:
        body = kind.model_validate(_parse(data))
    except ValidationError as error:
        raise of_validation(error) from None
    check_unheeded(body.model_extra or {})
    return body


def _parse(data: bytes) -> Any:
    """What JSON text says; raises InvalidField for NaN, numbers out of range, and what is none."""
    try:
        given = from_json(data, allow_inf_nan=False)
        if _MAY_OVERFLOW.search(data):
            json.dumps(given, allow_nan=False)
    except ValueError as error:
        raise refuse(f"the body is not JSON: {error}", None, "invalid_json") from None
    return given
