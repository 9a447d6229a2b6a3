"""The part of `make test-clients` that needs no package and no real model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clients.httpx_load import NUM_REQUESTS, run
from tests.clients.recipe import read_recipe
from tests.clients.run import RECIPES
from tests.server.toy import NAME, save_toy, toy_server


def test_streams_over_plain_http_are_read_to_their_end_and_their_objects_are_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with toy_server(save_toy(tmp_path)) as server:
        asyncio.run(run(f"{server.url}/v1", NAME))
    assert capsys.readouterr().out.startswith(f"ok   {NUM_REQUESTS} streams")


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_is_python(name: str) -> None:
    compile(read_recipe(name), name, "exec")
