"""POST /tokenize and /detokenize: what texts and chats are to the model."""

from __future__ import annotations

from typing import Any

from structspec.chat.fields import refuse
from structspec.chat.messages import read_messages
from structspec.chat.tool_choice import read_tools
from structspec.server.bodies import Json, RequestBody, read_body
from structspec.service import Service
from structspec.tool_prompt import place_tools


class TokenizeBody(RequestBody):
    """A text, or a chat as /v1/chat/completions takes it."""

    prompt: str | None = None
    messages: list[Json] | None = None
    tools: list[Json] | None = None


class DetokenizeBody(RequestBody):
    """Tokens."""

    tokens: list[int]


def tokenize(service: Service, data: bytes) -> dict[str, Any]:
    """The tokens of a text, or of a chat's prompt; raises InvalidField."""
    body = read_body(TokenizeBody, data)
    if body.prompt is not None:
        token_ids = service.tokenizer.encode(body.prompt)
    elif body.messages is not None:
        token_ids = _chat_tokens(service, body.messages, body.tools)
    else:
        raise refuse("send a prompt, or messages", "prompt", "missing_required_parameter")
    size = len(token_ids)
    return {"tokens": token_ids, "count": size, "max_model_len": service.max_model_len}


def _chat_tokens(service: Service, messages: list[Json], tools: list[Json] | None) -> list[int]:
    choice = read_tools(tools, "auto", None)
    listed = () if choice is None else choice.tools
    template = service.tokenizer.chat_template
    told = place_tools(read_messages(messages, "messages"), listed, template)
    return service.tokenizer.encode_chat(*told)


def detokenize(service: Service, data: bytes) -> dict[str, Any]:
    """The text of tokens; raises InvalidField."""
    tokens = read_body(DetokenizeBody, data).tokens
    size = service.vocabulary.vocab_size
    if not all(0 <= token_id < size for token_id in tokens):
        raise refuse(f"tokens must be a list of integers from 0 to {size - 1}", "tokens")
    return {"prompt": service.tokenizer.decode(tokens)}
