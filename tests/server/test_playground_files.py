"""The page at `/` is served whole, by itself, and needs nothing from anywhere else."""

from __future__ import annotations

import re

import pytest

from structspec import LLM
from tests.server.conftest import Server, serve


def test_every_file_that_the_page_names_is_there(server: Server) -> None:
    page = server.client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    names = re.findall(r'(?:href|src)="(playground/[^"]+)"', page.text)
    assert len(names) >= 3
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        file = server.client.get(f"/{name}")
        assert file.status_code == 200, name
        imports = re.findall(r'from "\./([^"]+)"', file.text)
        names += [f"playground/{other}" for other in imports]


def test_nothing_is_loaded_from_elsewhere(server: Server) -> None:
    page = server.client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    loaded = re.findall(r'(?:href|src)="([^"#]+)"', page.text)
    assert all(name.startswith(("playground/", "data:image/svg+xml")) for name in loaded)


@pytest.mark.parametrize(
    "path", ["/playground/", "/playground/..%2fapp.py", "/playground/page.html"]
)
def test_what_is_no_file_of_the_page_is_not_served(server: Server, path: str) -> None:
    assert server.client.get(path).status_code == 404


def test_the_page_comes_without_a_key_and_what_it_asks_for_does_not(llm: LLM) -> None:
    with serve(llm, api_keys=("secret",)) as client:
        assert client.get("/").status_code == 200
        assert client.get("/v1/models").status_code == 401
