"""One call, from options to its validated result, as steps: see `exchange`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structspec.client.answers import StreamReader, read_answer, to_generation
from structspec.client.body import make_body
from structspec.client.exchange import Answer, Ask, Steps, ask
from structspec.client.refusals import to_error
from structspec.client.servers import Server, identify
from structspec.constraint import Tools
from structspec.errors import InvalidRequest, OutputInvalid
from structspec.generation import Generation
from structspec.options import Task
from structspec.policy import resample, sibling
from structspec.prompting import feedback_on
from structspec.prompts import Prompt, to_messages
from structspec.request import NO_USAGE, SamplingParams, Usage

_CHAT = "chat/completions"


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream that has begun: the answer whose bytes are to be read, and what reads them."""

    answer: Answer
    reader: StreamReader


class Calls:
    """Makes the calls to one server, which is asked once what it is; thread-safe.

    Calls that come before that is known ask too: the answer is the same.
    """

    def __init__(self, base_url: str, model: str | None, max_retries: int) -> None:
        self._base_url = base_url
        self._model = model
        self._max_retries = max_retries
        self._server: Server | None = None

    def server(self) -> Steps[Server]:
        """What stands behind the URL."""
        if self._server is None:
            self._server = yield from identify(self._base_url, self._model, self._max_retries)
        return self._server

    def generate(self, prompt: Prompt, task: Task, index: int) -> Steps[Generation]:
        """The output of a prompt with this number; drawn again as often as the task allows."""
        server = yield from self.server()
        sampling = _of_sibling(task.sampling, index)
        spent, attempt = NO_USAGE, 1
        while True:
            try:
                return (yield from self._attempt(server, prompt, task, sampling, attempt, spent))
            except OutputInvalid as error:
                if attempt >= task.max_attempts:
                    raise
                spent = error.usage or spent
                if task.retry_feedback:
                    prompt = [*to_messages(prompt), *feedback_on(error)]
            sampling = _resampled(sampling)
            attempt += 1

    def _attempt(
        self,
        server: Server,
        prompt: Prompt,
        task: Task,
        sampling: Mapping[str, Any],
        attempt: int,
        spent: Usage,
    ) -> Steps[Generation]:
        body, held = make_body(server, prompt, task, sampling, is_streamed=False)
        answer = yield from ask(Ask("POST", _CHAT, body), self._max_retries)
        if not answer.is_ok:
            raise to_error(answer, held)
        return to_generation(read_answer(answer.text), task, held, attempt=attempt, spent=spent)

    def stream(self, prompt: Prompt, task: Task) -> Steps[Opened]:
        """The begin of a streamed answer."""
        if isinstance(task.constraint, Tools):
            raise InvalidRequest("calls of tools come whole from a server: use generate")
        server = yield from self.server()
        body, held = make_body(server, prompt, task, task.sampling, is_streamed=True)
        if held is not None and held.unwrap is not None:
            raise InvalidRequest(
                "this server takes objects only, and what is no object comes in one: use generate"
            )
        request = Ask("POST", _CHAT, body, is_streamed=True)
        answer = yield from ask(request, self._max_retries)
        if not answer.is_ok:
            raise to_error(answer, held)
        return Opened(answer, StreamReader(task, held))


def _of_sibling(sampling: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    """What the output of this number is drawn with, of several of one prompt."""
    if "seed" not in sampling:
        return sampling
    return {**sampling, "seed": sibling(SamplingParams(seed=sampling["seed"]), index).seed}


def _resampled(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """What the next attempt is drawn with; a temperature that was not given is the server's."""
    names = ("temperature", "top_k", "seed")
    given = {name: sampling[name] for name in names if name in sampling}
    again = resample(SamplingParams(**given))
    if "temperature" not in sampling and "top_k" not in sampling and again.seed is None:
        return dict(sampling)
    changed = {"temperature": again.temperature, "seed": again.seed}
    if "top_k" in sampling:
        changed["top_k"] = again.top_k
    return {**sampling, **{name: value for name, value in changed.items() if value is not None}}
