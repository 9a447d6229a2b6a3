"""What a server says of itself, for those who have to know it before they ask."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from structspec import ServerError
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


class Nobody(Fake):
    def answer(self, request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("nobody listens")
