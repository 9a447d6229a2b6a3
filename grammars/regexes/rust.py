"""Character classes in the syntax of Rust's regex crate, safe between the slashes of Lark."""

from __future__ import annotations

from structspec.grammars.regexes.ranges import MAX_CODE_POINT, Ranges

_NO_CHARACTER = rf"[^\x00-\x{{{MAX_CODE_POINT:X}}}]"


def character_class(pairs: Ranges) -> str:
    """A class of these characters; a single letter or digit is itself."""
    if not pairs:
        return _NO_CHARACTER
    low, high = pairs[0]
    if len(pairs) == 1 and low == high:
        return _character(low)
    return f"[{''.join(_range(low, high) for low, high in _joined_over_surrogates(pairs))}]"


def _joined_over_surrogates(pairs: Ranges) -> list[tuple[int, int]]:
    """Fewer ranges: Rust leaves surrogates out by itself."""
    joined: list[tuple[int, int]] = []
    for low, high in pairs:
        if joined and low == 0xE000 and joined[-1][1] == 0xD7FF:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined


def _range(low: int, high: int) -> str:
    if low == high:
        return _character(low)
    separator = "" if high == low + 1 else "-"
    return f"{_character(low)}{separator}{_character(high)}"


def _character(code_point: int) -> str:
    character = chr(code_point)
    if character.isascii() and (character.isalnum() or character == "_"):
        return character
    return f"\\x{code_point:02X}" if code_point < 0x80 else f"\\x{{{code_point:X}}}"
