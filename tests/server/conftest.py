"""A server over the session's model, called without a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from structspec import LLM
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from tests.server.toy import save_toy

MODEL = "smollm2-135m"
# of a request, to an application that is called without a server
SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/v1/chat/completions",
    "raw_path": b"/v1/chat/completions",
    "query_string": b"",
    "headers": [],
    "http_version": "1.1",
    "scheme": "http",
    "server": ("test", 80),
    "client": ("test", 1),
    "asgi": {"version": "3.0", "spec_version": "2.3"},
}
ASK = [{"role": "user", "content": "Ada Lovelace was born in 1815 in London."}]


class Server:
    """Sends requests and reads answers."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def post(self, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
        answer = self.client.post(path, json={"model": MODEL, **body})
        assert answer.status_code == status, answer.text
        return answer.json()

    def chat(self, status: int = 200, **body: Any) -> dict[str, Any]:
        given = {"messages": ASK, "temperature": 0, "max_tokens": 60, **body}
        return self.post("/v1/chat/completions", status, **given)

    def respond(self, status: int = 200, **body: Any) -> dict[str, Any]:
        given = {"input": ASK, "temperature": 0, "max_output_tokens": 60, **body}
        return self.post("/v1/responses", status, **given)

    def refused(self, path: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
        """The error of a bad request."""
        if path == "/v1/chat/completions":
            body = {"messages": ASK, **body}
        return self.post(path, 400, **body)["error"]

    def stream(self, path: str = "/v1/chat/completions", **body: Any) -> list[dict[str, Any]]:
        """The data of a streamed answer's events; the end of the stream is checked."""
        if path == "/v1/chat/completions":
            body = {"messages": ASK, "temperature": 0, "max_tokens": 60, **body}
        answer = self.client.post(path, json={"model": MODEL, "stream": True, **body})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.text.split("\n") if line.startswith("data: ")]
        if path != "/v1/responses":
            assert lines.pop() == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that costs next to nothing."""
    return save_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def toy(toy_folder: Path) -> Iterator[LLM]:
    """That model, loaded; what it writes is random."""
    with LLM(toy_folder) as model:
        yield model


def serve(llm: LLM, **settings: Any) -> TestClient:
    return TestClient(make_app(llm._service, ServerSettings(MODEL, **settings)))


@pytest.fixture(scope="session")
def server(llm: LLM) -> Iterator[Server]:
    with serve(llm) as client:
        yield Server(client)


def schema_of(**properties: Any) -> dict[str, Any]:
    """An object of which all properties are required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


PERSON = schema_of(name={"type": "string", "maxLength": 20}, born={"type": "integer"})


def json_schema(schema: Any, name: str = "person", **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **more}}
