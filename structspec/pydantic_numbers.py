"""Decimals: what of their digits a JSON schema can say."""

from __future__ import annotations

from typing import Any

from structspec.pydantic_checks import with_note

_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of")


def decimal_schema(schema: Any, number: dict[str, Any]) -> dict[str, Any]:
    """A number, or where digits are limited and nothing else is, text in digits.

    `number` is the schema of its bounds alone.
    """
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    if digits is None and places is None:
        return number
    if any(schema.get(bound) is not None for bound in _BOUNDS):
        return with_note(number, "max_digits", "no mask counts the digits of a number in bounds")
    return {"type": "string", "pattern": f"^-?({'|'.join(_spellings(digits, places))})$"}


def _spellings(digits: int | None, places: int | None) -> list[str]:
    """Every way to share the digits between both sides of the point."""
    if digits is None:
        return [f"{_whole(18)}{_behind(places)}"]
    if places is not None:  # pydantic keeps room for all the places
        if digits > places:
            return [f"{_whole(digits - places)}{_behind(places)}"]
        return [rf"0\.[0-9]{{1,{digits}}}"]
    shared = (f"[1-9][0-9]{{{n - 1}}}{_behind(digits - n)}" for n in range(1, digits + 1))
    return [f"0{_behind(digits)}", *shared]


def _whole(num_digits: int) -> str:
    return f"(0|[1-9][0-9]{{0,{num_digits - 1}}})"


def _behind(num_digits: int | None) -> str:
    return rf"(\.[0-9]{{1,{num_digits}}})?" if num_digits else ""
