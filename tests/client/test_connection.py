"""Finding out what a server is, and what is done about its errors."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from structspec import (
    Client,
    CompileTimeout,
    GrammarError,
    InvalidRequest,
    NothingAllowed,
    OutputInvalid,
    PromptTooLong,
    ServerError,
    StructspecError,
)
from structspec.client.exchange import Answer, Ask, Wait, ask
from structspec.client.servers import identify
from tests.client.fakes import BASE, PAGES, Connect, Fake

ASK = Ask("POST", "chat/completions", {})


def carry_out(steps: Any, *answers: Answer) -> tuple[Any, list[Any]]:
    """What steps come to when they are answered so, and the steps themselves."""
    waiting, taken = [*answers], []
    answer = None
    try:
        while True:
            step = steps.send(answer)
            taken.append(step)
            answer = waiting.pop(0) if isinstance(step, Ask) else None
    except StopIteration as done:
        return done.value, taken


def found_kind(pages: dict[str, Any]) -> str:
    fake = Fake("", pages=pages)
    steps, answer = identify(BASE, None, 0), None
    try:
        while True:
            step = steps.send(answer)
            url = step.path if "://" in step.path else f"{BASE}/{step.path}"
            response = fake.answer(httpx2.Request("GET", url))
            answer = Answer(response.status_code, response.text)
    except StopIteration as done:
        assert done.value.model == "toy"
        return str(done.value.kind)


@pytest.mark.parametrize("kind", list(PAGES))
def test_a_server_is_known_by_who_owns_its_models(kind: str) -> None:
    assert found_kind(PAGES[kind]) == kind


@pytest.mark.parametrize(
    ("pages", "kind"),
    [
        ({"/props": {"default_generation_settings": {}}}, "llama.cpp"),
        ({"/get_server_info": {"disable_radix_cache": False}}, "sglang"),
        ({}, "other"),
    ],
)
def test_a_server_whose_models_say_nothing_is_known_by_its_pages(
    pages: dict[str, Any], kind: str
) -> None:
    assert found_kind({"/v1/models": "somebody", **pages}) == kind


def test_a_vllm_that_would_ignore_its_newer_fields_is_known_as_such() -> None:
    for version, kind in (("0.10.2", "old vllm"), ("0.11.0", "vllm"), ("dev", "vllm")):
        pages = {"/v1/models": "vllm", "/version": {"version": version}}
        assert found_kind(pages) == kind


def test_a_server_is_asked_once_what_it_is(connect: Connect) -> None:
    fake = Fake("vllm")
    client = connect(fake)
    client.generate("a")
    client.generate("b")
    assert fake.asked.count("/v1/models") == 1
    assert [body["model"] for body in fake.bodies] == ["toy", "toy"]


def test_of_several_models_one_must_be_named(connect: Connect) -> None:
    models = {"data": [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "vllm"}]}
    fake = Fake("", pages={"/v1/models": models})
    with pytest.raises(InvalidRequest, match="it has a, b"):
        connect(fake).generate("?")
    connect(fake, model="b").generate("?")
    assert fake.body["model"] == "b"


def test_a_key_is_sent_with_every_request(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake("vllm")
    connect(fake, api_key="secret").generate("?")
    assert {headers["authorization"] for headers in fake.headers} == {"Bearer secret"}
    fake = Fake("vllm")
    monkeypatch.setenv("STRUCTSPEC_API_KEY", "of the environment")
    connect(fake).generate("?")
    assert {headers["authorization"] for headers in fake.headers} == {"Bearer of the environment"}


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="base_url"):
        Client(url)


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_a_url_without_a_path_means_v1(url: str) -> None:
    with Client(url) as client:
        assert client._service._settings.url("models") == "http://h:1/v1/models"


def failing(status: int, **error: Any) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"message": "no", "param": None, "code": None, **error}}


SCHEMA = "response_format.json_schema.schema"
REFUSALS: dict[str, tuple[tuple[int, dict[str, Any]], type[StructspecError]]] = {
    "a field": (failing(400, param="temperature"), InvalidRequest),
    "the prompt": (failing(400, code="context_length_exceeded"), PromptTooLong),
    "vLLM's prompt": (
        (400, {"object": "error", "message": "This model's maximum context length is 5"}),
        PromptTooLong,
    ),
    "the schema": (failing(400, code="invalid_json_schema", param=SCHEMA), GrammarError),
    "the schema's size": (failing(400, code="schema_too_complex"), CompileTimeout),
    "the limits": (failing(400, code="nothing_allowed"), NothingAllowed),
    "the output": (failing(422, code="output_invalid"), OutputInvalid),
    "the model": (failing(404, code="model_not_found"), InvalidRequest),
    "the path": ((404, {"detail": "Not Found"}), ServerError),
    "the key": (failing(401), ServerError),
    "the queue": (failing(429), ServerError),
    "a fault": (failing(500), ServerError),
    "no body": ((502, None), ServerError),
}


@pytest.mark.parametrize("case", list(REFUSALS))
def test_a_refusal_has_our_type(case: str, connect: Connect) -> None:
    said, kind = REFUSALS[case]
    with pytest.raises(kind) as caught:
        connect(Fake("vllm", said)).generate("?", schema={"type": "object"}, max_attempts=1)
    assert type(caught.value) is kind


def test_a_fault_of_a_schema_is_told_by_its_pointer(connect: Connect) -> None:
    place = f"{SCHEMA}.properties.a/b.items[0]"
    said = failing(400, code="invalid_json_schema", param=place, message="bad")
    with pytest.raises(GrammarError) as caught:
        connect(Fake("structspec", said)).generate("?", schema={"type": "object"})
    assert caught.value.pointer == "#/properties/a~1b/items/0"


def test_an_answer_that_is_none_is_a_server_error(connect: Connect) -> None:
    for body in ({}, {"choices": []}, {"choices": [{"message": None}]}, []):
        with pytest.raises(ServerError, match="no chat completion"):
            connect(Fake("vllm", (200, body))).generate("?")


def test_what_passes_is_tried_again(connect: Connect) -> None:
    gone = httpx2.ConnectError("gone")
    for first in (failing(503), failing(429), gone, httpx2.ReadTimeout("slow")):
        fake = Fake("vllm", first, "hello")
        assert connect(fake).generate("?") == "hello"
        assert len(fake.bodies) == 2


def test_what_does_not_pass_is_an_error_after_so_many_retries(connect: Connect) -> None:
    fake = Fake("vllm", httpx2.ConnectError("gone"))
    with pytest.raises(ServerError, match="gone"):
        connect(fake, max_retries=3).generate("?")
    assert len(fake.bodies) == 4


def test_what_would_fail_again_is_not_tried_again() -> None:
    for answer in (
        Answer(400),
        Answer(422),
        Answer(503, headers={"x-should-retry": "false"}),
        Answer(429, headers={"retry-after": "3600"}),
    ):
        assert carry_out(ask(ASK, 5), answer) == (answer, [ASK])


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"retry-after": "3"}, 3.0), ({"retry-after-ms": "250"}, 0.25)]
)
def test_a_server_that_says_when_to_come_again_is_heeded(
    headers: dict[str, str], seconds: float
) -> None:
    busy, fine = Answer(429, headers=headers), Answer(200)
    assert carry_out(ask(ASK, 1), busy, fine) == (fine, [ASK, Wait(seconds), ASK])


def test_waits_double_up_to_a_limit_and_are_never_quite_alike() -> None:
    _, steps = carry_out(ask(ASK, 8), *[Answer(500)] * 9)
    waits = [step.seconds for step in steps if isinstance(step, Wait)]
    for attempt, wait in enumerate(waits):
        longest = min(8.0, 0.5 * 2**attempt)
        assert 0.75 * longest <= wait <= longest
    assert len(waits) == 8


def test_nothing_there_is_a_server_error_that_names_the_url() -> None:
    with Client("http://127.0.0.1:9", max_retries=0) as client, pytest.raises(ServerError) as told:
        client.generate("?")
    assert "http://127.0.0.1:9" in str(told.value) and told.value.status is None
