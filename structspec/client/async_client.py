"""AsyncClient: Client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from structspec.client.body import refuse_local
from structspec.client.calls import Calls
from structspec.client.exchange import UNREACHED, Answer, Ask, Steps
from structspec.client.settings import ClientSettings, load_httpx
from structspec.errors import ServerError
from structspec.options import GenerateOptions, OtherOptions, check_n, resolve_options
from structspec.prompts import Prompt, Prompts, split_prompts
from structspec.results import OnResult, Result, all_or_raise, arranged

T = TypeVar("T")
V = TypeVar("V")


class AsyncClient:
    """Client for asyncio: the same calls, awaited. Cancelling a task closes its connections."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        model: str | None = None,
        *,
        timeout_s: float = 600.0,
        max_retries: int = 2,
        max_concurrency: int = 64,
        http_client: Any = None,
    ) -> None:
        self._httpx = load_httpx()
        self._settings = ClientSettings(base_url, api_key, timeout_s, max_retries, max_concurrency)
        self._calls = Calls(self._settings.base_url, model, max_retries)
        self._http = http_client or self._httpx.AsyncClient(
            timeout=self._httpx.Timeout(timeout_s, connect=10.0),
            limits=self._httpx.Limits(max_connections=max_concurrency),
        )

    @overload
    async def generate(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> T: ...
    @overload
    async def generate(
        self, prompt: str, *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> str: ...
    @overload
    async def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any: ...
    async def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any:
        """As LLM.generate."""
        results, is_batch = await self._run(prompt, options, None, n)
        return arranged([one.value for one in all_or_raise(results)], n, is_batch=is_batch)

    async def generate_raw(
        self,
        prompt: Prompts,
        *,
        n: int | None = None,
        on_result: OnResult | None = None,
        return_errors: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Any:
        """As Client.generate_raw; `on_result` is called in the event loop."""
        results, is_batch = await self._run(prompt, options, on_result, n)
        if not return_errors:
            all_or_raise(results)
        return arranged(results, n, is_batch=is_batch)

    async def stream(
        self, prompt: Prompt, **options: Unpack[GenerateOptions]
    ) -> AsyncIterator[str]:
        """As Client.stream."""
        refuse_local(options)
        opened = await self._carry_out(self._calls.stream(prompt, resolve_options(options)))
        try:
            async for part in opened.answer.stream.aiter_bytes():
                if piece := opened.reader.feed(part):
                    yield piece
        except self._httpx.TransportError as error:
            raise ServerError(f"the server's stream broke off: {error!r}") from error
        finally:
            await opened.answer.stream.aclose()
        opened.reader.finish()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(
        self,
        given: Prompts,
        options: GenerateOptions,
        on_result: OnResult | None,
        n: int | None,
    ) -> tuple[list[Result], bool]:
        check_n(n)
        refuse_local(options)
        task = resolve_options(options)
        prompts, is_batch = split_prompts(given)
        jobs = [(prompt, index) for prompt in prompts for index in range(n or 1)]
        await self._carry_out(self._calls.server())  # before many would ask at once
        places = asyncio.Semaphore(self._settings.max_concurrency)
        results: dict[int, Result] = {}

        async def run(place: int, prompt: Prompt, index: int) -> None:
            async with places:
                try:
                    results[place] = await self._carry_out(
                        self._calls.generate(prompt, task, index)
                    )
                except Exception as error:
                    results[place] = error
            if on_result is not None:
                on_result(place, results[place])

        tasks = [asyncio.create_task(run(place, *job)) for place, job in enumerate(jobs)]
        try:
            await asyncio.gather(*tasks)
        except BaseException:  # also CancelledError: nobody will read what still runs
            for one in tasks:
                one.cancel()
            raise
        return [results[place] for place in range(len(jobs))], is_batch

    async def _carry_out(self, steps: Steps[V]) -> V:
        answer: Answer | None = None
        try:
            while True:
                step = steps.send(answer)
                if isinstance(step, Ask):
                    answer = await self._ask(step)
                else:
                    answer = None
                    await asyncio.sleep(step.seconds)
        except StopIteration as done:
            value: V = done.value
            return value

    async def _ask(self, request: Ask) -> Answer:
        sent = self._http.build_request(
            request.method,
            self._settings.url(request.path),
            json=request.body,
            headers=self._settings.headers,
        )
        try:
            response = await self._http.send(sent, stream=request.is_streamed)
            is_left = request.is_streamed and response.is_success
            if request.is_streamed and not is_left:
                await response.aread()
                await response.aclose()
        except self._httpx.TransportError as error:
            return Answer(UNREACHED, repr(error))
        text = "" if is_left else response.text
        return Answer(response.status_code, text, response.headers, response if is_left else None)
