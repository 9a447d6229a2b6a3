"""The options that say how an engine drafts."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

from structspec.cli.inputs import read_file
from structspec.errors import InvalidRequest
from structspec.speculative_config import METHODS, SpeculativeConfig
from structspec.verification import REJECTION_SAMPLE_METHODS


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
    group.add_argument(
        "--spec-verification",
        metavar="METHOD",
        help=f"how drafts are verified: {', '.join(REJECTION_SAMPLE_METHODS)} (default: standard);"
        " the last two change what is written",
    )


def add_prediction(parser: argparse.ArgumentParser) -> None:
    """Let the command line say what the output will likely be."""
    group = parser.add_argument_group("prediction (drafted as far as it is right)")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--prediction", metavar="TEXT", help="what the output will likely be")
    one.add_argument(
        "--prediction-file", metavar="FILE", help="read the prediction from here; - is stdin"
    )


def read_prediction(options: argparse.Namespace) -> str | None:
    """The prediction from the command line, a file or stdin; None where there is none."""
    if options.prediction_file is None:
        return None if options.prediction is None else str(options.prediction)
    if options.prediction_file == options.prompt_file == "-":
        raise InvalidRequest("--prompt-file and --prediction-file cannot both read stdin")
    return read_file(options.prediction_file)


def check_speculation(options: argparse.Namespace, config: SpeculativeConfig) -> None:
    """Raise InvalidRequest where the options for one output contradict each other."""
    is_predicted = options.prediction is not None or options.prediction_file is not None
    if options.speculative is False:
        given = [flag for flag, value in _given(options) if value is not None]
        if given and config.resolved_method != "none":
            raise InvalidRequest(f"--no-speculation contradicts {given[0]}; give one of them")
        if is_predicted:
            raise InvalidRequest("--no-speculation contradicts a prediction; give one of them")
    elif config.resolved_method == "prediction" and not is_predicted:
        raise InvalidRequest("method prediction needs --prediction or --prediction-file")


def read_unremembered(options: argparse.Namespace) -> SpeculativeConfig:
    """What the options say, for benchmarks that ask the same again.

    Unless it is said how much, nothing is remembered of finished requests.
    """
    config, name = read_speculation(options), "suffix_decoding_max_cached_requests"
    method = config.resolved_method
    if method not in ("hybrid", "suffix") or name in _read_json(options.speculative_config):
        return config
    return replace(config, method=method, suffix_decoding_max_cached_requests=0)


def is_any_given(options: argparse.Namespace) -> bool:
    """Whether any option says how to draft."""
    return any(value is not None for _, value in _given(options))


def _given(options: argparse.Namespace) -> list[tuple[str, object]]:
    return [
        ("--spec-method", options.spec_method),
        ("--spec-model", options.spec_model),
        ("--spec-tokens", options.spec_tokens),
        ("--spec-verification", options.spec_verification),
        ("--speculative-config", options.speculative_config),
    ]


def read_speculation(options: argparse.Namespace) -> SpeculativeConfig:
    """What the options say; raises InvalidRequest where two of them contradict each other."""
    settings = _read_json(options.speculative_config)
    for flag, name, value in (
        ("--spec-method", "method", options.spec_method),
        ("--spec-model", "model", options.spec_model),
        ("--spec-tokens", "num_speculative_tokens", options.spec_tokens),
        ("--spec-verification", "rejection_sample_method", options.spec_verification),
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
