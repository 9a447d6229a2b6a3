"""A browser, and servers over a model that costs next to nothing: one for all, one with a key."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from structspec.config import EngineConfig
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from structspec.service import Service
from tests.playground.browser import CHROMIUM, DRIVER, Browser, open_browser
from tests.server.toy import save_toy

KEY = "open sesame"


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = save_toy(tmp_path_factory.mktemp("toy"))
    service = Service(folder, device="cpu", config=EngineConfig(num_blocks=512))
    yield service
    service.close()


@contextlib.contextmanager
def listening(service: Service, **settings: object) -> Iterator[str]:
    """The address of a server on a free port, in a thread of its own."""
    app = make_app(service, ServerSettings("toy", **settings))  # type: ignore[arg-type]
    config = uvicorn.Config(app, log_level="warning", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def url(service: Service) -> Iterator[str]:
    with listening(service) as address:
        yield address


@pytest.fixture(scope="session")
def url_with_key(service: Service) -> Iterator[str]:
    with listening(service, api_keys=(KEY,)) as address:
        yield address


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver (Debian: chromium-driver) on the PATH")
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, url: str) -> Iterator[Browser]:
    """The page, just opened; it must not have failed at anything by the end."""
    chromium.show_as(1280, 900)
    chromium.open(url)
    chromium.wait(lambda: chromium.text("#model") == "toy", "the model's name is shown")
    chromium.problems()
    yield chromium
    faults = [one for one in chromium.problems() if "status of 4" not in one]
    assert faults == []  # but for what tests have the server refuse
