"""`structspec demo`: loaded on demand, since the tasks need pydantic and the engine torch."""

from __future__ import annotations

import argparse


def run_demo(options: argparse.Namespace) -> int:
    """Run the demo; errors are raised."""
    from structspec.demo import show_demo

    return show_demo(options.model)
