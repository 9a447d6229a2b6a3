"""Where a JSON value inside a longer text ends."""

from __future__ import annotations

import json
import re

# integers as their digits: Python reads no more than 4300 of them
_DECODER = json.JSONDecoder(parse_int=str)
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def json_end(text: str, start: int) -> int | None:
    """Where the JSON value that begins at `start` ends; None if it is not complete.

    Of what is nested more deeply than Python reads only the brackets are looked at.
    """
    try:
        return _DECODER.raw_decode(text, start)[1]
    except json.JSONDecodeError:
        return None
    except RecursionError:
        return _last_bracket(text, start)


def _last_bracket(text: str, start: int) -> int | None:
    depth = 0
    for match in _BRACKET.finditer(text, start):
        if match[0] in "[{":
            depth += 1
        elif match[0] in "]}":
            depth -= 1
            if depth == 0:
                return match.end()
    return None
