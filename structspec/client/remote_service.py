"""What stands behind Client and AsyncClient: requests that a server answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from structspec.chat.events import MessageEvent
from structspec.choosing import check_choices
from structspec.client.answers import Said, to_generation
from structspec.client.attempt import Attempt
from structspec.client.body import refuse_local
from structspec.client.calls import ask_streamed, ask_whole, of_sibling, resampled
from structspec.client.http import Http
from structspec.client.loops import Loop
from structspec.client.scoring import score
from structspec.client.servers import Server, identify
from structspec.client.settings import ClientSettings
from structspec.constraint import Tools
from structspec.errors import Cancelled, GenerationError, OutputInvalid, PromptTooLong, ServerError
from structspec.generation import Generation
from structspec.hooks import Hook, HookName, Hooks
from structspec.options import GenerateOptions, Task, resolve_options
from structspec.prompting import Message, feedback_on
from structspec.prompts import Prompt, to_messages
from structspec.request import NO_USAGE, Usage
from structspec.runner import Scoring, Told
from structspec.tool_conversation import ToolConversation

Listener = Callable[[Told], None]


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of one request, and all that was told of its message."""

    text: str
    is_last: bool = False
    events: Sequence[MessageEvent] = ()


@dataclass(slots=True, eq=False)
class RemoteRequest:
    """One attempt at a server: what has come of it so far."""

    request_id: int
    arrival_time: float = 0.0
    said: Said = field(default_factory=Said)
    error: Exception | None = None
    cancel: Callable[[], object] | None = None
    compiled: None = None  # by the server, if at all

    @property
    def usage(self) -> Usage:
        """As far as the server has told it."""
        return self.said.usage


@dataclass(frozen=True, slots=True)
class RemotePrepared:
    """A checked request that has not started, and what its result must be."""

    request: RemoteRequest
    attempt: Attempt
    choices: Sequence[str] = ()  # to be scored, where there are any
    num_attempts: int = 1
    spent: Usage = NO_USAGE  # by the attempts before this one
    feedback: tuple[Message, ...] = ()  # on the attempts before, where they are told of it

    @property
    def told(self) -> Attempt:
        """What is asked, with what was wrong before."""
        if not self.feedback:
            return self.attempt
        return replace(self.attempt, prompt=[*to_messages(self.attempt.prompt), *self.feedback])


@dataclass(slots=True)
class _Here:
    """What belongs to one event loop."""

    places: asyncio.Semaphore
    asking: asyncio.Task[Server] | None = None


class RemoteService:
    """A Runner whose requests a server answers, in the event loop that is given."""

    chat_template: str | None = None  # the server's own affair

    def __init__(
        self,
        settings: ClientSettings,
        model: str | None,
        http: Http,
        loop: Loop,
        hooks: Mapping[HookName, Hook] | None = None,
    ) -> None:
        self._settings = settings
        self._model = model
        self._http = http
        self._loop = loop
        self._hooks = Hooks(hooks)
        self._request_ids = itertools.count()
        self._server: Server | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Here] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def model_name(self) -> str | None:
        """The model that is asked; None where the server was not asked yet which it has."""
        return self._model if self._server is None else self._server.model

    def server(self) -> Server:
        """What stands behind the URL, waited for: not to be called in the loop that asks.

        Raises ServerError, and InvalidRequest where it has several models.
        """
        found: Future[Server] = Future()

        async def look() -> None:
            try:
                found.set_result(await self._identified())
            except BaseException as error:
                found.set_exception(error)

        self._loop.spawn(look())
        return found.result()

    def resolve(self, options: GenerateOptions) -> Task:
        """As Runner says; also what no server can be asked for is an InvalidRequest."""
        refuse_local(options)
        return resolve_options(options)

    def prepare(self, prompt: Prompt, task: Task) -> RemotePrepared:
        """As Runner says; what the server cannot do shows once it has started."""
        return self._prepare(to_messages(prompt), task, task.sampling)

    def prepare_all(
        self, prompts: Sequence[Prompt], task: Task, num_outputs: int | None = None
    ) -> list[RemotePrepared]:
        """As Runner says."""
        return [
            self._prepare(to_messages(prompt), task, of_sibling(task.sampling, index))
            for prompt in prompts
            for index in range(num_outputs or 1)
        ]

    def prepare_choices(self, prompt: Prompt, choices: Sequence[str]) -> Scoring:
        """As Runner says."""
        check_choices(choices)
        prepared = replace(self.prepare(prompt, resolve_options({})), choices=tuple(choices))
        return Scoring([prepared], lambda results: results[0].value)

    def prepare_turn(self, conversation: ToolConversation) -> RemotePrepared:
        """As Runner says."""
        prepared = self.prepare(conversation.messages, conversation.task)
        return replace(prepared, attempt=replace(prepared.attempt, reads_calls=True))

    def start(
        self, prepared: RemotePrepared, listener: Listener, *, is_streamed: bool = False
    ) -> None:
        """As Runner says; `listener` is told in the event loop."""
        request = prepared.request
        request.arrival_time = time.perf_counter()
        if self._hooks.wants_text:
            is_streamed |= _may_be_streamed(prepared)
            listener = _telling(listener, self._hooks.teller(request, prepared.num_attempts))
        self._hooks.tell_start(request, prepared.num_attempts)
        request.cancel = self._loop.spawn(self._carry_out(prepared, listener, is_streamed))

    def cancel(self, prepared: RemotePrepared) -> None:
        """As Runner says; its connection is closed, which tells the server."""
        if prepared.request.cancel is not None:
            prepared.request.cancel()

    def finish(self, prepared: RemotePrepared) -> Generation:
        """As Runner says."""
        request = prepared.request
        try:
            if request.error is not None:
                raise _with_output(request.error, request.said, self.usage_of(prepared))
            result = to_generation(
                request.said,
                prepared.attempt.task,
                attempt=prepared.num_attempts,
                spent=prepared.spent,
            )
        except Exception as error:
            self._hooks.tell("done", request, prepared.num_attempts, result=error)
            raise
        self._hooks.tell("done", request, prepared.num_attempts, result=result)
        return result

    def next_attempt(
        self, prepared: RemotePrepared, result: Generation | Exception
    ) -> RemotePrepared | None:
        """As Runner says; what the server itself has drawn again and given up is final."""
        task, request = prepared.attempt.task, RemoteRequest(next(self._request_ids))
        if isinstance(result, PromptTooLong) and prepared.feedback:
            return replace(prepared, request=request, feedback=())  # no room for what is to be told
        is_judged_here = isinstance(result, OutputInvalid) and prepared.request.error is None
        if not is_judged_here or prepared.num_attempts >= task.max_attempts:
            return None
        assert isinstance(result, OutputInvalid) and result.usage is not None
        self._hooks.tell("retry", prepared.request, prepared.num_attempts, result=result)
        told = (*prepared.feedback, *feedback_on(result)) if task.retry_feedback else ()
        if not prepared.request.said.calls:
            task = _told_to_answer(task)
        sampling = resampled(prepared.attempt.sampling)
        return RemotePrepared(
            request,
            replace(prepared.attempt, task=task, sampling=sampling),
            num_attempts=prepared.num_attempts + 1,
            spent=result.usage,
            feedback=told,
        )

    def usage_of(self, prepared: RemotePrepared) -> Usage:
        """As Runner says."""
        return prepared.spent + prepared.request.usage

    def _prepare(self, prompt: Prompt, task: Task, sampling: Mapping[str, Any]) -> RemotePrepared:
        request = RemoteRequest(next(self._request_ids))
        return RemotePrepared(request, Attempt(prompt, task, sampling))

    async def _carry_out(
        self, prepared: RemotePrepared, listener: Listener, is_streamed: bool
    ) -> None:
        """Have the server answer; what goes wrong is on the request."""
        request = prepared.request
        try:
            async with self._here().places:
                await self._answer(prepared, listener, is_streamed)
        except asyncio.CancelledError:
            request.error = Cancelled("the request was cancelled")
            raise
        except Exception as error:
            request.error = error
        finally:
            listener(Piece("", is_last=True))

    async def _answer(
        self, prepared: RemotePrepared, listener: Listener, is_streamed: bool
    ) -> None:
        request, retries = prepared.request, self._settings.max_retries
        server = await self._identified()
        if prepared.choices:
            steps = score(server, prepared.attempt.prompt, prepared.choices, retries)
            request.said = await self._http.carry_out(steps)
        elif is_streamed:
            opened = await self._http.carry_out(ask_streamed(server, prepared.told, retries))
            answer, reader = opened
            request.said = reader.said
            async with contextlib.aclosing(self._http.read(answer)) as parts:
                async for part in parts:
                    listener(Piece(reader.feed(part), events=reader.take_events()))
            listener(Piece(reader.finish(), events=reader.take_events()))
        else:
            request.said = await self._http.carry_out(ask_whole(server, prepared.told, retries))

    async def _identified(self) -> Server:
        """What stands behind the URL: asked once, however many wait for it."""
        if self._server is None:
            here = self._here()
            if here.asking is None or here.asking.done():
                settings = self._settings
                steps = identify(settings.base_url, self._model, settings.max_retries)
                here.asking = asyncio.ensure_future(self._http.carry_out(steps))
                here.asking.add_done_callback(_look)
            self._server = await asyncio.shield(here.asking)
        return self._server

    def _here(self) -> _Here:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _Here(asyncio.Semaphore(self._settings.max_concurrency))
        return self._loops[loop]


def _may_be_streamed(prepared: RemotePrepared) -> bool:
    task = prepared.attempt.task
    is_whole = isinstance(task.constraint, Tools) or "prompt_logprobs" in task.sampling
    return not is_whole and not prepared.choices


def _look(asking: asyncio.Task[Server]) -> None:
    """Where all who waited have gone, nobody else would look at what went wrong."""
    if not asking.cancelled():
        asking.exception()


def _told_to_answer(task: Task) -> Task:
    """What has answered instead of calling a tool, and wrongly, is held to its schema alone."""
    tools = task.constraint
    if not isinstance(tools, Tools) or tools.response is None or tools.choice != "auto":
        return task
    return replace(task, constraint=replace(tools, choice="none"))


def _telling(listener: Listener, tell: Callable[[str], None]) -> Listener:
    """A listener that also tells somebody else of each piece of the text."""

    def listen(news: Told) -> None:
        if news.text:
            tell(news.text)
        listener(news)

    return listen


def _with_output(error: Exception, said: Said, usage: Usage) -> Exception:
    """The same error with what was said before it, and what all attempts have used."""
    if isinstance(error, GenerationError | ServerError):
        error.text = error.text or said.text
        error.usage = usage
    return error
