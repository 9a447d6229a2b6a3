"""What a `%json {…}` inside a Lark grammar asks for: JSON as everywhere, or as its options say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from structspec.constraint import JsonSchema, JsonStyle
from structspec.errors import GrammarError, UnsupportedConstraint

_KEY = "x-guidance"  # llguidance's options for one schema, at its root
_DEFAULTS: dict[str, str | bool] = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    # the mask needs neither: `oneOf` is held as it is, and what is not held is in the report
    "coerce_one_of": False,
    "lenient": False,
}
_STYLES: dict[tuple[str | bool, ...], JsonStyle] = {
    (",", ":", True): "flexible",
    (",", ":", False): "compact",
    (", ", ": ", False): "spaced",
}


def inline_constraint(schema: str) -> JsonSchema:
    """The constraint of a `%json` with this schema; GrammarErrors carry a pointer into it."""
    loaded = json.loads(schema)
    if not isinstance(loaded, dict) or _KEY not in loaded:
        return JsonSchema(schema)
    options = loaded.pop(_KEY)
    return JsonSchema(json.dumps(loaded, ensure_ascii=False), style=_style(options))


def _style(options: Any) -> JsonStyle:
    if not isinstance(options, Mapping):
        raise GrammarError("must be an object of options", pointer=f"#/{_KEY}")
    for name, value in options.items():
        if name not in _DEFAULTS:
            held = ", ".join(_DEFAULTS)
            reason = f"the option is not supported; there are {held}"
            raise UnsupportedConstraint(reason, pointer=f"#/{_KEY}/{name}")
        if type(value) is not type(_DEFAULTS[name]):
            kind = "a string" if isinstance(_DEFAULTS[name], str) else "true or false"
            raise GrammarError(f"must be {kind}, not {value!r}", pointer=f"#/{_KEY}/{name}")
    chosen = _DEFAULTS | dict(options)
    layout = tuple(chosen[name] for name in _DEFAULTS)[:3]
    if layout not in _STYLES:
        reason = (
            "these separators are not supported: with whitespace_flexible JSON is written with ','"
            " and ':', without it also with ', ' and ': '"
        )
        raise UnsupportedConstraint(reason, pointer=f"#/{_KEY}")
    return _STYLES[layout]
