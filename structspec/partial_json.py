"""JSON as it is being written: which of its values are closed, found piece by piece."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

_SCALAR_END = re.compile(rb"[\s,\]}]")
_STRING_SIGN = re.compile(rb'["\\]')
_BLANKS = re.compile(rb"[ \t\r\n]*")


@dataclass(slots=True, eq=False)
class Node:
    """A value of the text: `data[start:end]`; `end` is -1 as long as it is open.

    `children` are the items of an array or the values of an object, whose `keys` they have. A
    scalar is there once it is closed. `shape` and `built` belong to whoever makes objects of it.
    """

    kind: Literal["object", "array", "scalar"]
    start: int
    end: int = -1
    keys: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    shape: Any = None
    built: Any = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing more belongs to it."""
        return self.end >= 0


class PartialJson:
    """The tree of all that is closed, and of the objects and arrays that are open.

    Strings, numbers and the three words are left out until they end, a number at what follows it,
    and so are keys without a value. Costs time in proportion to the text, however it is cut into
    pieces. Behind what is no JSON nothing is read: whoever validates the whole says what is wrong.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.root: Node | None = None
        self.num_closed = 0  # values so far; what was seen at a lower number has changed
        self._open: list[Node] = []
        self._position = 0
        self._token = -1  # where the scalar or key that is being read starts
        self._scanned = 0  # up to where its end was looked for
        self._key: str | None = None
        self._is_broken = False

    def feed(self, text: str) -> bool:
        """Read on; True where a value was opened or closed. Raises nothing."""
        self.data += text.encode("utf-8", "replace")
        return self._read()

    def finish(self) -> bool:
        """Note that the text is over, which closes a number that is all of it."""
        self.data += b"\n"
        return self._read()

    def text_of(self, node: Node) -> bytes:
        """The JSON text of a closed value."""
        return bytes(self.data[node.start : node.end])

    def _read(self) -> bool:
        has_changed = False
        while not self._is_broken and (changed := self._next()) is not None:
            has_changed |= changed
        return has_changed

    def _next(self) -> bool | None:
        """Read one token: whether a value was opened or closed, None where it is not whole."""
        if self._token < 0:
            blanks = _BLANKS.match(self.data, self._position)
            assert blanks is not None
            self._position = blanks.end()
            if self._position >= len(self.data):
                return None
            sign = self.data[self._position : self._position + 1]
            if sign in b"{}[],:":
                self._position += 1
                return self._take_sign(sign)
            self._token, self._scanned = self._position, self._position + 1
        end = self._find_end()
        if end is None:
            return None
        start, self._token, self._position = self._token, -1, end
        return self._take_token(start, end)

    def _find_end(self) -> int | None:
        """Where the token that has begun ends."""
        is_string = self.data[self._token : self._token + 1] == b'"'
        while found := (_STRING_SIGN if is_string else _SCALAR_END).search(
            self.data, self._scanned
        ):
            if not is_string:
                return found.start()
            if found[0] == b'"':
                return found.end()
            if found.end() >= len(self.data):  # what is escaped has yet to come
                self._scanned = found.start()
                return None
            self._scanned = found.end() + 1
        self._scanned = len(self.data)
        return None

    def _take_sign(self, sign: bytearray) -> bool:
        if sign in b"{[":
            return self._add(Node("object" if sign == b"{" else "array", self._position - 1))
        if sign in b"}]":
            if not self._open or (self._open[-1].kind == "object") != (sign == b"}"):
                return self._break()
            self._open.pop().end = self._position
            self.num_closed += 1
            return True
        return False

    def _take_token(self, start: int, end: int) -> bool:
        is_key = bool(self._open) and self._open[-1].kind == "object" and self._key is None
        if not is_key:
            return self._add(Node("scalar", start, end))
        try:
            key = json.loads(self.data[start:end])
        except ValueError:
            return self._break()
        if not isinstance(key, str):
            return self._break()
        self._key = key
        return False

    def _add(self, node: Node) -> bool:
        """Put a value where it belongs."""
        if self._open:
            parent = self._open[-1]
            if parent.kind == "object":
                if self._key is None:
                    return self._break()
                parent.keys.append(self._key)
                self._key = None
            parent.children.append(node)
        elif self.root is None:
            self.root = node
        else:
            return self._break()
        if node.is_closed:
            self.num_closed += 1
        else:
            self._open.append(node)
        return True

    def _break(self) -> bool:
        self._is_broken = True
        return False
