"""Every limit of the server: what goes beyond it is refused, and disturbs nobody else."""

from __future__ import annotations

import argparse
import asyncio
import threading
from concurrent.futures import Future
from dataclasses import fields
from typing import Any

import pytest

from structspec import LLM
from structspec.chat.fields import InvalidField
from structspec.cli.serve import add_serve, run_serve
from structspec.config import EngineConfig
from structspec.constraint import Constraint
from structspec.errors import CompileTimeout, InvalidRequest
from structspec.grammars.base import CompiledGrammar
from structspec.server.errors import ApiError
from structspec.server.gate import Gate
from structspec.server.settings import ServerSettings
from structspec.settings import BackendName
from tests.server.conftest import MODEL, Server, json_schema, serve


class Sent:
    """A request whose body comes in these parts, the last one when it is let through."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def stream(self):
        for part in self._parts[:-1]:
            yield part
        self.has_begun.set()
        await self.may_end.wait()
        yield self._parts[-1]


def make_gate(**settings: int) -> Gate:
    return Gate(ServerSettings(MODEL, **settings))


def test_choices_are_counted_while_they_are_written_and_no_longer() -> None:
    gate = make_gate(max_requests=3)
    with gate.entered(2):
        with pytest.raises(ApiError) as caught, gate.entered(2):
            pass
        assert (caught.value.status, caught.value.code) == (429, "queue_full")
        assert caught.value.headers == {"retry-after": "1"}
        with gate.entered(1):
            pass
    with gate.entered(3):
        pass


def test_what_there_will_never_be_room_for_is_not_to_be_tried_again() -> None:
    with pytest.raises(InvalidField) as caught, make_gate(max_requests=3).entered(4):
        pass
    assert caught.value.param == "n"


def test_bodies_that_are_read_and_answered_are_limited_together() -> None:
    gate = make_gate(max_body_bytes=60, max_total_body_bytes=100)

    async def read_all() -> list[object]:
        first, second, third = Sent(b"x" * 30, b"x" * 30), Sent(b"y" * 50, b""), Sent(b"z" * 40)
        reads = [asyncio.create_task(gate.read(one)) for one in (first, second)]
        await first.has_begun.wait()
        await second.has_begun.wait()  # 30 and 50 bytes of two bodies are here
        first.may_end.set()
        third.may_end.set()
        with pytest.raises(ApiError) as caught:
            await reads[0]
        assert caught.value.status == 429
        with gate.holding(10):
            assert await gate.read(third) == b"z" * 40
        second.may_end.set()
        return [caught.value.code, await reads[1]]

    assert asyncio.run(read_all()) == ["queue_full", b"y" * 50]
    with gate.holding(100):  # nothing is held any more
        pass


def test_a_body_of_one_byte_too_many_is_refused_and_one_at_the_limit_is_read() -> None:
    async def read(num_bytes: int) -> bytes:
        sent = Sent(b"x" * 6, b"x" * (num_bytes - 6))
        sent.may_end.set()
        return await make_gate(max_body_bytes=10, max_total_body_bytes=10).read(sent)

    assert asyncio.run(read(10)) == b"x" * 10
    with pytest.raises(ApiError) as caught:
        asyncio.run(read(11))
    assert (caught.value.status, caught.value.code) == (413, "body_too_large")


def test_outputs_of_several_prompts_are_limited_together(toy: LLM) -> None:
    with serve(toy, max_choices=4) as client:
        server = Server(client)
        body = {"prompt": ["a", "b", "c"], "max_tokens": 1}
        assert len(server.post("/v1/completions", **body)["choices"]) == 3
        assert server.refused("/v1/completions", n=2, **body)["param"] == "prompt"
        assert server.refused("/v1/completions", **{**body, "n": 5})["param"] == "n"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_schema_that_compiles_too_long_is_refused_and_others_are_answered_meanwhile(
    is_streamed: bool, toy: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, slow = toy._service.compiler.submit, Future[CompiledGrammar]()
    has_come = threading.Event()

    def submit_slowly(constraint: Constraint, backend: BackendName) -> Future[CompiledGrammar]:
        if "slow" not in "".join(constraint.key):
            return submit(constraint, backend)
        has_come.set()
        return slow

    monkeypatch.setattr(toy._service.compiler, "submit", submit_slowly)
    errors: list[dict[str, Any]] = []
    with serve(toy) as client:
        server = Server(client)

        def ask_slowly() -> None:
            form = json_schema({"type": "object", "properties": {"slow": {}}})
            errors.append(server.chat(400, response_format=form, stream=is_streamed)["error"])

        thread = threading.Thread(target=ask_slowly)
        thread.start()
        assert has_come.wait(30)
        server.chat(response_format=json_schema({"type": "boolean"}), max_tokens=8)
        assert not errors  # it still compiles
        slow.set_exception(CompileTimeout("compiling took longer than 1 s"))
        thread.join()
    assert (errors[0]["code"], errors[0]["param"]) == (
        "schema_too_complex",
        "response_format.json_schema.schema",
    )


def test_what_no_backend_can_hold_is_told_apart_from_what_is_wrong(toy: LLM) -> None:
    items = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    form = json_schema({"type": "object", "properties": {"x": items}}, name="Thing")
    with serve(toy) as client:
        server = Server(client)
        error = server.refused(response_format=form, on_unsupported="error")
        assert error["param"] == "response_format.json_schema.schema.properties.x"
        assert error["message"].startswith("Invalid schema for response_format 'Thing': ")
        other = server.refused(regex="(a)\\1")
        assert other["param"] == "regex"
    assert error["code"] == other["code"] == "unsupported_constraint"
    assert error["type"] == "invalid_request_error"


def test_pages_of_other_origins_are_let_in_only_if_they_are_named(toy: LLM) -> None:
    page, other = "https://app.example", "https://elsewhere.example"
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x"}
    path = "/v1/chat/completions"

    def allowed(client, origin: str, method: str = "GET") -> str | None:
        headers = {"origin": origin, **(asked if method == "OPTIONS" else {})}
        answer = client.request(
            method, path if method == "OPTIONS" else "/v1/models", headers=headers
        )
        return answer.headers.get("access-control-allow-origin")

    with serve(toy) as client:
        assert client.options(path, headers={"origin": page, **asked}).status_code == 405
        assert allowed(client, page) is None
    with serve(toy, allowed_origins=(page,), api_keys=("k",)) as client:
        assert allowed(client, page, "OPTIONS") == allowed(client, page) == page
        assert allowed(client, other, "OPTIONS") is None and allowed(client, other) is None
        refused = client.get("/v1/models", headers={"origin": page})
        assert refused.status_code == 401  # and the page may read why
        assert "x-request-id" in refused.headers["access-control-expose-headers"]
    with serve(toy, allowed_origins=("*",)) as client:
        assert allowed(client, other) == "*"


@pytest.mark.parametrize("origin", ["example.com", "https://example.com/", "https://", ""])
def test_an_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    with pytest.raises(InvalidRequest, match="origin"):
        ServerSettings(MODEL, allowed_origins=(origin,))


def test_every_limit_can_be_set_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[ServerSettings, EngineConfig]] = []

    class Recorded:
        def __init__(self, model: str, *, device: str, config: EngineConfig) -> None:
            self.config = config

        def close(self) -> None:
            pass

    def record(service: Recorded, settings: ServerSettings, *, host: str, port: int) -> None:
        served.append((settings, service.config))

    monkeypatch.setattr("structspec.service.Service", Recorded)
    monkeypatch.setattr("structspec.server.serving.serve", record)
    monkeypatch.delenv("STRUCTSPEC_API_KEY", raising=False)
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    run_serve(parser.parse_args(["serve", "m"]))
    assert served.pop() == (ServerSettings("m"), EngineConfig())
    limits = [one.name for one in fields(ServerSettings) if one.name.startswith("max_")]
    given = {name: 1000 + place for place, name in enumerate(limits)}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    origins = "--allowed-origins=http://a, http://b"
    run_serve(parser.parse_args(["serve", "m", *words, origins, "--compile-timeout-seconds=2.5"]))
    ((settings, config),) = served
    assert {name: getattr(settings, name) for name in limits} == given
    assert settings.allowed_origins == ("http://a", "http://b")
    assert config.compile_timeout_s == 2.5
