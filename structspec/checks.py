"""What the settings of engine and drafters are checked with."""

from __future__ import annotations

from structspec.errors import InvalidRequest


def check_integers(config: object, least: int, *names: str) -> None:
    """Raise InvalidRequest unless each of these fields is an integer of at least `least`."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidRequest(f"{name} must be an integer of at least {least}, not {value!r}")


def check_numbers(config: object, least: float, most: float, *names: str) -> None:
    """Raise InvalidRequest unless each of these fields is a number from `least` to `most`."""
    for name in names:
        value = getattr(config, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise InvalidRequest(f"{name} must be a number from {least} to {most}, not {value!r}")
