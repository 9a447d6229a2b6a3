"""What is known of the texts of a constraint before its matcher is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MOST_MARKS = 16  # of a constraint
_LITERAL = re.compile(r'"([^"\\]|\\.)*"')
SHORT_TEXTS = {
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "date": "2000-01-01",
    "duration": "P1D",
    "email": "a@b.c",
    "ipv4": "1.1.1.1",
    "ipv6": "::1",
    "uri": "a:b",
    "uuid": "00000000-0000-0000-0000-000000000000",
}


MARKS_OF_FORMATS = {"email": (b'\\"@b.c',), "idn-email": (b'\\"@b.c',)}  # a name in quotes is free


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of a constraint's texts; a matcher is asked about all of it.

    words     of several strings those that begin so are tried first
    marks     texts behind which free text may end: end tags, matches of patterns that are searched
    literals  parts of what is not JSON
    """

    words: tuple[bytes, ...] = ()
    marks: tuple[bytes, ...] = ()
    literals: tuple[bytes, ...] = ()


NO_HINTS = Hints()


def literals_of(grammar: str) -> tuple[bytes, ...]:
    """What a grammar's literals stand for, the short first."""
    found = (_unquoted(literal[0]) for literal in _LITERAL.finditer(grammar))
    return _in_order(text.encode() for text in found if text)


def _unquoted(literal: str) -> str:
    """What a literal stands for, as far as that is written as in JSON."""
    try:
        return str(json.loads(literal))
    except ValueError:
        return ""


def marks_of_tags(text: str) -> tuple[bytes, ...]:
    """What ends the content of tags, and what stands between."""
    found = named(json.loads(text), ("end", "begin", "value"), str | list)
    texts = [text for some in found for text in ([some] if isinstance(some, str) else some)]
    return _in_order(text.encode() for text in texts if isinstance(text, str) and text)


def _in_order(marks: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(sorted(dict.fromkeys(marks), key=len))


def named(value: Any, names: tuple[str, ...], kinds: Any = dict | bool) -> Iterator[Any]:
    """What stands under these names anywhere in a JSON text, and is of these kinds."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            for name, below in part.items():
                if name in names and isinstance(below, kinds):
                    yield below
                else:
                    waiting.append(below)
