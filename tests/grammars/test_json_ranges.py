"""Ranges of numbers: a text belongs to one if its decimal does and the float read from it too."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import lru_cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError
from tests.fuzz.judge import accepts
from tests.grammars.cases import backend

SMALL = (0, 1, -1, 0.5, 2.5, 9.99, 10, 1000, 999, 1e-5, 0.1, 123.456, 1e-7)
# integers of which most are no floats, and floats that hold another integer than is written
LARGE = (1e20, 1.5e20, 7e23, 5e300, 2**53 + 1, 10**17 + 1, 3 * 10**23, 7 * 10**23, 3 * 10**25)
LIMITS = (*SMALL, *LARGE)
COMPARED = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
}
SETTINGS = settings(max_examples=250, deadline=None, derandomize=True)
limits = st.sampled_from((*LIMITS, *(-limit for limit in LIMITS)))


@lru_cache(maxsize=512)
def compiled(schema, closed):
    return backend("bytes", "llguidance").compile(JsonSchema(schema, closed=closed))


def ranged(type_name, keyword, limit, closed):
    schema = {"type": type_name, keyword: limit}
    return compiled(json.dumps(schema), closed)


def conforms(text, keyword, limit):
    """Whether the number that Python reads is on the right side, and beside small limits the
    decimal too.
    """
    holds = COMPARED[keyword]
    is_near = limit in SMALL or -limit in SMALL
    is_decimal = not is_near or holds(Fraction(text), Fraction(str(limit)))
    return is_decimal and holds(json.loads(text), limit)


@st.composite
def near(draw, limit):
    """A number beside a limit: some floats away, a part of it, or anywhere."""
    value = float(limit)
    for _ in range(draw(st.integers(0, 3))):
        value = math.nextafter(value, draw(st.sampled_from((-math.inf, math.inf))))
    factor = draw(st.sampled_from((1, 1, 1, -1, 10, 0.1, 0.5, 3, 1e-9, 1e9)))
    return value * factor if math.isfinite(value * factor) else value


@SETTINGS
@given(limits, st.sampled_from(sorted(COMPARED)), st.booleans(), st.data())
def test_floats_as_python_writes_them_belong_to_a_range_exactly(limit, keyword, closed, data):
    grammar = ranged("number", keyword, limit, closed)
    for _ in range(8):
        text = json.dumps(data.draw(near(limit)))
        assert accepts(grammar, text) == conforms(text, keyword, limit), text


@SETTINGS
@given(limits, st.sampled_from(sorted(COMPARED)), st.data())
@example(1e20, "maximum", None)
def test_integers_belong_to_a_range_exactly_however_long_they_are(limit, keyword, data):
    near_limit = int(limit) + (0 if data is None else data.draw(st.integers(-20, 20)))
    for type_name in ("number", "integer"):
        for closed in (True, False):
            grammar = ranged(type_name, keyword, limit, closed)
            text = str(near_limit)
            assert accepts(grammar, text) == conforms(text, keyword, limit), text


@SETTINGS
@given(limits, st.sampled_from(sorted(COMPARED)), st.booleans(), st.data())
def test_no_spelling_leads_out_of_a_range(limit, keyword, closed, data):
    grammar = ranged("number", keyword, limit, closed)
    digits = data.draw(st.text("0123456789", min_size=1, max_size=20))
    nines = data.draw(st.sampled_from(("", "9" * 20, "0" * 20 + "1", "9" * 400, "0" * 400 + "1")))
    exponent = data.draw(st.sampled_from(("", "e0", "E+1", "e-1", "e20", "e+19", "e-5", "e-400")))
    whole = data.draw(st.sampled_from(("0", "1", "9", "12", str(abs(int(limit))))))
    sign = data.draw(st.sampled_from(("", "-")))
    text = f"{sign}{whole}.{digits}{nines}{exponent}"
    if math.isfinite(float(text)) and accepts(grammar, text):
        assert conforms(text, keyword, limit), text


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"exclusiveMaximum": 1}, ["0.9999999999999999", "9.5e-1"], ["0.99999999999999999", "1e0"]),
        ({"exclusiveMinimum": 0.1}, ["0.10000000000000002"], ["0.1000000000000000000001"]),
        ({"exclusiveMinimum": 0}, ["5e-324", "1e-300"], ["1e-400", f"0.{'0' * 400}1", "0.0"]),
        ({"exclusiveMaximum": 0}, ["-5e-324", "-1"], ["-1e-400", f"-0.{'0' * 400}1", "-0.0"]),
        ({"maximum": 1e20}, ["1e+20", "9.99e19", "1.0e20", "100000000000000000000"], ["1.1e20"]),
        ({"maximum": 250}, ["2.5e2", "2.4e+2", "9e1", "1e-9"], ["2.51e2", "1e3"]),
        ({"minimum": 0.0025}, ["2.5e-3", "1e-2", "1e0"], ["2.4e-3", "9e-4"]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_exponents_and_long_fractions_beside_a_limit(schema, taken, refused):
    for closed in (True, False):
        grammar = compiled(json.dumps({"type": "number", **schema}), closed)
        assert [text for text in taken if not accepts(grammar, text)] == []
        assert [text for text in refused if accepts(grammar, text)] == []


@SETTINGS
@given(st.integers(-(10**6), 10**6), st.integers(0, 6), st.integers(0, 9), st.booleans())
def test_an_integer_may_have_an_exponent_that_leaves_it_whole(value, places, power, is_ranged):
    bounds = {"minimum": -(10**7), "maximum": 10**7} if is_ranged else {}
    grammar = compiled(json.dumps({"type": "integer", **bounds}), False)
    sign, digits = ("-", str(-value)) if value < 0 else ("", str(value))
    text = f"{sign}{digits[0]}.{digits[1:]}{'0' * places}e{power}"
    if text[-2 - len(str(power))] == "." or (digits[0] == "0" and is_ranged):
        return  # no fraction; a zero has no exponent in a range
    is_whole = Fraction(text).denominator == 1
    is_within = not is_ranged or abs(Fraction(text)) <= 10**7
    assert accepts(grammar, text) == (is_whole and is_within), text


NUMBERS = (0, 3, -7, 4, 0.5, 1e-7, 5e-324, 1e16, 1e23, 2**53 + 1, 10**17 + 1, -(10**22), 1.5e300)
ZEROS = ("", ".0", ".000", "e0")


def spellings(value, data):
    """As Python writes it, and so with what may follow a whole number."""
    text = json.dumps(value)
    return text + (data.draw(st.sampled_from(ZEROS)) if isinstance(value, int) else "")


@SETTINGS
@given(st.sampled_from(NUMBERS), st.sampled_from(("number", "integer")), st.booleans(), st.data())
def test_all_numbers_but_one_are_those_that_are_not_read_as_it(one, type_name, closed, data):
    grammar = compiled(json.dumps({"type": type_name, "not": {"const": one}}), closed)
    assert grammar.report.exact
    value = data.draw(near(one) | st.just(one) | st.sampled_from(NUMBERS) | st.integers())
    text = spellings(value, data)
    read = json.loads(text)
    is_right = read != one and (type_name == "number" or read % 1 == 0)
    if not is_right:
        assert not accepts(grammar, text), text
    elif type_name == "number" or text.lstrip("-").isdigit() or (not closed and text[-2:] != "e0"):
        assert accepts(grammar, text) or text[-2:] == "e0", text


@SETTINGS
@given(st.sampled_from(NUMBERS), st.booleans(), st.data())
def test_a_listed_number_is_taken_only_in_spellings_that_are_read_as_it(one, closed, data):
    grammar = compiled(json.dumps({"enum": [one, "x"]}), closed)
    assert accepts(grammar, json.dumps(one))
    text = spellings(data.draw(st.sampled_from((one, *NUMBERS))), data)
    if accepts(grammar, text):
        assert json.loads(text) == one, text
    elif not closed and json.loads(text) == one:
        assert "e0" in text, text


@SETTINGS
@given(
    st.sampled_from((1, 3, 7, 10, 0.5, 2.5, 0.01, 9999)),
    st.fixed_dictionaries(
        {}, optional={key: st.sampled_from((*LIMITS, 1e-300, 5e-324)) for key in COMPARED}
    ),
    st.sampled_from(("number", "integer")),
    st.booleans(),
    st.data(),
)
@example(7, {"exclusiveMinimum": 5e-324}, "number", True, None)
@example(0.5, {"minimum": 1e-300}, "number", True, None)
@example(3, {}, "number", True, None)
def test_multiples_may_be_written_as_floats_as_far_as_floats_hold_them(
    step, bounds, type_name, closed, data
):
    try:
        grammar = compiled(json.dumps({"type": type_name, "multipleOf": step, **bounds}), closed)
    except GrammarError as error:
        assert error.pointer == "#"
        return
    number = 14 if data is None else data.draw(st.integers(-(10**4), 10**4) | st.integers())
    value = Fraction(str(step)) * number
    held = all(COMPARED[key](value, Fraction(limit)) for key, limit in bounds.items())
    if value.denominator == 1:
        whole, has_float = str(value), type_name == "number" or not closed
        is_held = abs(value) <= 2**53
        if grammar.report.exact:
            assert accepts(grammar, whole) == held
            assert accepts(grammar, whole + ".0") == (held and has_float and is_held), whole
            assert not accepts(grammar, str(value + 1) + ".0") or Fraction(str(step)) <= 1
    elif grammar.report.exact and -(10**15) < value < 10**15:
        assert accepts(grammar, json.dumps(float(value))) == (held and type_name == "number")


def test_a_zero_may_be_negative_also_as_a_multiple():
    grammar = compiled(json.dumps({"type": "integer", "multipleOf": 10}), False)
    assert all(accepts(grammar, text) for text in ("-0", "-0.0", "0.0", "0"))
