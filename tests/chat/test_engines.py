"""Engines that users bring to a framework's model."""

from __future__ import annotations

from pathlib import Path

import pytest

from structspec import AsyncClient, Client, InvalidRequest
from structspec.chat.engines import check_engine, model_of


def test_an_engine_of_another_model_is_refused_and_so_is_what_is_none() -> None:
    with Client("http://localhost:1", model="small") as client:
        assert check_engine(client, None) is check_engine(client, "small") is client
        with pytest.raises(InvalidRequest, match="runs 'small', no model 'large'"):
            check_engine(client, "large")
    for other in ("small", Path("small"), AsyncClient("http://localhost:1")):
        with pytest.raises(InvalidRequest, match="must be an LLM, AsyncLLM or Client"):
            check_engine(other, None)


def test_a_server_that_was_not_asked_may_have_any_model() -> None:
    with Client("http://localhost:1") as client:
        assert model_of(client) is None
        assert check_engine(client, "large") is client
