"""The options that say how an engine drafts."""

from __future__ import annotations

import argparse
import json
from typing import Any

from structspec.errors import InvalidRequest
from structspec.speculative_config import METHODS, SpeculativeConfig


def add_speculation(parser: argparse.ArgumentParser) -> None:
    """Let the command line say what a SpeculativeConfig holds."""
    group = parser.add_argument_group("speculation (changes what it takes, never what is written)")
    group.add_argument(
        "--speculative-config", metavar="JSON", help="fields of SpeculativeConfig as one object"
    )
    group.add_argument(
        "--spec-method",
        metavar="METHOD",
        help=f"{', '.join(METHODS)} (default: hybrid, or what the other settings mean)",
    )
    group.add_argument(
        "--spec-model",
        metavar="PATH",
        help="the dotted path of a drafter's class, for custom_class",
    )
    group.add_argument(
        "--spec-tokens",
        type=int,
        metavar="N",
        help="draft at most so many tokens of a request in a step; 0 drafts nothing",
    )


def read_speculation(options: argparse.Namespace) -> SpeculativeConfig:
    """What the options say; raises InvalidRequest where two of them contradict each other."""
    settings = _read_json(options.speculative_config)
    for flag, name, value in (
        ("--spec-method", "method", options.spec_method),
        ("--spec-model", "model", options.spec_model),
        ("--spec-tokens", "num_speculative_tokens", options.spec_tokens),
    ):
        if value is not None and settings.setdefault(name, value) != value:
            raise InvalidRequest(
                f"{flag} {value} contradicts {name} {settings[name]!r} in --speculative-config;"
                " give one of them"
            )
    return SpeculativeConfig.from_dict(settings)


def _read_json(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"--speculative-config is no JSON: {error}") from error
    if not isinstance(settings, dict):
        raise InvalidRequest(f"--speculative-config must be a JSON object, not {text}")
    return settings
