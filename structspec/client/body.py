"""A call as the body of a chat request, as each kind of server takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from structspec.client.attempt import Attempt
from structspec.client.holding import Held, hold
from structspec.client.servers import Server, ServerKind
from structspec.errors import InvalidRequest, UnsupportedConstraint
from structspec.grammars.base import Report
from structspec.options import GenerateOptions, Task
from structspec.policy import check_report
from structspec.prompt_schema import compact
from structspec.prompting import show_schema
from structspec.prompts import to_messages
from structspec.reasoning import Reasoning
from structspec.speculation import Speculation

_STANDARD = {
    *("temperature", "top_p", "seed", "max_tokens", "stop"),
    *("logit_bias", "presence_penalty", "frequency_penalty", "logprobs"),
}
_MOST = {"top_k", "min_p", "repetition_penalty", "min_tokens", "stop_token_ids", "ignore_eos"}
_LISTED = {"bad_words", "allowed_token_ids"}
_OURS = ("logprobs_mode", "token_details")
_TAKEN: dict[ServerKind, set[str]] = {
    "structspec": _STANDARD | _MOST | _LISTED | {*_OURS, "prompt_logprobs"},
    "vllm": _STANDARD | _MOST | _LISTED | {"prompt_logprobs"},
    "old vllm": _STANDARD | _MOST | _LISTED,
    "sglang": _STANDARD | _MOST,
    "llama.cpp": _STANDARD | {"top_k", "min_p", "repetition_penalty", "ignore_eos"},
    "openai": _STANDARD,
    "other": _STANDARD,
}
_CALLED: dict[ServerKind, dict[str, str]] = {
    "llama.cpp": {"repetition_penalty": "repeat_penalty"},
    "openai": {"max_tokens": "max_completion_tokens"},
}
_HINTS = {"speculative", "speculation"}  # change how fast an answer comes, not which it is


def refuse_local(options: GenerateOptions) -> None:
    """Raise InvalidRequest for an option that only an engine in this process has."""
    if options.get("backend") is not None:
        raise InvalidRequest("backend= is for LLM: a client cannot ask a server for it")


def make_body(
    server: Server, attempt: Attempt, *, is_streamed: bool
) -> tuple[dict[str, Any], Held | None]:
    """The body, and how the constraint is in it; None where it is not, or there is none."""
    task = attempt.task
    held = _hold(server, task)
    messages = to_messages(attempt.prompt)
    tells_itself = server.kind == "openai" and held is not None and "strict" in str(held.fields)
    if task.target is not None and not tells_itself:
        messages = show_schema(messages, task.target, task.schema_in_prompt)
    if held is not None and held.fields.get("response_format") == {"type": "json_object"}:
        messages = _naming_json(messages)
    body: dict[str, Any] = {
        "model": server.model,
        "messages": [_on_the_wire(message) for message in messages],
        **_sampling(server.kind, attempt.sampling),
        **_reasoning(server.kind, task.reasoning),
        **({} if held is None else held.fields),
    }
    if server.kind == "structspec":
        body |= _for_structspec(task)
    if task.prediction and isinstance(task.prediction, str) and server.kind in _PREDICTING:
        body["prediction"] = {"type": "content", "content": task.prediction}
    if is_streamed:
        if server.kind == "vllm" and "prompt_logprobs" in body:
            raise InvalidRequest(
                "prompt_logprobs= does not come with a stream from this server (vllm): use"
                " generate_raw"
            )
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body, held


_PREDICTING = ("structspec", "openai")


def _naming_json(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages that name JSON somewhere: without it OpenAI refuses to write any."""
    if "json" in compact(messages).lower():
        return messages
    return [{"role": "system", "content": "Answer in JSON."}, *messages]


def _on_the_wire(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as servers read it: the arguments of calls are JSON text there."""
    calls = [
        {
            **call,
            "function": {**call["function"], "arguments": compact(call["function"]["arguments"])},
        }
        if isinstance(call.get("function", {}).get("arguments"), Mapping)
        else call
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)


def _hold(server: Server, task: Task) -> Held | None:
    """The constraint in the server's words; raises where the policy asks for more than they are."""
    if task.constraint is None:
        return None
    name = "" if task.target is None else task.target.name
    held = hold(server.kind, task.constraint, name)
    if held is None:
        kind = type(task.constraint).__name__
        gaps: tuple[str, ...] = (f"{server.kind} servers know no {kind}",)
    else:
        gaps = held.gaps
    if task.on_unsupported == "error":
        if gaps:
            raise UnsupportedConstraint(f"{gaps[0]}; on_unsupported='error' refuses that")
        if task.unheld:
            report = Report(server.kind, (), tuple(task.unheld), (), ())
            check_report(report, task.constraint, "error")
    return held


def _for_structspec(task: Task) -> dict[str, Any]:
    """What our own server is told beside: finished text is judged, and drawn again, by us."""
    fields: dict[str, Any] = {}
    if task.constraint is not None:
        fields["on_unsupported"] = task.on_unsupported
        if task.target is not None:
            fields["schema_in_prompt"] = "never"
            if task.on_unsupported == "validate":
                fields["on_unsupported"] = "ignore"
        else:  # of what only it can judge it draws again itself
            fields["max_attempts"] = task.max_attempts
    speculation = task.sampling.get("speculation", Speculation())
    wishes = {name: wish for name, wish in asdict(speculation).items() if wish is not None}
    if wishes:
        fields["speculative"] = wishes
    return {name: value for name, value in fields.items() if value is not None}


def _sampling(kind: ServerKind, sampling: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in sampling.items():
        if name in _HINTS:
            continue
        if name not in _TAKEN[kind]:
            raise InvalidRequest(f"{name}= cannot be asked of this server ({kind}): leave it out")
        if name == "logprobs":
            fields |= _logprobs(kind, value)
            continue
        if name == "logit_bias":
            value = {str(token_id): bias for token_id, bias in value}
        fields[_CALLED.get(kind, {}).get(name, name)] = value
    return fields


def _logprobs(kind: ServerKind, num_top: int) -> dict[str, Any]:
    """Chat's two fields; llama.cpp takes 0 for none at all, and the lack of it for 20."""
    num_top = max(num_top, 1) if kind == "llama.cpp" else num_top
    return {"logprobs": True, **({"top_logprobs": num_top} if num_top else {})}


def _reasoning(kind: ServerKind, reasoning: Reasoning | None) -> dict[str, Any]:
    if reasoning is None or reasoning == Reasoning():
        return {}
    told = Reasoning(mode=reasoning.mode, max_tokens=reasoning.max_tokens)
    if reasoning != told:
        raise InvalidRequest("of reasoning= a server can be told mode and max_tokens only")
    fields: dict[str, Any] = {}
    if reasoning.max_tokens is not None:
        if kind not in ("structspec", "vllm"):  # one that ignored it would reason for ever
            raise InvalidRequest(f"max_reasoning_tokens= cannot be asked of this server ({kind})")
        fields["thinking_token_budget"] = reasoning.max_tokens
    if reasoning.mode != "auto":
        if kind in ("openai", "other"):
            raise InvalidRequest(f"reasoning= cannot be asked of this server ({kind})")
        is_on = reasoning.mode == "on"
        fields["chat_template_kwargs"] = {"enable_thinking": is_on, "thinking": is_on}
        if kind == "structspec" and not is_on:
            fields["reasoning_effort"] = "none"
    return fields
