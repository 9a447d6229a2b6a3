"""How often something comes: `*`, `+?`, `{2,5}`."""

from __future__ import annotations

import re

REPEAT = re.compile(
    r"(?:(?P<sign>[*+?])|\{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\})(?P<kind>[?+]?)"
)


def is_repeat(match: re.Match[str] | None, is_ecma: bool) -> bool:
    """Whether this repeats; a bracket that counts nothing is itself."""
    if match is None:
        return False
    if match["sign"] or match["low"]:
        return True
    return bool(match["high"]) and not is_ecma


def counts(match: re.Match[str]) -> tuple[int, int | None]:
    """The fewest and the most; None is without an end."""
    if match["sign"]:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[match["sign"]]
    low = int(match["low"] or 0)
    if not match["comma"]:
        return low, low
    return low, int(match["high"]) if match["high"] else None
