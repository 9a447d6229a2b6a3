"""Which server stands behind a URL, found out with the cheapest requests that tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from structspec.client.exchange import UNREACHED, Answer, Ask, Steps, ask
from structspec.errors import InvalidRequest, ServerError

ServerKind = Literal["structspec", "vllm", "old vllm", "sglang", "llama.cpp", "openai", "other"]

_BY_OWNER: dict[str, ServerKind] = {
    "structspec": "structspec",
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
}
_OPENAI = "api.openai.com"
# of its list of models: who could not tell now may do so later, and be another kind than it seems
_SAYS_NOTHING = {UNREACHED, 401, 403, 408, 429}
_FIRST_VLLM = (0, 11)  # that knows structured_outputs; earlier ones ignore it, and know guided_…


@dataclass(frozen=True, slots=True)
class Server:
    """What is served, and by what."""

    kind: ServerKind
    model: str
    base_url: str
    max_model_len: int | None = None  # tokens of prompt and output together, where it says so

    def beside(self, path: str) -> str:
        """A page of the server's own, which stands beside those of OpenAI's API."""
        return _beside(self.base_url, path)


def identify(base_url: str, model: str | None, max_retries: int) -> Steps[Server]:
    """The server at a URL; raises where none answers, or several models are there to choose from.

    Its list of models tells who owns them; where that says nothing, pages that only one kind of
    server has are asked for.
    """
    if urlsplit(base_url).hostname == _OPENAI:
        return Server("openai", _choose(model, []), base_url)
    listed = yield from ask(Ask("GET", "models"), max_retries)
    if listed.status in _SAYS_NOTHING or (listed.status >= 500 and listed.status != 501):
        raise ServerError(_why_not(base_url, listed), status=listed.status or None)
    models = [one for one in listed.object.get("data") or () if isinstance(one, Mapping)]
    owners = {str(one.get("owned_by")) for one in models}
    kind = next((_BY_OWNER[owner] for owner in owners if owner in _BY_OWNER), None)
    if kind is None:
        kind = yield from _look(base_url)
    if kind == "vllm" and (yield from _is_old_vllm(base_url)):
        kind = "old vllm"
    name = _choose(model, [str(one.get("id")) for one in models], _unlisted(base_url, listed))
    lengths = [one.get("max_model_len") for one in models if one.get("id") == name]
    length = next((one for one in lengths if isinstance(one, int)), None)
    return Server(kind, name, base_url, length)


def _look(base_url: str) -> Steps[ServerKind]:
    for path, key, kind in _PAGES:
        if key in (yield from ask(Ask("GET", _beside(base_url, path)))).object:
            return kind
    return "other"


_PAGES: tuple[tuple[str, str, ServerKind], ...] = (
    ("/props", "default_generation_settings", "llama.cpp"),
    ("/get_server_info", "disable_radix_cache", "sglang"),
    ("/get_model_info", "is_generation", "sglang"),
)


def _is_old_vllm(base_url: str) -> Steps[bool]:
    answer = yield from ask(Ask("GET", _beside(base_url, "/version")))
    numbers = str(answer.object.get("version", "")).split(".")[:2]
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):
        return False
    return tuple(map(int, numbers)) < _FIRST_VLLM


def _beside(base_url: str, path: str) -> str:
    return base_url.rstrip("/").removesuffix("/v1") + path


def _choose(model: str | None, served: list[str], unlisted: str = "") -> str:
    if model is not None:
        return model
    if len(served) == 1:
        return served[0]
    names = f"it has {', '.join(served)}" if served else f"it does not say which it has{unlisted}"
    raise InvalidRequest(f"name the server's model with model=: {names}")


def _unlisted(base_url: str, answer: Answer) -> str:
    if answer.is_ok:
        return ""
    return f" (HTTP {answer.status} for {base_url}/models: is the path of base_url right?)"


def _why_not(base_url: str, answer: Answer) -> str:
    match answer.status:
        case 0:
            return f"there is no server at {base_url}: {answer.text}"
        case 401 | 403:
            return f"the server at {base_url} refuses the API key: pass api_key="
    return f"the server at {base_url} does not say what it is now (HTTP {answer.status}): try later"
