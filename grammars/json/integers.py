"""Ranges of integers, written as `json.dumps` does, as one regular expression on their digits.

    8 to 1234     [8-9]|[1-9][0-9]{1,2}|1([0-1][0-9]{2}|2([0-2][0-9]|3[0-4]))

The ends of `ranges.py`, met with the integers, are the same texts; but those know fractions and
exponents too, and llguidance takes some 0.4 ms to read them and be rid of them again.
"""

from __future__ import annotations

from math import ceil, floor

from structspec.grammars.json.shapes import Limit

_MAX_END = 10**18  # one group inside another for each digit: more are left to `ranges.py`


def integer_range(lower: Limit | None, upper: Limit | None) -> str | None:
    """The regular expression, slashes left out; None for an empty range, or for large ends."""
    low = None if lower is None else _first_from(lower)
    high = None if upper is None else -_first_from(Limit(-upper.value, upper.is_open))
    if any(end is not None and abs(end) > _MAX_END for end in (low, high)):
        return None
    forms: list[str] = []
    if low is None or low < 0:
        least = 1 if high is None or high >= 0 else -high
        forms.append(f"-{_group(_naturals(least, None if low is None else -low))}")
    if high is None or high >= 0:
        forms += _naturals(max(low or 0, 0), high)
    is_empty = low is not None and high is not None and low > high
    return None if is_empty else "|".join(forms)


def _first_from(limit: Limit) -> int:
    """The least integer that a lower end admits."""
    return floor(limit.value) + 1 if limit.is_open else ceil(limit.value)


def _naturals(low: int, high: int | None) -> list[str]:
    """From 0 up, without zeros before them."""
    if low == 0:
        return ["0"] if high == 0 else ["0", *_naturals(1, high)]
    if high is not None and len(str(low)) == len(str(high)):
        return _as_long(str(low), str(high))
    forms: list[str] = []
    shortest, longest = len(str(low)), None if high is None else len(str(high))
    if low != 10 ** (shortest - 1):  # else all of its length belong to the range
        forms += _as_long(str(low), "9" * shortest)
        shortest += 1
    is_full = longest is not None and high == 10**longest - 1
    most = None if longest is None else longest - (not is_full)
    if most is None or shortest <= most:
        forms.append(f"[1-9]{_digits(shortest - 1, None if most is None else most - 1)}")
    if longest is not None and not is_full:
        forms += _as_long("1" + "0" * (longest - 1), str(high))
    return forms


def _as_long(low: str, high: str) -> list[str]:
    """From `low` to `high`, which have equally many digits."""
    if len(low) == 1:
        return [_either(low, high)]
    first, last, num_left = low[0], high[0], len(low) - 1
    if first == last:
        return [first + _group(_as_long(low[1:], high[1:]))]
    before: list[str] = []
    behind: list[str] = []
    if low[1:].strip("0"):
        before = [first + _group(_as_long(low[1:], "9" * num_left))]
        first = str(int(first) + 1)
    if high[1:].strip("9"):
        behind = [last + _group(_as_long("0" * num_left, high[1:]))]
        last = str(int(last) - 1)
    between = [_either(first, last) + _digits(num_left, num_left)] if first <= last else []
    return before + between + behind


def _either(first: str, last: str) -> str:
    return first if first == last else f"[{first}-{last}]"


def _digits(low: int, high: int | None) -> str:
    """So many more digits, whatever they are."""
    if high is None:
        return f"[0-9]{{{low},}}" if low else "[0-9]*"
    if high == 0:
        return ""
    if low == high:
        return "[0-9]" if low == 1 else f"[0-9]{{{low}}}"
    return f"[0-9]{{{low},{high}}}"


def _group(forms: list[str]) -> str:
    return forms[0] if len(forms) == 1 else f"({'|'.join(forms)})"
