"""ChatStructSpec: structspec as a chat model of LangChain.

from structspec.integrations.langchain import ChatStructSpec

model = ChatStructSpec(model="smollm2-135m")
person = model.with_structured_output(Person).invoke("Ada Lovelace, born in 1815")
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import get_config_list, run_in_executor
from langchain_core.tools import BaseTool
from langchain_core.utils import from_env, secret_from_env
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, model_validator

from structspec.chat.engines import Engine, check_engine, model_of
from structspec.chat.messages import read_messages
from structspec.chat.turns import make_turn
from structspec.config import EngineConfig
from structspec.errors import InvalidRequest
from structspec.integrations.langchain_call import Call, read_wanted
from structspec.integrations.langchain_engine import Engines, EngineSettings
from structspec.integrations.langchain_messages import PROVIDER, to_openai
from structspec.integrations.langchain_options import CallOptions, read_choice, refuse_unknown
from structspec.integrations.langchain_structured import (
    METHODS,
    Method,
    StructuredOutputParser,
    asked_by,
    for_tracing,
    read_schema,
    with_raw,
)
from structspec.models.loading import DType
from structspec.runner import Runner
from structspec.service import Service
from structspec.tool_prompt import has_tools

_MAX_THREADS = 512  # of a batch: they only wait, for the engine writes what comes together at once
_OWN = (  # what a call may be given beside options of `generate`
    *("model", "tools", "tool_choice", "parallel_tool_calls", "strict"),
    *("response_format", "output_type", "failure"),
)


class ChatStructSpec(BaseChatModel, CallOptions):
    """A chat model whose output is what you ask for: valid, exact, and fast; thread-safe.

    `model` is loaded in this process when it is first needed, once for all objects that name it;
    `engine` is an LLM, AsyncLLM or Client that is there already; with `base_url` a server is asked,
    whichever of OpenAI's kind. `timeout`, `max_retries` and `api_key` are about that server.
    All other fields are options of `generate`, and so may be those of single calls:
    `model.invoke(messages, temperature=0.7, regex="[0-9]+")`.
    """

    model: str | None = Field(default=None, alias="model_name")
    engine: Engine | None = Field(default=None, exclude=True, repr=False)
    base_url: str | None = Field(default_factory=from_env("STRUCTSPEC_BASE_URL", default=None))
    api_key: SecretStr | None = Field(
        default_factory=secret_from_env("STRUCTSPEC_API_KEY", default=None)
    )
    timeout: float | None = None
    max_retries: int | None = None
    dtype: DType = "auto"
    device: str = "auto"
    engine_config: EngineConfig | None = None
    streaming: bool = False

    _engines: Engines = PrivateAttr(default_factory=Engines)

    model_config = ConfigDict(
        populate_by_name=True, arbitrary_types_allowed=True, protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _read_fields(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        aliases = (field.alias for field in cls.model_fields.values() if field.alias)
        refuse_unknown(given, {*cls.model_fields, *aliases})
        engine = given.get("engine")
        if engine is None:
            return given
        if given.get("base_url"):
            raise InvalidRequest("engine= and base_url= contradict each other; pass one")
        asked = given.get("model") or given.get("model_name")
        runs = model_of(check_engine(engine, asked))
        rest = {name: value for name, value in given.items() if name != "model_name"}
        return {**rest, "model": runs or asked, "base_url": None}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> ChatStructSpec:
        """An object of its own over the same engine."""
        memo = {} if memo is None else memo
        memo[id(self.engine)] = self.engine
        copied: ChatStructSpec = super().__deepcopy__(memo)
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        """What pickle stores; raises InvalidRequest where an engine cannot be found again."""
        if self.engine is not None:
            raise InvalidRequest(
                "an engine cannot be pickled: leave engine= out and name a model= or base_url=,"
                " which copies find again"
            )
        return super().__getstate__()

    @property
    def _llm_type(self) -> str:
        return PROVIDER

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """All that answers hang on: caches know calls by it."""
        names = ("model", "base_url", "dtype", "device", "engine_config")
        where = {name: getattr(self, name) for name in names}
        return {**where, **self.options({}, None, is_all=True)}

    def _resolve_model_profile(self) -> ModelProfile:
        profile = ModelProfile(
            text_inputs=True,
            text_outputs=True,
            image_inputs=False,
            audio_inputs=False,
            video_inputs=False,
            tool_calling=True,
            tool_choice=True,
            tool_call_streaming=True,
            structured_output=True,
            temperature=True,
            open_weights=True,
        )
        if self.model is not None:
            profile["name"] = self.model
        if (service := self._engines.local(self._settings)) is not None:
            profile["max_input_tokens"] = service.max_model_len
        return profile

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        told = super()._get_ls_params(stop=stop, **kwargs)
        told["ls_provider"] = PROVIDER
        told.setdefault("ls_model_name", self.base_url or "")
        if stops := self.options({}, stop, is_all=True).get("stop"):
            told["ls_stop"] = [stops] if isinstance(stops, str) else stops
        return told

    @property
    def _settings(self) -> EngineSettings:
        return EngineSettings(
            self.engine,
            self.model,
            self.base_url,
            self.api_key.get_secret_value() if self.api_key else None,
            self.timeout,
            self.max_retries,
            self.dtype,
            self.device,
            self.engine_config,
        )

    def _runner(self, model: str | None = None) -> Runner:
        runner = self._engines.runner(self._settings, model)
        service = self._engines.local(self._settings)
        if service is not None and self.profile is not None:
            self.profile.setdefault("max_input_tokens", service.max_model_len)
        return runner

    def get_token_ids(self, text: str) -> list[int]:
        """The model's own tokens of a text; a server's are asked of `custom_get_token_ids`."""
        if self.custom_get_token_ids is not None:
            return [*self.custom_get_token_ids(text)]
        runner = self._runner()
        if not isinstance(runner, Service):
            raise InvalidRequest(
                "a server keeps its tokenizer to itself; pass custom_get_token_ids= to count with"
            )
        return runner.tokenizer.encode(text)

    def get_num_tokens_from_messages(
        self, messages: Sequence[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """How many tokens a prompt of these messages and tools has, the chat template's own too."""
        runner = self._runner()
        if not isinstance(runner, Service):
            return int(super().get_num_tokens_from_messages([*messages], tools))
        told = [convert_to_openai_tool(tool) for tool in tools or ()]
        turn = make_turn(runner, read_messages(to_openai(messages), "messages"), {}, told)
        return len(runner.tokenizer.encode_chat(*turn.prompt))

    def _call(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, given: dict[str, Any]
    ) -> Call:
        """A call, checked; raises InvalidRequest and GrammarError."""
        own = {name: given.pop(name, None) for name in _OWN}
        runner = self._runner(own["model"])
        tools = [convert_to_openai_tool(tool) for tool in own["tools"] or ()]
        choice = read_choice(own["tool_choice"], tools)
        wanted = read_wanted(given, own["response_format"], own["output_type"])
        may_call = bool(tools) and choice != "none"
        options: Any = self.options({**given, **wanted}, stop, has_tools=may_call)
        told = read_messages(to_openai(messages), "messages")
        parallel = own["parallel_tool_calls"]
        if parallel is None and isinstance(runner, Service) and not has_tools(runner.chat_template):
            parallel = False  # a model that was never taught calls does not know when to end them
        turn = make_turn(runner, told, options, tools, choice, parallel=parallel)
        return Call(runner, turn, own["model"] or self.model, own["failure"] == "message")

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._call(messages, stop, kwargs).run()

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = await run_in_executor(None, self._call, messages, stop, kwargs)
        return await call.arun()

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = self._call(messages, stop, kwargs)
        with contextlib.closing(call.stream()) as chunks:
            for chunk in chunks:
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = await run_in_executor(None, self._call, messages, stop, kwargs)
        async with contextlib.aclosing(call.astream()) as chunks:
            async for chunk in chunks:
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """As Runnable.batch; without a `max_concurrency` the engine has all prompts together."""
        together = {"max_concurrency": min(max(1, len(inputs)), _MAX_THREADS)}
        configs = [
            {**together, **{key: value for key, value in one.items() if value is not None}}
            for one in get_config_list(config, len(inputs))
        ]
        return [*super().batch(inputs, configs, return_exceptions=return_exceptions, **kwargs)]

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """A model that may call these tools: functions, tools, models, TypedDicts or dicts.

        `tool_choice` is "auto", "none", "any" or "required" or True (a call it must be), a tool's
        name, or one of OpenAI's dicts. Calls conform to their schemas whatever `strict` says; True
        has schemas rewritten as OpenAI's strict mode wants them. Without `parallel_tool_calls` a
        model of this process whose chat template has no tools makes one call at most.
        """
        told = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        given = {"tool_choice": read_choice(tool_choice, told)}
        given["parallel_tool_calls"] = parallel_tool_calls
        given = {name: value for name, value in given.items() if value is not None}
        return self.bind(tools=told, **given, **kwargs)

    def with_structured_output(
        self,
        schema: Any = None,
        *,
        method: Method = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        stream_partial: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """A model whose output is a value of `schema`, always.

        That is a pydantic model (also of pydantic 1), a TypedDict, a JSON schema or tool as a dict,
        or any other type that pydantic.TypeAdapter takes; of TypedDicts and dicts values are dicts.
        `method` says how the model is asked: by an answer ("json_schema"), by a call of a tool
        ("function_calling"), or by nothing but your prompt, which should say what it wants
        ("json_mode"; here `schema` may be left out for any JSON object). All three are enforced.

        With `include_raw` the value is {"raw": message, "parsed": value or None, "parsing_error":
        None or what was wrong with the output}. Streams give dicts as they grow, other values when
        they are whole; with `stream_partial` typed partial ones before (structspec's PartialValues
        says what these are), and with False whole ones alone. Further arguments are options of the
        calls, as `max_attempts=5`.
        """
        if method not in METHODS:
            raise InvalidRequest(f"method must be one of {', '.join(METHODS)}, not {method!r}")
        if schema is None and method != "json_mode":
            raise InvalidRequest(f"method={method!r} needs a schema; json_mode alone goes without")
        target = read_schema({"type": "object"} if schema is None else schema)
        told = {"method": method} if strict is None else {"method": method, "strict": strict}
        tracing = {"kwargs": told, "schema": for_tracing(schema, target)}
        bound = self.bind(
            **asked_by(method, target, is_any=schema is None),
            ls_structured_output_format=tracing,
            **({"failure": "message"} if include_raw else {}),
            **kwargs,
        )
        is_partial = target.is_plain if stream_partial is None else stream_partial
        parser = StructuredOutputParser(
            target=target, is_call=method == "function_calling", is_partial=is_partial
        )
        return with_raw(bound, parser) if include_raw else bound | parser
