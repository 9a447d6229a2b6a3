"""Coroutines of LlamaIndex's, run to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, Any], timeout_s: float = 120) -> Any:
    """Its result, in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(work, timeout_s))
