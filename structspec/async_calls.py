"""The calls of AsyncLLM and AsyncClient: those of Calls, awaited."""

# As in structspec.calls: where both overloads fit, the first, for one prompt, is meant.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

from structspec.async_streams import AsyncStreams
from structspec.batch_rows import DEFAULT_MAX_IN_FLIGHT, Batch, values_of
from structspec.call_run import CallRun, prepare_rows
from structspec.choosing import Chosen
from structspec.event_loop import in_event_loop
from structspec.generation import Generation
from structspec.options import GenerateOptions, OtherOptions, check_n
from structspec.prompts import Prompt, Prompts, split_prompts
from structspec.results import OnResult, Result, all_or_raise, arranged
from structspec.tool_conversation import DEFAULT_MAX_ROUNDS, ToolConversation, ToolRun

T = TypeVar("T")


class AsyncCalls(AsyncStreams):
    """Everything that may be asked of a model, awaited. Cancelling a task cancels its requests."""

    @overload
    async def generate(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> T: ...
    @overload
    async def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    async def generate(
        self, prompt: Prompt, *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> str: ...
    @overload
    async def generate(
        self, prompt: Sequence[Prompt], *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    async def generate(
        self, prompt: Prompt, *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    async def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[list[T]]: ...
    @overload
    async def generate(
        self, prompt: Prompt, *, schema: None = None, n: int, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    async def generate(
        self,
        prompt: Sequence[Prompt],
        *,
        schema: None = None,
        n: int,
        **options: Unpack[OtherOptions],
    ) -> list[list[str]]: ...
    @overload
    async def generate(
        self, prompt: Prompts, *, schema: Any, n: int | None = None, **options: Unpack[OtherOptions]
    ) -> Any: ...
    async def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any:
        """As LLM.generate."""
        check_n(n)
        task = self._service.resolve(options)
        prompts, is_batch = split_prompts(prompt)
        results = all_or_raise(await self._run(self._service.prepare_all(prompts, task, n)))
        return arranged([one.value for one in results], n, is_batch=is_batch)

    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Generation: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> Result: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation]]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Result]]: ...
    async def generate_raw(
        self,
        prompt: Prompts,
        *,
        n: int | None = None,
        on_result: OnResult | None = None,
        return_errors: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Any:
        """As LLM.generate_raw; `on_result` is called in the event loop."""
        check_n(n)
        task = self._service.resolve(options)
        prompts, is_batch = split_prompts(prompt)
        if return_errors:
            rows = prepare_rows(self._service, prompts, task, n)
            return arranged(await self._run(rows, on_result), n, is_batch=is_batch)
        results = await self._run(self._service.prepare_all(prompts, task, n), on_result)
        return arranged(all_or_raise(results), n, is_batch=is_batch)

    async def choose(self, prompt: Prompt, choices: Sequence[str]) -> Chosen:
        """As LLM.choose."""
        scoring = self._service.prepare_choices(prompt, choices)
        return scoring.compare(all_or_raise(await self._run(scoring.prepared)))

    @overload
    async def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        schema: type[T],
        return_errors: Literal[False] = False,
        on_result: OnResult | None = None,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: bool | None = None,
        **options: Unpack[OtherOptions],
    ) -> list[T]: ...
    @overload
    async def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        schema: Any = None,
        return_errors: bool = False,
        on_result: OnResult | None = None,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: bool | None = None,
        **options: Unpack[OtherOptions],
    ) -> list[Any]: ...
    async def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        return_errors: bool = False,
        on_result: OnResult | None = None,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: bool | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Any]:
        """As LLM.generate_batch; `on_result` is called in the event loop."""
        batch = Batch(prompts, on_result, max_in_flight, progress)
        rows = prepare_rows(self._service, batch.prompts, self._service.resolve(options))
        with batch.shown() as told:
            results = await self._run(
                rows, told, max_in_flight=max_in_flight, raises=not return_errors
            )
        return values_of(results)

    async def run_tools(
        self,
        prompt: Prompt,
        tools: Sequence[Callable[..., Any]],
        *,
        tool_choice: str = "auto",
        parallel: bool = True,
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        **options: Unpack[GenerateOptions],
    ) -> ToolRun:
        """As LLM.run_tools; the calls of one round run together, plain functions on threads."""
        template = self._service.chat_template
        conversation = ToolConversation(
            prompt, tools, template, options, max_rounds, tool_choice, parallel
        )
        while not conversation.is_over:
            [result] = await self._run([self._service.prepare_turn(conversation)])
            calls = conversation.take(result)
            told = await asyncio.gather(*(call.tool.run_async(call.arguments) for call in calls))
            for call, text in zip(calls, told, strict=True):
                conversation.answer(call, text)
        return conversation.result

    async def _run(
        self,
        prepared: Iterable[Any],
        on_result: OnResult | None = None,
        *,
        max_in_flight: int | None = None,
        raises: bool = False,
    ) -> list[Result]:
        finished: asyncio.Queue[int] = asyncio.Queue()
        with CallRun(
            self._service,
            prepared,
            in_event_loop(finished.put_nowait),
            on_result=on_result,
            max_in_flight=max_in_flight,
            raises=raises,
        ) as run:
            while run.is_running:
                run.take(await finished.get())
        return run.results
