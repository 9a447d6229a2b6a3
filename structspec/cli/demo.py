"""`structspec demo`: loaded on demand, since the tasks need pydantic and the engine torch."""

from __future__ import annotations

import argparse

from structspec.cli.speculation import read_speculation
from structspec.config import EngineConfig


def run_demo(options: argparse.Namespace) -> int:
    """Run the demo; errors are raised."""
    config = EngineConfig(speculative=read_speculation(options))
    from structspec.demo import show_demo

    return show_demo(options.model, config)
