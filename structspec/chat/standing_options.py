"""Options of `generate` that a model is set to, for all of its calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structspec.options import CONSTRAINT_FIELDS, OF_CONSTRAINTS, resolve_options

OF_SCHEMAS = ("style", "property_order", "closed", "schema_in_prompt")


def heeded(
    standing: Mapping[str, Any], given: Mapping[str, Any], *, has_tools: bool = False
) -> dict[str, Any]:
    """Those that mean something to a call, which is given more; None is nothing said.

    Where there is no schema, or nothing at all to conform to, what is said about such is left out;
    of one that is given itself, it is refused elsewhere.
    """
    own = {name: value for name, value in standing.items() if value is not None}
    asked = {**own, **given}
    if asked.get("schema") is None:
        own = {name: value for name, value in own.items() if name not in OF_SCHEMAS}
    if not has_tools and all(asked.get(name) is None for name in CONSTRAINT_FIELDS):
        own = {name: value for name, value in own.items() if name not in OF_CONSTRAINTS}
    return {name: value for name, value in {**own, **given}.items() if value is not None}


def check_standing(standing: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for what is wrong with them, whatever they will go with."""
    given: Any = {name: value for name, value in standing.items() if value is not None}
    is_about_others = any(name in given for name in (*OF_SCHEMAS, *OF_CONSTRAINTS))
    if is_about_others and not any(name in given for name in CONSTRAINT_FIELDS):
        given["schema"] = True  # any JSON: calls have schemas of their own
    resolve_options(given)
