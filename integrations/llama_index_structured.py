"""LlamaIndex's structured predictions, held to their class by a mask rather than by a program.

Programs of LlamaIndex's lose the system prompt on their way, ask for a tool without saying that it
must be called, or change the prompt they are given; so all four calls go to chat.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.llm import (
    LLMStructuredPredictEndEvent,
    LLMStructuredPredictStartEvent,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.types import Model, PydanticProgramMode

from structspec.integrations.llama_index_partial import FlexibleValues

dispatcher = get_dispatcher(__name__)


class StructuredPrediction(FunctionCallingLLM):
    """What predicts objects, of an LLM whose chat takes `schema=` and gives `raw["value"]`."""

    def structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """A validated object of the class, by a mask; with another program mode, by a program."""
        if not self._is_native:
            return super().structured_predict(
                output_cls, copy.deepcopy(prompt), llm_kwargs, **prompt_args
            )
        _tell_start(output_cls, prompt, prompt_args)
        response = self.chat(
            self._filled(prompt, prompt_args), schema=output_cls, **_of_call(llm_kwargs)
        )
        return _tell_end(response)

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """As `structured_predict`."""
        if not self._is_native:
            return await super().astructured_predict(
                output_cls, copy.deepcopy(prompt), llm_kwargs, **prompt_args
            )
        _tell_start(output_cls, prompt, prompt_args)
        response = await self.achat(
            self._filled(prompt, prompt_args), schema=output_cls, **_of_call(llm_kwargs)
        )
        return _tell_end(response)

    def _structured_stream_call(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Generator[Any, None, None]:
        """Objects as they grow, each with what there is; the last is validated, of the class."""
        if not self._is_native:
            return super()._structured_stream_call(
                output_cls, copy.deepcopy(prompt), llm_kwargs, **prompt_args
            )
        responses = self.stream_chat(
            self._filled(prompt, prompt_args), schema=output_cls, **_of_call(llm_kwargs)
        )
        values = FlexibleValues(output_cls)
        return (value for response in responses for value in values.take(response))

    async def _structured_astream_call(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> AsyncGenerator[Any, None]:
        """As `_structured_stream_call`."""
        if not self._is_native:
            return await super()._structured_astream_call(
                output_cls, copy.deepcopy(prompt), llm_kwargs, **prompt_args
            )
        responses = await self.astream_chat(
            self._filled(prompt, prompt_args), schema=output_cls, **_of_call(llm_kwargs)
        )
        values = FlexibleValues(output_cls)
        return (value async for response in responses for value in values.take(response))

    @property
    def _is_native(self) -> bool:
        return self.pydantic_program_mode == PydanticProgramMode.DEFAULT

    def _filled(
        self, prompt: BasePromptTemplate, prompt_args: Mapping[str, Any]
    ) -> list[ChatMessage]:
        messages: list[ChatMessage] = prompt.format_messages(llm=self, **prompt_args)
        return messages


def _of_call(llm_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Without what LlamaIndex's callers say of tools: there is none here."""
    of_tools = ("tool_required", "tool_choice", "allow_parallel_tool_calls")
    return {name: value for name, value in (llm_kwargs or {}).items() if name not in of_tools}


def _tell_start(
    output_cls: type[Model], prompt: BasePromptTemplate, prompt_args: dict[str, Any]
) -> None:
    dispatcher.event(
        LLMStructuredPredictStartEvent(
            output_cls=output_cls, template=prompt, template_args=prompt_args
        )
    )


def _tell_end(response: ChatResponse) -> Any:
    value = response.raw["value"]
    dispatcher.event(LLMStructuredPredictEndEvent(output=value))
    return value
