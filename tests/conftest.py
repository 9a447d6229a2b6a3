"""What all tests share. Triton decides at its first import whether its interpreter runs kernels."""

import os
import shutil
from collections.abc import Iterator

import pytest

if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def llm() -> Iterator["structspec.LLM"]:  # noqa: F821 - structspec is imported after the line above
    """One real model for the whole run: loading it takes seconds."""
    from structspec import LLM

    with LLM("smollm2-135m") as model:
        yield model
