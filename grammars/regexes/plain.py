"""Writing a regex without And and Not in the syntax that regex libraries share."""

from __future__ import annotations

from collections.abc import Callable

from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.syntax import (
    Alternatives,
    Characters,
    Empty,
    Regex,
    Repeat,
    parts,
)


def plain_text(regex: Regex, characters: Callable[[Ranges], str]) -> str:
    """The regex as text; `characters` writes a class, as something that can be repeated."""
    assert regex.is_plain
    match regex:
        case Empty():
            return ""
        case Characters(pairs):
            return characters(pairs)
        case Alternatives(items):
            return "|".join(plain_text(item, characters) for item in items)
        case Repeat(item, minimum, maximum):
            written = plain_text(item, characters)
            repeated = written if isinstance(item, Characters) else f"(?:{written})"
            return repeated + _count(minimum, maximum)
        case _:
            return "".join(_item(part, characters) for part in parts(regex))


def _item(regex: Regex, characters: Callable[[Ranges], str]) -> str:
    written = plain_text(regex, characters)
    return f"(?:{written})" if isinstance(regex, Alternatives) else written


def _count(minimum: int, maximum: int | None) -> str:
    sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((minimum, maximum))
    if sign is not None:
        return sign
    if minimum == maximum:
        return f"{{{minimum}}}"
    return f"{{{minimum},{'' if maximum is None else maximum}}}"
