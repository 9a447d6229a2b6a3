"""`multipleOf` on numbers as they are written: 0.6 is a multiple of 0.1, as the mask has it.

In floats it is not: 0.6 / 0.1 is 5.999999999999999.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from jsonschema.exceptions import ValidationError


def multiple_of(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """`multipleOf`: a number divided by another leaves nothing."""
    if validator.is_type(value, "number") and Fraction(str(value)) % Fraction(str(step)):
        yield ValidationError(f"{value!r} is not a multiple of {step}")
