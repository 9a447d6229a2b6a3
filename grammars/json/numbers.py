r"""JSON numbers as Lark terminals: ranges are regular once numbers are read digit by digit.

    x >= L  and  x <= U  and  not one of ...     become     NUMBER & /at least L/ & /at most U/

Two spellings: the canonical one writes what `json.dumps` writes for usual numbers, integers as
integers; the lenient one admits other spellings too (`1.0` and `1e2` are integers). In a range an
exponent stands behind one digit and a fraction, as in `2.5e3`; what is left out (`25e2`, `0e1`,
and for integers `200e-2`) nobody writes, and where the exponent leads is not regular.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

from structspec.grammars.json.integers import integer_range
from structspec.grammars.json.ranges import MAX_EXACT, digits_of, is_float, other_than, range_bodies
from structspec.grammars.json.shapes import Limit, Number

_WHOLE = "(0|[1-9][0-9]*)"
_FRACTION = r"(\.[0-9]+)?"
# whole as long as the point has no more digits behind it than the exponent moves it by; beyond 15
# whatever follows, since a float has no more
_WHOLE_POWERS = "|".join(
    (
        r"[1-9](\.0+)?[eE][+-]?0+",
        *(rf"[1-9](\.([0-9]{{1,{n}}}0*|0+))?[eE]\+?0*{n}" for n in range(1, 16)),
        r"[1-9](\.[0-9]{1,16})?[eE]\+?0*(1[6-9]|[2-9][0-9]|[1-9][0-9]{2,})",
    )
)
# what a float holds: exponents beyond 99 behind one digit only, and none beyond the largest
_SHORT_EXPONENT = r"([eE](-[0-9]+|\+?0*[0-9]{1,2}))?"
_LONG_EXPONENTS = (
    r"-?[0-9](\.[0-9]+)?[eE]\+?0*([12][0-9]{2}|30[0-7])"
    r"|-?1(\.([0-6][0-9]*|7[0-8]?|7[0-8][0-9]+|7976931348623157))?[eE]\+?0*308"
)
_FINITE = rf"-?[0-9]+(\.[0-9]+)?{_SHORT_EXPONENT}|{_LONG_EXPONENTS}"
_ANY = rf"/-?{_WHOLE}{_FRACTION}{_SHORT_EXPONENT}|{_LONG_EXPONENTS}/"  # quicker to read than an `&`
_MAX_MULTIPLE, _MAX_PLACES = 10_000, 10**9  # remainders are states: 10,000 take 50 ms
_MAX_LIMIT = 10**17  # llguidance has no regex for ranges that end much beyond
_MAX_LISTED = 256  # multiples in a range are listed up to so many
_MANTISSA = r"[1-9](\.[0-9]+)?[eE]"


@lru_cache(maxsize=1024)
def number_body(number: Number, *, is_lenient: bool) -> str:
    """The body of a Lark terminal for these numbers, `multiple` left out."""
    if number.values is not None:
        has_zeros = is_lenient or (number.multiple is not None and not number.is_integer)
        return _values(number.values, is_lenient=has_zeros)
    has_floats = is_lenient or not number.is_integer
    digits = None if has_floats else integer_range(number.lower, number.upper)
    parts = [_kind(number, is_lenient=is_lenient) if digits is None else f"/{digits}/"]
    if number.lower is not None and digits is None:
        parts += range_bodies(number.lower, is_lower=True, has_floats=has_floats)
    if number.upper is not None and digits is None:
        parts += range_bodies(number.upper, is_lower=False, has_floats=has_floats)
    excluded = sorted(value for value in number.excluded if has_floats or value.denominator == 1)
    if excluded and has_floats:
        parts.append(other_than(excluded))
    elif excluded:
        parts.append(f"~(/{'|'.join(map(str, excluded))}/)")
    is_open = number.lower is None or number.upper is None
    if is_open and "[eE]" in parts[0] and parts[0] is not _ANY:
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
    return Number(number.is_integer, multiple=step, values=values, losses=number.losses)


def multiples_in_range(number: Number, step: Fraction, limit: int) -> tuple[Fraction, ...] | None:
    """Those of its numbers that are multiples of a step, if the range has room for few."""
    if number.lower is None or number.upper is None:
        return None
    if (number.upper.value - number.lower.value) / step > limit:
        return None
    first, last = -(-number.lower.value // step), number.upper.value // step
    return tuple(value for n in range(first, last + 1) if number.has(value := n * step))


@lru_cache(maxsize=1024)
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


def multiples_body(number: Number, *, is_lenient: bool) -> str | None:
    """The body of a rule for multiples, which llguidance alone holds; None where it does not.

    Whole ones may have zeros behind the point, as far as floats hold all of them.
    """
    step = number.multiple
    if step is None or number.excluded or number.is_integer is False:
        return None
    if step.numerator > _MAX_MULTIPLE or step.denominator > _MAX_PLACES:
        return None
    low, high = _end(number.lower, step, sign=-1), _end(number.upper, step, sign=1)
    if any(end is not None and abs(end) > _MAX_LIMIT for end in (low, high)):
        return None
    kind = "integer" if number.is_integer else "number"
    bodies = [_multiples(kind, step, low, high)]
    if is_lenient or not number.is_integer:
        whole = Fraction(step.numerator)  # all multiples of the step that are whole are its own
        most = MAX_EXACT // whole * whole
        low, high = _end(number.lower, whole, sign=-1), _end(number.upper, whole, sign=1)
        low = -most if low is None else max(low, -most)
        high = most if high is None else min(high, most)
        bodies += [rf"{_multiples('integer', whole, low, high)} /\.0+/"] if low <= high else []
        bodies += [r"/-0(\.0+)?/"] if low <= 0 <= high else []
    return " | ".join(bodies)


def _end(limit: Limit | None, step: Fraction, *, sign: int) -> Fraction | None:
    """The last multiple up to a limit (from it on: sign -1); llguidance fails on other limits."""
    if limit is None:
        return None
    last = sign * limit.value // step * step
    return sign * (last - step if limit.is_open and last == sign * limit.value else last)


def _multiples(kind: str, step: Fraction, low: Fraction | None, high: Fraction | None) -> str:
    schema: dict[str, object] = {"type": kind, "multipleOf": _plain(step)}
    schema |= {} if low is None else {"minimum": _plain(low)}
    schema |= {} if high is None else {"maximum": _plain(high)}
    return f"%json {json.dumps(schema)}"


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _kind(number: Number, *, is_lenient: bool) -> str:
    is_bound = number.lower is not None or number.upper is not None or bool(number.excluded)
    if number.is_integer is False:
        return f"/-?({_fractional()})/"
    if number.is_integer:
        if not is_lenient:
            return "/-?[1-9][0-9]*|0/"
        exponent = "" if is_bound else r"([eE]\+?[0-9]+)?"
        return rf"/-?({_WHOLE}(\.0+)?{exponent}|{_WHOLE_POWERS})/"
    if not is_bound:
        return _ANY
    return f"/-?({_WHOLE}{_FRACTION}|{_MANTISSA}[+-]?[0-9]+)/"


def _fractional() -> str:
    """Numbers without a sign that are not whole, and as floats are not either.

    In 16 digits a float tells them from the nearest integers; 1.9999999999999999 is 2.
    """
    forms = [rf"0\.({_between_integers(16, num_zeros=30)})"]
    for places in range(1, 16):
        forms.append(rf"[1-9][0-9]{{{15 - places}}}\.({_between_integers(places, places - 1)})")
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


# Lists


def _values(values: tuple[Fraction, ...], *, is_lenient: bool) -> str:
    forms = [form for value in values for form in _spellings(value, is_lenient=is_lenient)]
    return "/" + "|".join(dict.fromkeys(forms)) + "/"


def _spellings(value: Fraction, *, is_lenient: bool) -> list[str]:
    sign = "-" if value < 0 else ""
    whole, behind = digits_of(abs(value))
    if behind:
        forms = [rf"{sign}{whole}\.{behind}" + ("0*" if is_lenient else "")]
    elif not is_float(value):  # a point or an exponent would make it another number
        return [f"{sign}{whole}"]
    else:
        sign = "-?" if is_lenient and value == 0 else sign
        forms = [rf"{sign}{whole}" + (r"(\.0+)?" if is_lenient else "")]
    written = json.dumps(float(value))
    if "e" in written:
        forms.append(written.replace("+", r"\+").replace(".", r"\."))
    return forms
