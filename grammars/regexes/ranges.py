"""Sets of code points as sorted, disjoint, inclusive ranges; surrogates belong to none of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Ranges = tuple[tuple[int, int], ...]

MAX_CODE_POINT = 0x10FFFF
EVERY: Ranges = ((0, 0xD7FF), (0xE000, MAX_CODE_POINT))


def normalise(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """The set these ranges cover, in any order and overlapping, without surrogates."""
    return intersect(_merge(sorted(pairs)), EVERY)


def union(a: Ranges, b: Ranges) -> Ranges:
    """What is in either."""
    return intersect(_merge(sorted((*a, *b))), EVERY)


def intersect(a: Ranges, b: Ranges) -> Ranges:
    """What is in both."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def invert(a: Ranges) -> Ranges:
    """Every other character."""
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in a:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        found.append((start, MAX_CODE_POINT))
    return intersect(tuple(found), EVERY)


def subtract(a: Ranges, b: Ranges) -> Ranges:
    """What is in `a` alone."""
    return intersect(a, invert(b))


def size(a: Ranges) -> int:
    """How many characters there are."""
    return sum(high - low + 1 for low, high in a)


def code_points(a: Ranges) -> Iterator[int]:
    """Each of them, in order."""
    for low, high in a:
        yield from range(low, high + 1)


def of(characters: str) -> Ranges:
    """The set of these characters."""
    return normalise((ord(c), ord(c)) for c in characters)


def _merge(pairs: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in pairs:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)
