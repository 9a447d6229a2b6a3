"""How drafts are verified: which method, what it may be told, and what that comes to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, get_args

from structspec.checks import check_integers, check_numbers
from structspec.errors import InvalidRequest

if TYPE_CHECKING:
    from structspec.speculative_config import SpeculativeConfig

logger = logging.getLogger("structspec")

RejectionSampleMethod = Literal["standard", "block", "synthetic", "fly"]
REJECTION_SAMPLE_METHODS: tuple[RejectionSampleMethod, ...] = get_args(RejectionSampleMethod)

_RATES = ("synthetic_acceptance_rate", "synthetic_acceptance_rates", "synthetic_acceptance_length")
_LONGEST_WINDOW = 6  # of fly, where none is given
_WARNINGS = {
    "synthetic": "drafts are accepted at a set rate, whatever the model says: for benchmarks only",
    "fly": "drafts that the model would not have written may be accepted: what is written is not"
    " distributed as the model writes",
}


def check_verification(config: SpeculativeConfig) -> None:
    """Raise InvalidRequest for settings that are impossible or contradict the method."""
    method = config.rejection_sample_method
    if method not in REJECTION_SAMPLE_METHODS:
        raise InvalidRequest(
            f"rejection_sample_method must be one of {', '.join(REJECTION_SAMPLE_METHODS)},"
            f" not {method!r}"
        )
    for field in fields(config):
        owner = field.name.partition("_")[0]
        is_given = getattr(config, field.name) != field.default
        if is_given and owner in _WARNINGS and owner != method:
            raise InvalidRequest(
                f"{field.name} is of rejection_sample_method {owner!r}, and that is {method!r};"
                " a method that changes what is written must be asked for by its name"
            )
    if method in _WARNINGS and config.resolved_method == "none":
        raise InvalidRequest(f"rejection_sample_method {method!r} needs drafts, and there are none")
    if method == "synthetic":
        _check_rates(config)
    if method == "fly":
        _check_fly(config)


def acceptance_chances(config: SpeculativeConfig) -> list[float] | None:
    """How likely "synthetic" accepts each draft where those before it were; None: the target says.

    One chance for each of `num_speculative_tokens`.
    """
    if config.rejection_sample_method != "synthetic":
        return None
    k = config.num_speculative_tokens
    if config.synthetic_acceptance_rate is not None:
        return [config.synthetic_acceptance_rate] * k
    if config.synthetic_acceptance_rates is not None:
        rates = [1.0, *config.synthetic_acceptance_rates]
    else:
        assert config.synthetic_acceptance_length is not None
        num_accepted = config.synthetic_acceptance_length - 1
        rates = [1.0, *(min(1.0, max(0.0, num_accepted - place)) for place in range(k))]
    return [after / before if before else 0.0 for before, after in pairwise(rates)]


def window_size(config: SpeculativeConfig) -> int:
    """How many drafts behind a wrong one must be right for "fly" to let it pass."""
    if config.fly_window_size is not None:
        return config.fly_window_size
    return min(_LONGEST_WINDOW, config.num_speculative_tokens - 1)


def warn_if_lossy(config: SpeculativeConfig) -> None:
    """Say once that an engine does not write what its model does."""
    method = config.rejection_sample_method
    if method in _WARNINGS:
        logger.warning("rejection_sample_method %r: %s", method, _WARNINGS[method])


def _check_rates(config: SpeculativeConfig) -> None:
    given = [name for name in _RATES if getattr(config, name) is not None]
    if len(given) != 1:
        raise InvalidRequest(
            f"rejection_sample_method 'synthetic' takes one of {', '.join(_RATES)},"
            f" and {' and '.join(given) or 'none'} was given"
        )
    k = config.num_speculative_tokens
    if config.synthetic_acceptance_rate is not None:
        check_numbers(config, 0, 1, "synthetic_acceptance_rate")
    if config.synthetic_acceptance_length is not None:
        check_numbers(config, 1, k + 1, "synthetic_acceptance_length")
    if config.synthetic_acceptance_rates is not None:
        rates = config.synthetic_acceptance_rates
        if not _are_rates(rates, k):
            raise InvalidRequest(
                "synthetic_acceptance_rates must say how likely the first 1, 2, … drafts are all"
                f" accepted: {k} numbers from 0 to 1, none above the one before it; not {rates!r}"
            )


def _are_rates(rates: object, count: int) -> bool:
    return (
        isinstance(rates, Sequence)
        and len(rates) == count
        and all(isinstance(x, int | float) and not isinstance(x, bool) for x in rates)
        and all(after <= before for before, after in pairwise([1, *rates, 0]))
    )


def _check_fly(config: SpeculativeConfig) -> None:
    k = config.num_speculative_tokens
    check_numbers(config, 0, 100, "fly_entropy_threshold")
    check_integers(config, 1, "fly_entropy_top_k")
    if config.fly_window_size is not None:
        check_integers(config, 1, "fly_window_size")
    if not 1 <= window_size(config) < k:
        raise InvalidRequest(
            f"fly_window_size must be below num_speculative_tokens: behind a wrong draft so many"
            f" must follow; not {window_size(config)} of {k}"
        )
