"""One attempt at an output, from options to what the server said, as steps: see `exchange`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structspec.client.answers import Said, StreamReader, read_completion
from structspec.client.attempt import Attempt
from structspec.client.body import make_body
from structspec.client.exchange import Answer, Ask, Steps, ask
from structspec.client.holding import unwrapped
from structspec.client.refusals import to_error
from structspec.client.servers import Server
from structspec.constraint import Tools
from structspec.errors import InvalidRequest
from structspec.policy import resample, sibling
from structspec.request import SamplingParams

_CHAT = "chat/completions"


def ask_whole(server: Server, attempt: Attempt, max_retries: int) -> Steps[Said]:
    """All that the server says to it."""
    body, held = make_body(server, attempt, is_streamed=False)
    answer = yield from ask(Ask("POST", _CHAT, body), max_retries)
    if not answer.is_ok:
        raise to_error(answer, held)
    said = read_completion(answer.text)
    said.text = unwrapped(held, said.text)
    return said


def ask_streamed(
    server: Server, attempt: Attempt, max_retries: int
) -> Steps[tuple[Answer, StreamReader]]:
    """The begin of a streamed answer, whose bytes are to be read, and what reads them."""
    if isinstance(attempt.task.constraint, Tools) and not attempt.reads_calls:
        raise InvalidRequest("calls of tools come whole from a server: use generate")
    body, held = make_body(server, attempt, is_streamed=True)
    answer = yield from ask(Ask("POST", _CHAT, body, is_streamed=True), max_retries)
    if not answer.is_ok:
        raise to_error(answer, held)
    return answer, StreamReader(held)


def of_sibling(sampling: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    """What the output of this number is drawn with, of several of one prompt."""
    if "seed" not in sampling:
        return sampling
    return {**sampling, "seed": sibling(SamplingParams(seed=sampling["seed"]), index).seed}


def resampled(sampling: Mapping[str, Any]) -> dict[str, Any]:
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
