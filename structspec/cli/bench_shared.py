"""What the parts of `structspec bench` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structspec.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 140  # of tables in a file or pipe


def check_positive(name: str, value: float | None) -> None:
    """Raise InvalidRequest for an option below 1; None is one that was not given."""
    if value is not None and value < 1:
        raise InvalidRequest(f"--{name} must be at least 1, not {value}")


def wide_console() -> Console:
    """The terminal, or a file or pipe as wide as tables need."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)
