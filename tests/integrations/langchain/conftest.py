"""What the tests of ChatStructSpec share: one engine, loaded once."""

from __future__ import annotations

import importlib.util

import pytest

# run in an environment of their own: python tests/integrations/run.py langchain
HAS_LANGCHAIN = importlib.util.find_spec("langchain_tests") is not None
collect_ignore_glob = [] if HAS_LANGCHAIN else ["test_*.py"]

if HAS_LANGCHAIN:
    from structspec.chat.shared_llm import shared_llm
    from structspec.integrations.langchain import ChatStructSpec
    from structspec.llm import LLM
    from structspec.models.loading import find_model

    @pytest.fixture(scope="session")
    def llm() -> LLM:
        """The engine of smollm2-135m; held here, so that models that come and go share it."""
        return shared_llm("smollm2-135m")

    @pytest.fixture(scope="session")
    def other_llm() -> LLM:
        """Another engine of the same weights, which knows them by their folder."""
        return shared_llm(str(find_model("smollm2-135m")))

    @pytest.fixture
    def model(llm: LLM) -> ChatStructSpec:
        """A chat model whose answers are short, and always the same."""
        return ChatStructSpec(model="smollm2-135m", temperature=0, max_tokens=40)
