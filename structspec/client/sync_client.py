"""Client: the calls of LLM, answered by a server elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from structspec.client.body import refuse_local
from structspec.client.calls import Calls
from structspec.client.exchange import UNREACHED, Answer, Ask, Steps
from structspec.client.settings import ClientSettings, load_httpx
from structspec.errors import ServerError
from structspec.generation import Generation
from structspec.options import GenerateOptions, OtherOptions, Task, check_n, resolve_options
from structspec.prompts import Prompt, Prompts, split_prompts
from structspec.results import OnResult, Result, all_or_raise, arranged

T = TypeVar("T")
V = TypeVar("V")


class Client:
    """The calls of LLM over a server with OpenAI's chat completions; thread-safe.

    The server is asked once what it is: structspec itself, vLLM (≥ 0.11), SGLang, llama.cpp,
    OpenAI, or something else. Constraints are sent as it knows them, and finished output is
    validated whatever it promises. `on_unsupported` says what becomes of a constraint it has no
    words for. Without a `model` it must serve a single one. `timeout_s` is how long to wait for
    more of an answer; what may pass is tried again up to `max_retries` times. Prompts of a list are
    sent side by side, `max_concurrency` at a time.

    Errors are those of LLM, and ServerError where the server cannot be reached or fails.
    """

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
        self._http = http_client or self._httpx.Client(
            timeout=self._httpx.Timeout(timeout_s, connect=10.0),
            limits=self._httpx.Limits(max_connections=max_concurrency),
        )

    @overload
    def generate(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> T: ...
    @overload
    def generate(
        self, prompt: str, *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any: ...
    def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any:
        """As LLM.generate."""
        results, is_batch = self._run(prompt, options, None, n)
        return arranged([one.value for one in all_or_raise(results)], n, is_batch=is_batch)

    def generate_raw(
        self,
        prompt: Prompts,
        *,
        n: int | None = None,
        on_result: OnResult | None = None,
        return_errors: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Any:
        """As LLM.generate_raw; `token_ids` and `report` are empty, the server keeps them."""
        results, is_batch = self._run(prompt, options, on_result, n)
        if not return_errors:
            all_or_raise(results)
        return arranged(results, n, is_batch=is_batch)

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Iterator[str]:
        """As LLM.stream; the request is sent when the first piece is asked for."""
        refuse_local(options)
        return self._pieces(prompt, resolve_options(options))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(
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
        self._carry_out(self._calls.server())  # before many would ask at once

        def run(job: tuple[Prompt, int]) -> Generation:
            return self._carry_out(self._calls.generate(job[0], task, job[1]))

        results = _all(run, jobs, self._settings.max_concurrency, on_result)
        return results, is_batch

    def _pieces(self, prompt: Prompt, task: Task) -> Iterator[str]:
        opened = self._carry_out(self._calls.stream(prompt, task))
        try:
            for part in opened.answer.stream.iter_bytes():
                if piece := opened.reader.feed(part):
                    yield piece
        except self._httpx.TransportError as error:
            raise ServerError(f"the server's stream broke off: {error!r}") from error
        finally:
            opened.answer.stream.close()
        opened.reader.finish()

    def _carry_out(self, steps: Steps[V]) -> V:
        answer: Answer | None = None
        try:
            while True:
                step = steps.send(answer)
                if isinstance(step, Ask):
                    answer = self._ask(step)
                else:
                    answer = None
                    time.sleep(step.seconds)
        except StopIteration as done:
            value: V = done.value
            return value

    def _ask(self, request: Ask) -> Answer:
        sent = self._http.build_request(
            request.method,
            self._settings.url(request.path),
            json=request.body,
            headers=self._settings.headers,
        )
        try:
            response = self._http.send(sent, stream=request.is_streamed)
            is_left = request.is_streamed and response.is_success
            if request.is_streamed and not is_left:
                response.read()
                response.close()
        except self._httpx.TransportError as error:
            return Answer(UNREACHED, repr(error))
        text = "" if is_left else response.text
        return Answer(response.status_code, text, response.headers, response if is_left else None)


def _all(
    run: Callable[[T], Generation],
    jobs: Sequence[T],
    max_concurrency: int,
    on_result: OnResult | None,
) -> list[Result]:
    """The result or the error of each job, in their order; told as they come."""
    if not jobs:
        return []
    results: dict[int, Result] = {}
    with ThreadPoolExecutor(min(len(jobs), max_concurrency)) as threads:
        index_of: dict[Future[Generation], int] = {
            threads.submit(run, job): index for index, job in enumerate(jobs)
        }
        try:
            for done in as_completed(index_of):
                index = index_of[done]
                results[index] = _result_of(done)
                if on_result is not None:
                    on_result(index, results[index])
        except BaseException:  # also KeyboardInterrupt: nobody waits for what has not begun
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[index] for index in range(len(jobs))]


def _result_of(done: Future[Generation]) -> Result:
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, Exception):
        return error
    raise error
