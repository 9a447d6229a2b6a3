"""The command line's options about reasoning."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from structspec.reasoning import ReasoningMode


def add_reasoning(parser: argparse.ArgumentParser) -> None:
    """Options for `reasoning=` and `max_reasoning_tokens=`."""
    group = parser.add_argument_group("reasoning before the answer")
    group.add_argument(
        "--reasoning",
        choices=get_args(ReasoningMode),
        help="whether the model reasons (default: auto, as the prompt and the model have it)",
    )
    group.add_argument(
        "--max-reasoning-tokens",
        type=int,
        metavar="N",
        help="end its reasoning after so many tokens (default: 1/4 of the tokens is left for the"
        " answer)",
    )
    group.add_argument(
        "--reasoning-markers",
        nargs=2,
        metavar=("START", "END"),
        help="the texts around reasoning (default: those that the tokenizer or the chat template"
        " names)",
    )


def read_reasoning(options: argparse.Namespace) -> dict[str, Any] | None:
    """The `reasoning=` that the command line stands for, if any."""
    wish: dict[str, Any] = {}
    if options.reasoning is not None:
        wish["mode"] = options.reasoning
    if options.reasoning_markers is not None:
        wish["start"], wish["end"] = options.reasoning_markers
    return wish or None
