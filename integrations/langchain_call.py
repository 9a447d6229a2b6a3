"""One call of a chat model: run whole or as a stream, and told in LangChain's classes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from structspec.chat.formats import read_format
from structspec.chat.turns import Turn, stream, stream_async, take, take_async
from structspec.errors import (
    InvalidRequest,
    NothingAllowed,
    OutputInvalid,
    StructspecError,
    Truncated,
)
from structspec.integrations.langchain_messages import (
    PROVIDER,
    to_chunk,
    to_failed_chunk,
    to_failed_message,
    to_message,
)
from structspec.options import CONSTRAINT_FIELDS
from structspec.runner import Runner


def read_wanted(given: Mapping[str, Any], response_format: Any, output_type: Any) -> dict[str, Any]:
    """What constrains a call, as options of `generate`.

    `response_format` is one of OpenAI's, or a Python type; `output_type` is the Python type that
    it was made of. Raises InvalidRequest for two constraints.
    """
    named = [name for name in CONSTRAINT_FIELDS if given.get(name) is not None]
    if response_format is None:
        return {}
    if named:
        raise InvalidRequest(
            f"response_format= and {named[0]}= contradict each other; pass one of them"
        )
    if output_type is not None or not isinstance(response_format, Mapping):
        return {"schema": response_format if output_type is None else output_type}
    wanted = read_format(response_format, "response_format")
    return {} if wanted is None else dict(wanted.options)


@dataclass(frozen=True, slots=True)
class Call:
    """A checked call that has not started.

    With `tells_failure` output that came to nothing is a message too, `response_metadata` with the
    error; without it that is raised.
    """

    runner: Runner
    turn: Turn
    model: str | None
    tells_failure: bool

    @property
    def model_name(self) -> str:
        """What the model is called in its messages."""
        return self.model or getattr(self.runner, "model_name", None) or PROVIDER

    def run(self) -> ChatResult:
        """The whole message."""
        try:
            said = take(self.runner, self.turn)
        except Exception as error:
            return _result(self._failed(error))
        return _result(to_message(said, self.model_name))

    async def arun(self) -> ChatResult:
        """As `run`."""
        try:
            said = await take_async(self.runner, self.turn)
        except Exception as error:
            return _result(self._failed(error))
        return _result(to_message(said, self.model_name))

    def stream(self) -> Generator[ChatGenerationChunk]:
        """The message as it is written; closing the iterator cancels the request."""
        try:
            with closing(stream(self.runner, self.turn)) as events:
                for event in events:
                    yield _chunk(to_chunk(event, self.model_name))
        except Exception as error:
            self._check(error)
            yield _chunk(to_failed_chunk(error, self.model_name))

    async def astream(self) -> AsyncGenerator[ChatGenerationChunk]:
        """As `stream`."""
        try:
            async with aclosing(stream_async(self.runner, self.turn)) as events:
                async for event in events:
                    yield _chunk(to_chunk(event, self.model_name))
        except Exception as error:
            self._check(error)
            yield _chunk(to_failed_chunk(error, self.model_name))

    def _failed(self, error: Exception) -> AIMessage:
        self._check(error)
        return to_failed_message(error, self.model_name)

    def _check(self, error: Exception) -> None:
        """Raise an error that is no message: a fault of the call, or of ours, never is one."""
        is_output = isinstance(error, Truncated | OutputInvalid | NothingAllowed)
        # what a validator of the user's raises is about the output too
        is_output |= not isinstance(error, StructspecError)
        if not (self.tells_failure and is_output):
            raise error


def _result(message: AIMessage) -> ChatResult:
    told = {"finish_reason": message.response_metadata["finish_reason"]}
    llm_output = {
        "model_name": message.response_metadata["model_name"],
        "token_usage": _token_usage(message),
    }
    generation = ChatGeneration(message=message, generation_info=told)
    return ChatResult(generations=[generation], llm_output=llm_output)


def _token_usage(message: AIMessage) -> dict[str, int]:
    usage = message.usage_metadata
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)
