"""How long the fuzzer looks: briefly and always the same in every run, long where asked to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

_COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


def fuzzed(
    small: int, long: int, **strategies: SearchStrategy[object]
) -> Callable[[Callable[..., None]], Callable[[str], None]]:
    """Turn a law into a test of `small` fixed examples, and of `long` new ones under `-m slow`."""

    def to_test(law: Callable[..., None]) -> Callable[[str], None]:
        runs = {
            "small": settings(_COMMON, max_examples=small, derandomize=True),
            "long": settings(_COMMON, max_examples=long),
        }
        sizes = ["small", pytest.param("long", marks=pytest.mark.slow)]

        @pytest.mark.parametrize("size", sizes)
        def test(size: str) -> None:
            runs[size](given(**strategies)(law))()

        test.__name__ = law.__name__
        return test

    return to_test
