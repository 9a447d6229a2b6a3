r"""JSON numbers as Lark terminals: ranges are regular once numbers are read digit by digit.

    x >= L  and  x <= U  and  not one of ...     become     NUMBER & /at least L/ & /at most U/

Two spellings: the canonical one writes what `json.dumps` writes for usual numbers, integers as
integers; the lenient one admits every spelling JSON has (`1.0` and `1e2` are integers too), except
that numbers in a range take exponents only where all of them belong to the range.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from math import gcd, lcm

from structspec.grammars.json.shapes import Limit, Number

_WHOLE = "(0|[1-9][0-9]*)"
_FRACTION = r"(\.[0-9]+)?"
_EXPONENT = "([eE][+-]?[0-9]+)?"
# more places than a float has cannot follow its point: whole whatever they are
_HUGE_INTEGER = r"[1-9](\.[0-9]{1,16})?[eE]\+?0*(1[6-9]|[2-9][0-9]|[1-9][0-9]{2,})"
# what a float holds: exponents beyond 99 behind one digit only, and none beyond the largest
_FINITE = (
    r"-?[0-9]+(\.[0-9]+)?([eE](-[0-9]+|\+?0*[0-9]{1,2}))?"
    r"|-?[0-9](\.[0-9]+)?[eE]\+?0*([12][0-9]{2}|30[0-7])"
    r"|-?1(\.([0-6][0-9]*|7[0-8]?|7[0-8][0-9]+|7976931348623157))?[eE]\+?0*308"
)
_MAX_MULTIPLE, _MAX_PLACES = 10_000, 10**9  # remainders are states: 10,000 take 50 ms
_MAX_LIMIT = 10**17  # llguidance has no regex for ranges that end much beyond
_MAX_LISTED = 256  # multiples in a range are listed up to so many
_MANTISSA = r"[1-9](\.[0-9]+)?[eE]"
# behind a mantissa, such that a float has the number and not zero in its place
_POWER_ABOVE_ZERO = r"(\+?[0-9]+|-0*([0-9]{1,2}|[12][0-9]{2}|3([01][0-9]|2[0-3])))"


def number_body(number: Number, *, is_lenient: bool) -> str:
    """The body of a Lark terminal for these numbers, `multiple` left out."""
    if number.values is not None:
        return _values(number.values, is_lenient=is_lenient)
    parts = [_kind(number, is_lenient=is_lenient)]
    if number.lower is not None:
        parts.append(f"/{_at_least(number.lower)}/")
    if number.upper is not None:
        parts.append(f"/{_at_most(number.upper)}/")
    if number.excluded:
        every = _values(tuple(sorted(number.excluded)), is_lenient=True)
        parts.append(f"~({every})")
    if "[eE]" in parts[0] and (number.lower is None or number.upper is None):
        parts.append(f"/{_FINITE}/")
    return " & ".join(parts)


def simplified(number: Number) -> Number:
    """A short range of multiples as a list of its values; no multiple that all integers are."""
    step = number.multiple
    if number.values is not None or step is None:
        return number
    if number.is_integer:
        step = Fraction(lcm(step.numerator, 1), gcd(step.denominator, 1))
        number = replace(number, multiple=None if step == 1 else step)
    values = multiples_in_range(number, step, _MAX_LISTED)
    if values is None:
        return number
    return Number(number.is_integer, values=values, losses=number.losses)


def multiples_in_range(number: Number, step: Fraction, limit: int) -> tuple[Fraction, ...] | None:
    """Those of its numbers that are multiples of a step, if the range has room for few."""
    if number.lower is None or number.upper is None:
        return None
    if (number.upper.value - number.lower.value) / step > limit:
        return None
    first, last = -(-number.lower.value // step), number.upper.value // step
    return tuple(value for n in range(first, last + 1) if number.has(value := n * step))


def has_number(number: Number) -> bool:
    """Whether there is any such number."""
    if number.values is not None:
        return bool(number.values)
    step = number.multiple or (Fraction(1) if number.is_integer else None)
    if step is None:
        return True  # a range that is not empty holds numbers without end
    if number.is_integer is False and step.denominator == 1:
        return False
    # of as many in a row as this, one is not excluded and of the right kind
    num_tried = (len(number.excluded) + 3) * step.denominator
    if number.lower is not None:
        first = -(-number.lower.value // step)
    else:
        first = 0 if number.upper is None else number.upper.value // step - num_tried
    return any(number.has((first + n) * step) for n in range(num_tried + 1))


def json_schema_of(number: Number) -> str | None:
    """The same as a schema that llguidance holds, for multiples; None where there is none."""
    step = number.multiple
    if step is None or number.excluded or number.is_integer is False:
        return None
    if step.numerator > _MAX_MULTIPLE or step.denominator > _MAX_PLACES:
        return None
    if any(limit and abs(limit.value) > _MAX_LIMIT for limit in (number.lower, number.upper)):
        return None
    schema: dict[str, object] = {"type": "integer" if number.is_integer else "number"}
    for limit, closed, opened in (
        (number.lower, "minimum", "exclusiveMinimum"),
        (number.upper, "maximum", "exclusiveMaximum"),
    ):
        if limit is not None:
            schema[opened if limit.is_open else closed] = _plain(limit.value)
    schema["multipleOf"] = _plain(step)
    return json.dumps(schema)


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _kind(number: Number, *, is_lenient: bool) -> str:
    is_ranged = number.lower is not None or number.upper is not None
    if number.is_integer is False:
        return f"/-?({_fractional(has_exponents=not number.excluded)})/"
    if number.is_integer:
        if not is_lenient:
            return "/-?[1-9][0-9]*|0/"
        exponent = "" if is_ranged or number.excluded else r"([eE]\+?[0-9]+)?"
        huge = "" if number.excluded else f"|-?{_HUGE_INTEGER}"
        return rf"/-?{_WHOLE}(\.0+)?{exponent}{huge}/"
    if number.excluded:  # in the spellings that are excluded too
        return f"/-?{_WHOLE}{_FRACTION}/"
    if not is_ranged:
        return f"/-?{_WHOLE}{_FRACTION}{_EXPONENT}/"
    return f"/-?({_WHOLE}{_FRACTION}|{_MANTISSA}[+-]?[0-9]+)/"


def _fractional(*, has_exponents: bool) -> str:
    """Numbers without a sign that are not whole, and as floats are not either.

    In 16 digits a float tells them from the nearest integers; 1.9999999999999999 is 2.
    """
    forms = [rf"0\.({_between_integers(16, num_zeros=30)})"]
    for places in range(1, 16):
        forms.append(rf"[1-9][0-9]{{{15 - places}}}\.({_between_integers(places, places - 1)})")
    if has_exponents:
        forms.append(rf"{_MANTISSA}-0*([2-9]|[1-9][0-9])")
    return "|".join(forms)


def _between_integers(places: int, num_zeros: int) -> str:
    """Fractions after at most so many zeros that are not 1 when rounded to so many places."""
    forms = [f"0{{0,{num_zeros}}}[1-8][0-9]*", f"9{{1,{places}}}0*"]
    if num_zeros:
        forms.append(f"0{{1,{num_zeros}}}9[0-9]*")
    if places > 1:
        forms.append(f"9{{1,{places - 1}}}[0-8][0-9]*")
    return "|".join(forms)


# Ranges


def _digits(value: Fraction) -> tuple[str, str]:
    """The digits before and behind the point of a number from 0 up that has finitely many."""
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
    if value < 0:
        return f"-({_above(-value, limit.is_open)})"
    if value == 0 and limit.is_open:
        return rf"-([0-9.]*[1-9][0-9.]*([eE]{_POWER_ABOVE_ZERO})?)"
    return f"-[0-9].*|{_below(value, limit.is_open)}"


def _above(value: Fraction, is_open: bool) -> str:
    """Numbers without a sign from `value` up."""
    whole, behind = _digits(value)
    forms = [f"[1-9][0-9]{{{len(whole)},}}{_FRACTION}"]
    for place, digit in enumerate(whole):
        if digit < "9":
            bigger, left = chr(ord(digit) + 1), len(whole) - place - 1
            forms.append(f"{whole[:place]}[{bigger}-9][0-9]{{{left}}}{_FRACTION}")
    forms += (rf"{whole}\.{form}" for form in _fractions_above(behind))
    if behind:
        forms += [] if is_open else [rf"{whole}\.{behind}0*"]
    else:
        forms += [] if is_open else [rf"{whole}(\.0+)?"]
    if value == 0:
        forms.append(f"{_MANTISSA}{_POWER_ABOVE_ZERO if is_open else '[+-]?[0-9]+'}")
    else:  # from the next power of ten on
        power = _num_tens(value)
        is_itself = is_open and 10**power == value
        forms.append(rf"{_MANTISSA}\+?0*({_whole_from(power + is_itself)})")
        if is_itself:
            forms.append(rf"([2-9]{_FRACTION}|1\.0*[1-9][0-9]*)[eE]\+?0*{power}")
    return "|".join(forms)


def _num_tens(value: Fraction) -> int:
    """The least power of ten, from 0 up, that is not less than a value."""
    power = 0
    while 10**power < value:
        power += 1
    return power


def _num_places(value: Fraction) -> int:
    """The least number of places, from 0 up, after which 1 is no more than a value."""
    places = 0
    while value * 10**places < 1:
        places += 1
    return places


def _whole_from(least: int) -> str:
    """Whole numbers from `least` up."""
    digits = str(least)
    forms = [f"[1-9][0-9]{{{len(digits)},}}", digits]
    for place, digit in enumerate(digits):
        if digit < "9":
            left = len(digits) - place - 1
            forms.append(f"{digits[:place]}[{int(digit) + 1}-9][0-9]{{{left}}}")
    return "|".join(forms)


def _fractions_above(behind: str) -> list[str]:
    forms = [
        f"{behind[:place]}[{chr(ord(digit) + 1)}-9][0-9]*"
        for place, digit in enumerate(behind)
        if digit < "9"
    ]
    return [*forms, f"{behind}0*[1-9][0-9]*"]


def _below(value: Fraction, is_open: bool) -> str:
    """Numbers without a sign from 0 to `value`."""
    whole, behind = _digits(value)
    forms = []
    if len(whole) > 1:
        forms.append(f"(0|[1-9][0-9]{{0,{len(whole) - 2}}}){_FRACTION}")
    for place, digit in enumerate(whole):
        low = "1" if place == 0 and len(whole) > 1 else "0"
        if digit > low:
            smaller, left = chr(ord(digit) - 1), len(whole) - place - 1
            forms.append(f"{whole[:place]}[{low}-{smaller}][0-9]{{{left}}}{_FRACTION}")
    for place, digit in enumerate(behind):
        start = rf"{whole}\.{behind[:place]}"
        if digit > "0":
            forms.append(f"{start}[0-{chr(ord(digit) - 1)}][0-9]*")
        forms.append(rf"{whole}(\.{behind[:place]}0*)?" if place == 0 else f"{start}0*")
    if behind and not is_open:
        forms.append(rf"{whole}\.{behind}0*")
    if not behind and not is_open:
        forms.append(rf"{whole}(\.0+)?")
    if value > 0:  # below the last power of ten: 9.99e-4 is less than 1e-3
        forms.append(f"{_MANTISSA}-0*({_whole_from(max(1, _num_places(value) + 1))})")
    return "|".join(forms) or "[^\\s\\S]"


# Lists


def _values(values: tuple[Fraction, ...], *, is_lenient: bool) -> str:
    forms = [form for value in values for form in _spellings(value, is_lenient=is_lenient)]
    return "/" + "|".join(dict.fromkeys(forms)) + "/"


def _spellings(value: Fraction, *, is_lenient: bool) -> list[str]:
    sign = "-" if value < 0 else ""
    whole, behind = _digits(abs(value))
    forms = []
    if behind:
        forms.append(rf"{sign}{whole}\.{behind}" + ("0*" if is_lenient else ""))
    else:
        sign = "-?" if is_lenient and value == 0 else sign
        forms.append(rf"{sign}{whole}" + (r"(\.0+)?" if is_lenient else ""))
    written = json.dumps(_plain(value) if behind else float(value))
    if "e" in written:
        forms.append(written.replace("+", r"\+").replace(".", r"\."))
    return forms
