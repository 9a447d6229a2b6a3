"""`$ref` in finished text: what a value meets only if it meets it already, it does not meet.

So `{"anyOf": [{"$ref": "#"}, {"type": "null"}]}` is null, as the mask has it. jsonschema would
follow it round and round until Python's stack ends, which inside rpds, the maps it keeps anchors
in, is a panic that no `except Exception` catches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema.exceptions import ValidationError


class _Open(threading.local):
    """The references being followed in this thread, each with the value it is about."""

    def __init__(self) -> None:
        self.places: set[tuple[int, int]] = set()


_OPEN = _Open()
CIRCLE = "the schema leads back to itself on the same value"


def reference(validator: Any, target: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    """`$ref`: what it leads to is met, without the help of this very reference."""
    resolved = validator._resolver.lookup(target)
    # a value is no part of itself, so the same object here is the same place
    place = (id(resolved.contents), id(value))
    if place in _OPEN.places:
        yield ValidationError(CIRCLE)
        return
    _OPEN.places.add(place)
    try:
        yield from validator.descend(value, resolved.contents, resolver=resolved.resolver)
    finally:
        _OPEN.places.discard(place)


def local_target(target: Any, root: Any) -> Any:
    """What a reference into the same schema names; None where it names nothing there."""
    if not isinstance(target, str) or not target.startswith("#"):
        return None
    found = root
    for part in target[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def is_stack_end(error: BaseException) -> bool:
    """Whether Python's stack ended, be it inside Rust, which has a word of its own for that."""
    return isinstance(error, RecursionError) or type(error).__name__ == "PanicException"
