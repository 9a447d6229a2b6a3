"""The value out of the object that it had to be put into, piece by piece."""

from __future__ import annotations

import json
import re
from typing import Protocol

from structspec.client.strict import WRAPPED

_OPENING = re.compile(rf'\s*\{{\s*"{WRAPPED}"\s*:\s*')
_CLOSING = re.compile(r"\s*(\}\s*)?$")


class Unwrapping(Protocol):
    """Reads the text of an object with one property and gives that of its value."""

    def feed(self, text: str) -> str:
        """What is certain to belong to the value."""

    def finish(self) -> str:
        """What is left; the text as it is where it was no such object."""


class JsonUnwrapping:
    """Gives the value's JSON."""

    def __init__(self) -> None:
        self._held = ""  # before the value: all there is; within: what may be the object's end
        self._is_within = False

    def feed(self, text: str) -> str:
        """As Unwrapping says."""
        self._held += text
        if not self._is_within:
            opening = _OPENING.match(self._held)
            if opening is None or opening.end() == len(self._held):
                return ""
            self._held = self._held[opening.end() :]
            self._is_within = True
        closing = _CLOSING.search(self._held)
        assert closing is not None
        certain, self._held = self._held[: closing.start()], self._held[closing.start() :]
        return certain

    def finish(self) -> str:
        """As Unwrapping says."""
        return self._held.strip().removesuffix("}") if self._is_within else self._held


class StringUnwrapping:
    """Gives the value's text, all of it at the end."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> str:
        """As Unwrapping says."""
        self._text += text
        return ""

    def finish(self) -> str:
        """As Unwrapping says."""
        try:
            value = json.loads(self._text)
        except (ValueError, RecursionError):
            return self._text
        is_wrapped = isinstance(value, dict) and value.keys() == {WRAPPED}
        return value[WRAPPED] if is_wrapped and isinstance(value[WRAPPED], str) else self._text
