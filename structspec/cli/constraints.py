"""Options about constraints that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from structspec.constraint import JsonStyle, PropertyOrder
from structspec.settings import DEFAULT_MAX_ATTEMPTS, BackendName, OnUnsupported


def add_text_constraints(one: argparse._ActionsContainer) -> None:
    """Constraints other than schemas; `one` is a mutually exclusive group."""
    one.add_argument("--regex", help="a regex that the whole output matches")
    one.add_argument(
        "--choice",
        action="append",
        metavar="TEXT",
        help="one allowed output; give it several times",
    )
    one.add_argument("--grammar", type=Path, metavar="FILE", help="a Lark or EBNF/GBNF grammar")


def add_compiling(group: argparse._ActionsContainer) -> None:
    """How a constraint is compiled."""
    group.add_argument(
        "--backend",
        choices=get_args(BackendName),
        help="the library that compiles it (default: auto, by what it holds)",
    )
    group.add_argument(
        "--style",
        choices=get_args(JsonStyle),
        help="white space of JSON (default: spaced); flexible leaves it to the model",
    )
    group.add_argument(
        "--property-order",
        choices=get_args(PropertyOrder),
        help="order of an object's properties (default: schema, as it declares them)",
    )
    group.add_argument(
        "--closed",
        action=argparse.BooleanOptionalAction,
        help="admit only declared properties where the schema leaves it open (default)",
    )


def add_policy(group: argparse._ActionsContainer) -> None:
    """What happens to that which a mask cannot hold."""
    group.add_argument(
        "--on-unsupported",
        choices=get_args(OnUnsupported),
        help="what a mask cannot hold: refuse, validate the output (default), or ignore it",
    )
    group.add_argument(
        "--max-attempts",
        type=int,
        metavar="N",
        help="draw output that does not validate again, N times in all (default:"
        f" {DEFAULT_MAX_ATTEMPTS})",
    )
    group.add_argument(
        "--retry-feedback",
        action="store_true",
        default=None,
        help="tell the model each time what was wrong with what it wrote",
    )
