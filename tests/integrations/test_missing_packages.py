"""What is said where the package is missing that an integration is for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest


@pytest.mark.skipif(
    importlib.util.find_spec("llama_index") is not None, reason="the package is there"
)
def test_the_extra_that_brings_llama_index_is_named() -> None:
    command = [sys.executable, "-c", "import structspec.integrations.llama_index"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'structspec-sdk[llamaindex]'" in done.stderr
