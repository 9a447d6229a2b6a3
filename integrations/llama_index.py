"""StructSpec: models run by structspec as an LLM of LlamaIndex.

from structspec.integrations.llama_index import StructSpec

llm = StructSpec("smollm2-135m")                     # the engine, in this process
llm = StructSpec(base_url="http://localhost:8000")   # or a server with OpenAI's chat completions
person = llm.structured_predict(Person, PromptTemplate("{text}"), text="Ada, 36")
"""

from __future__ import annotations

try:
    import llama_index.core  # noqa: F401 - told first, and in our words, where it is missing
except ImportError as error:
    raise ImportError(
        "structspec.integrations.llama_index needs LlamaIndex: pip install"
        " 'structspec-sdk[llamaindex]'"
    ) from error

import copy
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.loading import RECOGNIZED_LLMS
from llama_index.core.tools.types import BaseTool

from structspec.chat.engines import Engine, check_engine
from structspec.chat.messages import read_messages
from structspec.chat.standing_options import check_standing, heeded
from structspec.chat.turns import Said, Turn, make_turn, stream, stream_async, take, take_async
from structspec.integrations.llama_index_engine import (
    context_window_of,
    make_engine,
    refuse_unknown,
    tokenizer_of,
)
from structspec.integrations.llama_index_messages import to_messages
from structspec.integrations.llama_index_responses import Growing, to_completion, to_response
from structspec.integrations.llama_index_structured import StructuredPrediction
from structspec.integrations.llama_index_tools import (
    only_fill_models,
    select_tools,
    to_choice,
    to_tools,
)
from structspec.runner import Runner
from structspec.service import DEFAULT_MAX_TOKENS


class StructSpec(StructuredPrediction):
    """A model whose output is what you ask for, in this process or on a server; thread-safe.

    `model` is what `structspec.LLM` takes, and loaded at once; objects of one model share it. With
    `base_url` it is the server's name for it, and not needed where it serves one. `engine` is an
    LLM, AsyncLLM or Client of your own instead. `additional_kwargs` are options of `generate` for
    every call, and each call may be given more: `llm.chat(messages, schema=Person, top_p=0.9)`.
    `response.raw` has the usage, and as `value` what `generate` would return.

    `structured_predict` and its kin, `as_structured_llm` and calls of tools are held to their
    schemas token by token. The system prompt stands first in every prompt. Errors are
    StructspecErrors.
    """

    model: str | None = Field(default=None, description="The model, or the server's name for it.")
    base_url: str | None = Field(default=None, description="A server with chat completions.")
    api_key: str | None = Field(default=None, description="Its key.", exclude=True, repr=False)
    temperature: float | None = Field(default=None, description="0 takes the likeliest token.")
    max_tokens: int | None = Field(default=None, description="Of one output.")
    context_window: int | None = Field(default=None, description="Where a server says none.")
    additional_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Options of structspec's generate."
    )
    _given: Any = PrivateAttr(default=None)

    def __init__(
        self, model: str | None = None, *, engine: Engine | None = None, **fields: Any
    ) -> None:
        """Raises InvalidRequest for unknown fields and options, and what LLM and Client do."""
        refuse_unknown(fields, set(type(self).model_fields))
        super().__init__(model=model, **fields)
        check_standing(self._options)  # what is wrong with them is told at once
        if engine is None:
            engine = make_engine(model, self.base_url, self.api_key)
        self._given = check_engine(engine, model)

    @classmethod
    def class_name(cls) -> str:
        """What serialised objects of this class are known by."""
        return "structspec_llm"

    @property
    def metadata(self) -> LLMMetadata:
        """What there is to know of the model; a server is asked once."""
        window = self.context_window or context_window_of(self._engine) or DEFAULT_CONTEXT_WINDOW
        return LLMMetadata(
            context_window=window,
            num_output=min(self.max_tokens or DEFAULT_MAX_TOKENS, window // 2),
            is_chat_model=True,
            is_function_calling_model=True,
            model_name=self._name,
        )

    @property
    def tokenizer(self) -> Callable[[str], list[int]]:
        """What makes tokens of a text, for `Settings.tokenizer`; of a model in this process."""
        return tokenizer_of(self._engine)

    def to_payload(self) -> dict[str, Any]:
        """What callbacks are told of this object: no key, and no server is asked for it."""
        shown = ("base_url", "temperature", "max_tokens", "additional_kwargs")
        told = {name: getattr(self, name) for name in shown}
        return {"class_name": self.class_name(), "model_name": self._name, **told}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> StructSpec:
        """An object of its own over the same engine."""
        options = copy.deepcopy(self.additional_kwargs, memo)
        copied: StructSpec = self.model_copy(update={"additional_kwargs": options})
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Without the engine: what is unpickled finds it by the model's name, or the server."""
        bare = self.model_copy()
        bare._given = None
        state: dict[str, Any] = super(StructSpec, bare).__getstate__()
        return state

    # -- chat and complete --

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """What the model says next."""
        return self._response(take(self._runner, self._turn(messages, kwargs)))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The same as it is written; the last response has `raw`, with the usage."""
        return self._responses(stream(self._runner, self._turn(messages, kwargs)))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """As `chat`; cancelling the task cancels the request."""
        return self._response(await take_async(self._runner, self._turn(messages, kwargs)))

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """As `stream_chat`."""
        return self._aresponses(stream_async(self._runner, self._turn(messages, kwargs)))

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """What the model answers a user who says this; `formatted`: as it is, not by a function."""
        turn = self._turn(self._asked(prompt, formatted), kwargs)
        return to_completion(self._response(take(self._runner, turn)))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """As `stream_chat`."""
        turn = self._turn(self._asked(prompt, formatted), kwargs)
        responses = self._responses(stream(self._runner, turn))
        return (to_completion(one) for one in responses)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """As `complete`."""
        turn = self._turn(self._asked(prompt, formatted), kwargs)
        return to_completion(self._response(await take_async(self._runner, turn)))

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """As `stream_chat`."""
        turn = self._turn(self._asked(prompt, formatted), kwargs)
        responses = self._aresponses(stream_async(self._runner, turn))
        return (to_completion(one) async for one in responses)

    # -- tools --

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        tool_choice: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The arguments of `chat` and its kin for messages that may be answered by calls."""
        if isinstance(user_msg, str):
            user_msg = ChatMessage(role=MessageRole.USER, content=user_msg)
        return {
            "messages": [*(chat_history or ()), *([] if user_msg is None else [user_msg])],
            "tools": to_tools(tools),
            "tool_choice": to_choice(
                tool_choice, is_required=tool_required or only_fill_models(tools)
            ),
            "parallel_tool_calls": allow_parallel_tool_calls,
            **kwargs,
        }

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls that a response makes, or makes so far; NoToolCall where it has none."""
        return select_tools(response, must_call=error_on_no_tool_call)

    def predict_and_call(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> AgentChatResponse:
        """What the tools give that the model calls; unless it may call none, it has to call one."""
        kwargs = _requiring(kwargs)
        return super().predict_and_call(tools, user_msg, chat_history, *args, **kwargs)

    async def apredict_and_call(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> AgentChatResponse:
        """As `predict_and_call`."""
        kwargs = _requiring(kwargs)
        return await super().apredict_and_call(tools, user_msg, chat_history, *args, **kwargs)

    # -- how --

    @property
    def _engine(self) -> Engine:
        if self._given is None:  # it has been unpickled
            self._given = make_engine(self.model, self.base_url, self.api_key)
        engine: Engine = self._given
        return engine

    @property
    def _runner(self) -> Runner:
        return self._engine._service

    @property
    def _name(self) -> str:
        name = self.model or getattr(self._runner, "model_name", None)
        return name or "structspec"

    @property
    def _options(self) -> dict[str, Any]:
        given = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {**given, **self.additional_kwargs}

    def _turn(self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]) -> Turn:
        given = {name: value for name, value in kwargs.items() if value is not None}
        tools = to_tools(given.pop("tools", None))
        choice = to_choice(given.pop("tool_choice", None), is_required=False)
        parallel = given.pop("parallel_tool_calls", None)
        told = read_messages(to_messages(messages, self.system_prompt), "messages")
        may_call = bool(tools) and choice != "none"
        options: Any = heeded(self._options, given, has_tools=may_call)
        return make_turn(self._runner, told, options, tools, choice, parallel=parallel)

    def _asked(self, prompt: str, formatted: bool) -> list[ChatMessage]:
        said = prompt if formatted else self.completion_to_prompt(prompt)
        return [ChatMessage(role=MessageRole.USER, content=said)]

    def _response(self, said: Said) -> ChatResponse:
        return to_response(said, self._name)

    def _responses(self, events: Generator[Any, None, None]) -> ChatResponseGen:
        growing = Growing(self._name)
        with closing(events):  # who leaves the stream cancels its request at once
            for one in events:
                yield growing.end(one) if isinstance(one, Said) else growing.feed(one)

    async def _aresponses(self, events: AsyncGenerator[Any, None]) -> ChatResponseAsyncGen:
        growing = Growing(self._name)
        async with aclosing(events):
            async for one in events:
                yield growing.end(one) if isinstance(one, Said) else growing.feed(one)


def _requiring(kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call that is an error where no tool is called had better call one."""
    is_open = kwargs.get("tool_choice") is None and kwargs.get("error_on_no_tool_call", True)
    return {"tool_required": True, **kwargs} if is_open else kwargs


RECOGNIZED_LLMS[StructSpec.class_name()] = StructSpec  # `load_llm` makes them of dicts again
