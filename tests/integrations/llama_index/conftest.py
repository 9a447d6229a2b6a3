"""Run in an environment with LlamaIndex: python tests/integrations/run.py llama_index."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator

import pytest

HAS_LLAMA_INDEX = importlib.util.find_spec("llama_index") is not None
collect_ignore_glob = [] if HAS_LLAMA_INDEX else ["test_*.py"]

if HAS_LLAMA_INDEX:
    from structspec import LLM
    from structspec.integrations.llama_index import StructSpec
    from tests.server.toy import save_toy

    @pytest.fixture(scope="session", autouse=True)
    def no_event_loop() -> None:
        """LlamaIndex's blocking calls make one where none was ever set, and never close it."""
        asyncio.set_event_loop(None)

    @pytest.fixture(scope="session")
    def toy_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
        """A model of random weights that costs next to nothing."""
        with LLM(save_toy(tmp_path_factory.mktemp("toy"))) as engine:
            yield engine

    @pytest.fixture
    def toy(toy_engine: LLM) -> StructSpec:
        """Writes at random, always the same."""
        return StructSpec(engine=toy_engine, temperature=1, additional_kwargs={"seed": 3})

    @pytest.fixture(scope="session")
    def real_engine() -> Iterator[LLM]:
        with LLM("smollm2-135m") as engine:
            yield engine

    @pytest.fixture
    def real(real_engine: LLM) -> StructSpec:
        return StructSpec(engine=real_engine, temperature=0, max_tokens=60)
