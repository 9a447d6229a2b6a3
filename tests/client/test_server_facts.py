"""What a server says of itself, for those who have to know it before they ask."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from structspec import InvalidRequest, ServerError
from structspec.client.servers import Server
from tests.client.fakes import BASE, Blocking, Fake


def listing(*models: dict[str, Any]) -> dict[str, Any]:
    listed = [{"owned_by": "structspec", **model} for model in models]
    return {"/v1/models": {"object": "list", "data": listed}}


def facts(fake: Fake, **settings: Any) -> Server:
    client = Blocking(fake, **settings).client  # held: what nobody holds is closed
    return client._service.server()


def test_the_model_and_its_context_are_those_of_the_list() -> None:
    fake = Fake("structspec", pages=listing({"id": "toy", "max_model_len": 2048}))
    assert facts(fake) == Server("structspec", "toy", BASE, 2048)
    assert facts(fake).max_model_len == 2048
    two = listing({"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 2})
    assert facts(Fake("structspec", pages=two), model="b").max_model_len == 2


def test_what_is_not_said_is_not_known() -> None:
    assert facts(Fake("structspec", pages=listing({"id": "toy"}))).max_model_len is None


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ServerError, match="there is no server"):
        facts(Nobody("structspec"), max_retries=0)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_cannot_tell_now_what_it_is_is_asked_again_by_the_next_call(
    status: int,
) -> None:
    fake = Starting(status)
    client = Blocking(fake, model="toy", max_retries=0).client
    with pytest.raises(ServerError, match=f"HTTP {status}.*try later") as caught:
        client.generate("?")
    assert caught.value.status == status and fake.bodies == []
    assert client._service.server().kind == "structspec"


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_a_list_of_models_may_be_named_one(status: int) -> None:
    fake = Starting(status)
    assert facts(fake, model="toy", max_retries=0).kind == "other"
    with pytest.raises(InvalidRequest, match=f"HTTP {status} for {BASE}/models"):
        facts(Starting(status), max_retries=0)


class Starting(Fake):
    """Its list of models is there when it is asked for a second time."""

    def __init__(self, status: int) -> None:
        super().__init__("structspec")
        self._status = status

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        response = super().answer(request)
        is_first = self.asked.count("/v1/models") == 1
        is_list = request.url.path == "/v1/models"
        return httpx2.Response(self._status) if is_list and is_first else response


class Nobody(Fake):
    def answer(self, request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("nobody listens")
