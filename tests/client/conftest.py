"""Every test of a call is one of both clients."""

from __future__ import annotations

import pytest

from structspec.client import exchange
from tests.client.fakes import Awaited, Blocking, Connect


@pytest.fixture(params=[Blocking, Awaited], ids=["blocking", "awaited"])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A client of a fake server that waits for nothing."""
    monkeypatch.setattr(exchange, "_FIRST_WAIT_S", 0.0)
    monkeypatch.delenv("STRUCTSPEC_API_KEY", raising=False)
    return request.param
