"""Where in the JSON text of an object one stands, byte by byte, and the shortest way to its end.

{"a": [1, {"b      in a key, an object, a list and an object open: `": 0}]}` ends it
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, product

from structspec.grammars.key_places import Place, decoded_whole


class Mode(enum.Enum):
    """What comes next."""

    START = enum.auto()  # the object itself
    VALUE = enum.auto()
    FIRST_VALUE = enum.auto()  # or the end of the list
    KEY = enum.auto()
    FIRST_KEY = enum.auto()  # or the end of the object
    SPACE = enum.auto()  # between a comma and what it announces
    COLON = enum.auto()
    COLON_SPACE = enum.auto()
    IN_KEY = enum.auto()
    IN_STRING = enum.auto()
    IN_SCALAR = enum.auto()  # a number, or true, false, null
    AFTER = enum.auto()  # a value: a comma or the end of what it is in; or the end of it all


_SCALARS = {ord("t"): b"rue", ord("f"): b"alse", ord("n"): b"ull", ord("-"): b"0"}
_ENDS = {ord("{"): b"}", ord("["): b"]"}
_ESCAPED = b"n"  # what a backslash alone is completed by
_UNICODE = b"0000"  # what `\u` is completed by, and what is left of that
_LEADS = {0xE0: b"\xa0\x80", 0xED: b"\x80\x80", 0xF0: b"\x90\x80\x80", 0xF4: b"\x80\x80\x80"}


@dataclass(frozen=True, slots=True)
class Position:
    """Behind a beginning of a JSON object written with one blank behind `,` and `:`, or with none.

    `due` are the brackets that close what is open, the outermost first, and `rest` is what
    completes the escape, character, number or word that has begun. `place` knows the keys.
    """

    mode: Mode = Mode.START
    due: bytes = b""
    rest: bytes = b""
    place: Place = Place()
    has_blanks: bool = True

    def after(self, data: bytes) -> Position | None:
        """The position behind these bytes; None for what is no such JSON."""
        position: Position | None = self
        for byte in data:
            position = None if position is None else position._step(byte)
        if position is None:
            return None
        place = self.place.after(data, may_repeat=True)
        return None if place is None else replace(position, place=place)

    def closing(self) -> bytes:
        """The shortest text behind which the object is whole, or one as short as can be told."""
        return self._inner() + self.due[::-1]

    def closing_once_new(self) -> bytes:
        """The same, of an open string whose key, if it is one, its object has not got."""
        colon = b": 0" if self.has_blanks else b":0"
        return self.rest + b'"' + (colon if self.mode is Mode.IN_KEY else b"") + self.due[::-1]

    def missing_to_rivals(self) -> frozenset[bytes]:
        """What would make of the open key one that its object has."""
        begun = decoded_whole(self.place.key)
        if begun is None or self.mode is not Mode.IN_KEY:
            return frozenset()
        rivals = self.place.rivals
        return frozenset(rival[len(begun) :] for rival in rivals if rival.startswith(begun))

    def _inner(self) -> bytes:
        colon = b": 0" if self.has_blanks else b":0"
        match self.mode:
            case Mode.START:
                return b"{}"
            case Mode.VALUE:
                return b"0"
            case Mode.KEY:
                return b'"' + self._key_end() + b'"' + colon
            case Mode.IN_KEY:
                return self.rest + self._key_end() + b'"' + colon
            case Mode.SPACE:
                follows = replace(self, mode=self._announced())
                return b" " + follows._inner()
            case Mode.COLON:
                return colon
            case Mode.COLON_SPACE:
                return colon[1:]
            case Mode.IN_STRING:
                return self.rest + b'"'
            case _:
                return self.rest

    def _key_end(self) -> bytes:
        """What makes of the open key one that its object has not got."""
        opening = b'"' if self.mode is not Mode.IN_KEY else self.rest
        for end in _digits():
            if self.place.after(opening + end + b'"') is not None:
                return end
        raise AssertionError("no key is left")

    def _announced(self) -> Mode:
        """What a comma announces here."""
        return Mode.KEY if self.due.endswith(b"}") else Mode.VALUE

    def _step(self, byte: int) -> Position | None:
        match self.mode:
            case Mode.IN_KEY | Mode.IN_STRING:
                return self._step_in_string(byte)
            case Mode.IN_SCALAR:
                return self._step_in_scalar(byte)
            case Mode.START | Mode.VALUE | Mode.FIRST_VALUE:
                return self._begin_value(byte)
            case Mode.KEY | Mode.FIRST_KEY if byte == ord('"'):
                return self._to(Mode.IN_KEY)
            case Mode.SPACE if byte == ord(" "):
                return self._to(self._announced())
            case Mode.COLON if byte == ord(":"):
                return self._to(Mode.COLON_SPACE if self.has_blanks else Mode.VALUE)
            case Mode.COLON_SPACE if byte == ord(" "):
                return self._to(Mode.VALUE)
            case Mode.AFTER if byte == ord(",") and self.due:
                return self._to(Mode.SPACE if self.has_blanks else self._announced())
            case Mode.AFTER | Mode.FIRST_KEY:
                return self._close(byte)
        return None

    def _to(self, mode: Mode, rest: bytes = b"") -> Position:
        return Position(mode, self.due, rest, self.place, self.has_blanks)

    def _close(self, byte: int) -> Position | None:
        if not self.due or byte != self.due[-1]:
            return None
        return Position(Mode.AFTER, self.due[:-1], b"", self.place, self.has_blanks)

    def _begin_value(self, byte: int) -> Position | None:
        if byte in _ENDS and (self.mode is not Mode.START or byte == ord("{")):
            mode = Mode.FIRST_KEY if byte == ord("{") else Mode.FIRST_VALUE
            return Position(mode, self.due + _ENDS[byte], b"", self.place, self.has_blanks)
        if self.mode is Mode.START:
            return None
        if byte == ord('"'):
            return self._to(Mode.IN_STRING)
        if byte in _SCALARS or ord("0") <= byte <= ord("9"):
            return self._to(Mode.IN_SCALAR, _SCALARS.get(byte, b""))
        return self._close(byte) if self.mode is Mode.FIRST_VALUE else None

    def _step_in_scalar(self, byte: int) -> Position | None:
        if self.rest and self.rest[0] == byte and byte != ord("0"):  # of a word
            return self._to(Mode.IN_SCALAR, self.rest[1:])
        if ord("0") <= byte <= ord("9"):
            return self._to(Mode.IN_SCALAR)
        if byte in b".eE+-":
            return self._to(Mode.IN_SCALAR, b"0")
        return None if self.rest else self._to(Mode.AFTER)._step(byte)

    def _step_in_string(self, byte: int) -> Position | None:
        if self.rest == _ESCAPED:
            return self._to(self.mode, _UNICODE if byte == ord("u") else b"")
        if self.rest:
            return self._to(self.mode, self.rest[1:])
        if byte == ord('"'):
            return self._to(Mode.COLON if self.mode is Mode.IN_KEY else Mode.AFTER)
        if byte == ord("\\"):
            return self._to(self.mode, _ESCAPED)
        if byte < 0xC0:
            return self
        length = 3 if byte >= 0xF0 else 2 if byte >= 0xE0 else 1
        return self._to(self.mode, _LEADS.get(byte, b"\x80" * length))


def _digits() -> Iterator[bytes]:
    """Nothing, then all digits, then all pairs of them, and so on."""
    for length in count():
        for digits in product(b"0123456789", repeat=length):
            yield bytes(digits)
