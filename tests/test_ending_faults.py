"""What goes wrong while an end is looked for costs the end, and the request nothing else."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import Choice, JsonSchema
from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Constraint
from structspec.ending import Endings
from structspec.grammars.base import Bitmask, DeadEnd, Matcher, MatcherFailed
from structspec.grammars.wrapping import WrappedMatcher
from tests.grammars.cases import VOCABULARIES, backend

OF = VOCABULARIES["bytes"]()
ENDINGS = Endings(OF, 3)
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
}
CASES: dict[str, Constraint] = {"pair": JsonSchema(PAIR), "choice": Choice(("ab", "ac" * 20))}
ERRORS = (MatcherFailed("limit reached"), DeadEnd("nowhere"), ValueError("why"))


class Failing(WrappedMatcher):
    """Fails where it was not before, from a call on, until it is asked for what the text wants."""

    def __init__(self, inner: Matcher, error: Exception) -> None:
        super().__init__(inner)
        self.error, self.num_left = error, -1

    def accept(self, token_id: int) -> bool:
        self._count()
        return super().accept(token_id)

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        self._count()
        super().fill(bitmask, row, budget)

    def forced_tokens(self, limit: int) -> list[int]:
        self._count()
        return super().forced_tokens(limit)

    def _count(self) -> None:
        self.num_left -= self.num_left >= 0
        if self.num_left == 0:
            raise self.error


def allowed(matcher: Matcher) -> list[int]:
    bitmask = allocate_bitmask(1, OF.vocab_size)
    matcher.fill(bitmask, 0)
    return np.flatnonzero(unpack_row(bitmask[0], OF.vocab_size)).tolist()


@pytest.mark.parametrize("case", sorted(CASES))
@settings(deadline=None, max_examples=60)
@given(
    error=st.sampled_from(ERRORS),
    num_calls=st.integers(2, 40),
    num_spare=st.integers(0, 12),
    seed=st.integers(0, 2**32),
)
def test_a_search_that_fails_leaves_the_request_as_it_would_have_been(
    case: str, error: Exception, num_calls: int, num_spare: int, seed: int
) -> None:
    """It goes on within its grammar, taking what its rows allow; what it took is counted."""
    random_ = random.Random(seed)
    compiled = backend("bytes", "llguidance").compile(CASES[case])
    plain, failing = compiled.matcher(), Failing(compiled.matcher(), error)
    planned = ENDINGS.plan(CASES[case], 20 + num_spare)
    assert planned is not None
    matcher = planned.around(failing)
    for num_taken in range(planned.max_tokens):
        choices = allowed(matcher)
        assert choices and set(choices) <= set(allowed(plain))
        token_id = random_.choice(choices)
        # the call that takes the token is well, those that look behind it fail
        failing.num_left = num_calls if random_.random() < 0.5 else -1
        try:
            is_taken = matcher.accept(token_id)
        except type(error):  # the call for that itself, behind some for a row that was looked into
            failing.num_left = -1
            is_taken = matcher.accept(token_id)
        assert is_taken
        failing.num_left = -1
        assert plain.accept(token_id)
        assert allowed(failing) == allowed(plain), num_taken
        if token_id in OF.stop_token_ids:
            break
    matcher.rollback(num_taken + 1)
    assert allowed(failing) == allowed(compiled.matcher())
