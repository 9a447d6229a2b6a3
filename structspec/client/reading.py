"""Where a body is looked into that somebody else has written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from structspec.errors import ServerError

_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


@contextmanager
def reading(what: str, text: object) -> Iterator[None]:
    """Raises ServerError for a body that is not of the form it should have."""
    try:
        yield
    except _UNREADABLE as error:
        raise ServerError(
            f"the server's {what} cannot be read ({error!r}): {str(text)[:300]}"
        ) from None
