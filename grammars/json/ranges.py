"""Ranges of numbers as regular expressions on their spelling, digit by digit.

A text belongs to a range if its decimal does, and the float that is read from it as well: 17 nines
behind the point are less than 1, but read as 1.0. Decimals that end at a float below the limit
read as such. Beyond 2**53, where most integers are no floats, integers are compared as they are
written and all other texts by the nearest float that belongs to the range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from structspec.grammars.json.shapes import Limit

_FRACTION = r"(\.[0-9]+)?"
_INTEGER = "-?[0-9]+"
_FLOAT = r"-?[0-9]+(\.[0-9]+([eE].*)?|[eE].*)"
MAX_EXACT = 2**53  # up to here every integer is a float
# so many zeros, or such an exponent, that a float has the number and not zero in its place
_NUM_ZEROS = 300
_ABOVE_ZERO = (
    rf"[1-9]{_FRACTION}[eE](\+?[0-9]+|-0*([0-9]{{1,2}}|[12][0-9]{{2}}|3([01][0-9]|2[0-3])))"
    rf"|[3-9]{_FRACTION}[eE]-0*324"
)


def range_bodies(limit: Limit, *, is_lower: bool, has_floats: bool) -> Iterator[str]:
    """Lark terminals whose intersection is one end of a range."""
    end = _at_least if is_lower else _at_most
    is_large = abs(limit.value) > MAX_EXACT
    yield f"/{_FLOAT}|{end(limit)}/" if is_large else f"/{end(limit)}/"
    if has_floats and (is_large or (limit.is_open and limit.value)):
        nearest = _float_beside(limit, is_up=is_lower)
        floats = "" if math.isinf(nearest) else f"|{end(Limit(Fraction(repr(nearest))))}"
        yield f"/{_INTEGER}{floats}/"


def other_than(values: Sequence[Fraction]) -> str:
    """A Lark terminal for all numbers but these, in order, and but those that are read as one.

    For floats it is a list of gaps: of as many terminals that each leave one out the intersection
    would take time without end.
    """
    whole = "|".join("-?0" if v == 0 else str(v) for v in values if v.denominator == 1)
    gaps, low = [], ""
    for value in filter(is_float, values):
        high, above = (_beside(value, is_up=is_up) for is_up in (False, True))
        gaps += [f"(/{low}/ & /{high}/)" if low else f"/{high}/"] if high else []
        low = above
    gaps += [f"/{low}/"] if low else []
    floats = f"(/{_INTEGER}/ | {' | '.join(gaps)})" if gaps else f"/{_INTEGER}|{_FLOAT}/"
    return f"{floats} & ~(/{whole}/)" if whole else floats


def _beside(value: Fraction, *, is_up: bool) -> str:
    """What is read as a float above, or below, the one that holds a value; "" for none."""
    end = _at_least if is_up else _at_most
    if value == 0:
        return end(Limit(value, is_open=True))
    nearest = math.nextafter(float(value), math.inf if is_up else -math.inf)
    return "" if math.isinf(nearest) else end(Limit(Fraction(repr(nearest))))


def is_float(value: Fraction) -> bool:
    """Whether a float holds it; of those that are not whole, each that was written is one."""
    return value.denominator != 1 or Fraction(float(value)) == value


def _float_beside(limit: Limit, *, is_up: bool) -> float:
    """The float in a range that is nearest to its limit; infinite where there is none."""
    nearest = float(limit.value)
    # what is not whole was read from this float
    held = Fraction(nearest) if limit.value.denominator == 1 else limit.value
    is_outside = held < limit.value if is_up else held > limit.value
    if is_outside or (limit.is_open and held == limit.value):
        return math.nextafter(nearest, math.inf if is_up else -math.inf)
    return nearest


def digits_of(value: Fraction) -> tuple[str, str]:
    """The digits before and behind the point of a number from 0 up that has finitely many."""
    if value.denominator == 1:
        return str(value.numerator), ""
    with localcontext() as context:
        context.prec = 2000
        text = format(Decimal(value.numerator) / Decimal(value.denominator), "f")
    whole, _, behind = text.partition(".")
    return whole, behind.rstrip("0")


def _at_least(limit: Limit) -> str:
    value = limit.value
    if value < 0:
        return f"[0-9].*|-({_below(-value, limit.is_open)})"
    above = _above(value, limit.is_open)
    return above if value or limit.is_open else rf"{above}|-0(\.0+)?"


def _at_most(limit: Limit) -> str:
    value = limit.value
    if value < 0 or (value == 0 and limit.is_open):
        return f"-({_above(-value, limit.is_open)})"
    return f"-[0-9].*|{_below(value, limit.is_open)}"


def _above(value: Fraction, is_open: bool) -> str:
    """Numbers without a sign from `value` up."""
    if value == 0:
        least = rf"0\.0{{0,{_NUM_ZEROS}}}[1-9][0-9]*" if is_open else rf"0{_FRACTION}"
        powers = _ABOVE_ZERO if is_open else f"[1-9]{_FRACTION}[eE][+-]?[0-9]+"
        return rf"[1-9][0-9]*{_FRACTION}|{least}|{powers}"
    whole, behind = digits_of(value)
    digit, others, power = _scientific(whole, behind)
    forms = [
        f"[1-9][0-9]{{{len(whole)},}}{_FRACTION}",
        *_as_long_above(whole, behind, is_open),
        f"({'|'.join(_as_long_above(digit, others, is_open))})[eE]{_power(power)}",
        f"[1-9]{_FRACTION}[eE]({_powers_above(power)})",
    ]
    return "|".join(forms)


def _below(value: Fraction, is_open: bool) -> str:
    """Numbers without a sign from 0 to `value`, which is more unless zero itself belongs to it."""
    whole, behind = digits_of(value)
    forms = list(_as_long_below(whole, behind, is_open, "1" if len(whole) > 1 else "0"))
    if len(whole) > 1:
        forms.append(f"(0|[1-9][0-9]{{0,{len(whole) - 2}}}){_FRACTION}")
    if value:
        digit, others, power = _scientific(whole, behind)
        mantissas = "|".join(_as_long_below(digit, others, is_open, "1"))
        forms += [f"({mantissas})[eE]{_power(power)}"] if mantissas else []
        forms.append(f"[1-9]{_FRACTION}[eE]({_powers_below(power)})")
    return "|".join(forms)


def _scientific(whole: str, behind: str) -> tuple[str, str, int]:
    """The first digit that is not zero, those behind it, and the power of ten of the first."""
    digits = (whole + behind).lstrip("0")
    power = len(whole) - 1 - (len(whole + behind) - len(digits))
    return digits[0], digits[1:].rstrip("0"), power


def _as_long_above(whole: str, behind: str, is_open: bool) -> Iterator[str]:
    """Numbers from one up, with as many digits before the point."""
    for place, digit in enumerate(whole):
        if digit < "9":
            left = len(whole) - place - 1
            yield f"{whole[:place]}[{int(digit) + 1}-9][0-9]{{{left}}}{_FRACTION}"
    for place, digit in enumerate(behind):
        if digit < "9":
            yield rf"{whole}\.{behind[:place]}[{int(digit) + 1}-9][0-9]*"
    yield rf"{whole}\.{behind}0*[1-9][0-9]*"
    if not is_open:
        yield _itself(whole, behind)


def _as_long_below(whole: str, behind: str, is_open: bool, first: str) -> Iterator[str]:
    """Numbers up to one, with as many digits before the point, the first of them at least so."""
    for place, digit in enumerate(whole):
        low = "0" if place else first
        if digit > low:
            left = len(whole) - place - 1
            yield f"{whole[:place]}[{low}-{int(digit) - 1}][0-9]{{{left}}}{_FRACTION}"
    for place, digit in enumerate(behind):
        if digit > "0":
            yield rf"{whole}\.{behind[:place]}[0-{int(digit) - 1}][0-9]*"
        yield _itself(whole, behind[:place])
    if not is_open:
        yield _itself(whole, behind)


def _itself(whole: str, behind: str) -> str:
    return rf"{whole}\.{behind}0*" if behind else rf"{whole}(\.0+)?"


def _power(power: int) -> str:
    """The exponent that is a power of ten."""
    if power == 0:
        return "[+-]?0+"
    return rf"\+?0*{power}" if power > 0 else f"-0*{-power}"


def _powers_above(power: int) -> str:
    if power >= 0:
        return rf"\+?0*({_whole_from(power + 1)})"
    return rf"\+?[0-9]+|-0*({_whole_to(-power - 1)})"


def _powers_below(power: int) -> str:
    if power <= 0:
        return f"-0*({_whole_from(-power + 1)})"
    return rf"-[0-9]+|\+?0*({_whole_to(power - 1)})"


def _whole_from(least: int) -> str:
    """Whole numbers from `least` up."""
    digits = str(least)
    forms = [f"[1-9][0-9]{{{len(digits)},}}", digits]
    for place, digit in enumerate(digits):
        if digit < "9":
            left = len(digits) - place - 1
            forms.append(f"{digits[:place]}[{int(digit) + 1}-9][0-9]{{{left}}}")
    return "|".join(forms)


def _whole_to(most: int) -> str:
    """Whole numbers from 0 to `most`, with zeros before them or without."""
    digits = str(most)
    forms = [digits]
    for place, digit in enumerate(digits):
        if digit > "0":
            left = len(digits) - place - 1
            forms.append(f"{digits[:place]}[0-{int(digit) - 1}][0-9]{{{left}}}")
    if len(digits) > 1:
        forms.append(f"[0-9]{{1,{len(digits) - 1}}}")
    return "|".join(forms)
