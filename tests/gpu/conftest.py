"""What the tests of whole engines on a GPU share."""

from __future__ import annotations

import pytest

from tests.gpu.divergences import Judge


@pytest.fixture(scope="session")
def judge() -> Judge:
    return Judge()
