"""vLLM itself where it is installed, else the stand-in beside this file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

USED = ("structspec.integrations.vllm", "vllm.v1.outputs", "vllm.v1.request")

if importlib.util.find_spec("vllm") is None:
    sys.path.insert(0, str(Path(__file__).parent / "fakes"))
    try:
        for name in USED:
            importlib.import_module(name)
    finally:
        sys.path.pop(0)
