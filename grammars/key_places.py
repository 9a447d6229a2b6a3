"""Where in a JSON text one stands, and which keys its open objects have: followed byte by byte.

{"a": 1, "b": 2, "a     in a key, `a` read so far, of an object that has the keys a and b
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

OUTSIDE, IN_KEY, IN_STRING = range(3)
_SIGN = re.compile(rb'["{}[\],]')
_EVENTS = _SIGN, re.compile(rb'["\\]')  # outside strings, and inside
TO_QUOTE = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)  # or to a backslash at the very end

Keys = tuple[frozenset[bytes] | None, ...]  # by open bracket; None is an array


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a JSON text the scanner stands.

    `keys` holds one entry for each open bracket: the keys of an object, None for an array.
    """

    mode: int = OUTSIDE
    keys: Keys = ()
    key: bytes = b""  # what was read of the open key, as written
    is_escaped: bool = False
    expects_key: bool = False

    def after(self, data: bytes, *, may_repeat: bool = False) -> Place | None:
        """The place behind these bytes; None where a key comes twice and may not."""
        if not self.is_escaped and _EVENTS[self.mode != OUTSIDE].search(data) is None:
            return Place(IN_KEY, self.keys, self.key + data) if self.mode == IN_KEY else self
        place: Place | None = self
        position = 0
        while place is not None and position < len(data):
            if place.mode == OUTSIDE:
                place, position = place._after_sign(data, position)
            else:
                place, position = place._after_string(data, position, may_repeat)
        return place

    def _after_sign(self, data: bytes, position: int) -> tuple[Place, int]:
        """The place behind the next bracket, comma or quote, and where that is."""
        match = _SIGN.search(data, position)
        if match is None:
            return self, len(data)
        sign, keys = match[0], self.keys
        if sign == b'"':
            return Place(IN_KEY if self.expects_key else IN_STRING, keys), match.end()
        if sign in b"{[":
            keys = (*keys, frozenset() if sign == b"{" else None)
        elif sign in b"}]":
            keys = keys[:-1]
        is_in_object = bool(keys) and keys[-1] is not None
        return Place(OUTSIDE, keys, expects_key=sign in b"{," and is_in_object), match.end()

    def _after_string(
        self, data: bytes, position: int, may_repeat: bool
    ) -> tuple[Place | None, int]:
        """The place behind the string, or behind what of it there is, and where that is."""
        match = TO_QUOTE.match(data, position + self.is_escaped)
        assert match is not None
        end = match.end()
        is_escaped = data[end:] == b"\\"  # a backslash that is the last byte
        is_open = end == len(data) or is_escaped
        if self.mode == IN_STRING:
            return Place(IN_STRING if is_open else OUTSIDE, self.keys, b"", is_escaped), end + 1
        key, seen = self.key + data[position : end + is_escaped], self.keys[-1]
        if is_open:
            return Place(IN_KEY, self.keys, key, is_escaped), end + 1
        assert seen is not None
        name = decoded(key)
        if name in seen and not may_repeat:
            return None, end
        return Place(OUTSIDE, (*self.keys[:-1], seen | {name})), end + 1

    @property
    def rivals(self) -> frozenset[bytes]:
        """The keys that the open one may not become."""
        return (self.keys[-1] or frozenset()) if self.mode == IN_KEY else frozenset()


def decoded(key: bytes) -> bytes:
    """A key as it is meant, whichever way its characters are escaped; as it is where it is none."""
    meant = decoded_whole(key)
    return key if meant is None else meant


def decoded_whole(text: bytes) -> bytes | None:
    """What stands in a JSON string as it is meant; None where an escape is cut short or wrong.

    Text without escapes is what it is, cut characters and all.
    """
    if b"\\" not in text:
        return text
    try:
        meant: str = json.loads(b'"' + text + b'"')
        return meant.encode()
    except ValueError:
        return None
