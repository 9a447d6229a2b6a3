"""outlines-core: taken where its index is whole, refused in words where it is not."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Choice, Grammar, JsonSchema, Regex
from structspec.errors import GrammarError, UnsupportedConstraint
from tests.grammars.cases import VOCABULARIES, backend

LIBRARIES = ("outlines", "xgrammar")


@pytest.mark.parametrize(
    ("constraint", "lost"),
    [
        (Regex(r"[0-9]+(\.[0-9]+)?"), r"'\.' after '0'"),
        (Regex("(ab)+"), "'a' after 'ab'"),
        (Regex(r"(\d{4}-\d{2},)*"), "'0' after ''"),
        (Choice(("a", "abc")), "'b' after 'a'"),
        (Regex("é+"), r"'\\xc3' after 'é'"),  # a character of two bytes
    ],
)
def test_what_must_go_on_after_it_might_have_ended_is_refused(constraint, lost):
    with pytest.raises(UnsupportedConstraint, match=lost):
        backend("bytes", "outlines").compile(constraint)


@pytest.mark.parametrize(
    "constraint",
    [
        Regex("[a-z]{2,20}"),
        Regex(r"\d{4}-\d\d(é|ö)x"),
        Regex("(yes|no) ?"),
        Choice(("abc", "abd", "bé", "😀")),
        Regex("[^a]{3}b"),
    ],
    ids=lambda constraint: str(constraint)[:30],
)
@pytest.mark.parametrize("vocabulary_name", ["bytes", "pieces"])
def test_what_is_taken_has_the_masks_of_xgrammar_on_any_path(vocabulary_name, constraint):
    vocabulary = VOCABULARIES[vocabulary_name]()
    grammars = [backend(vocabulary_name, name).compile(constraint) for name in LIBRARIES]
    bitmask = allocate_bitmask(2, vocabulary.vocab_size)
    for seed in range(20):
        random = Random(seed)
        matchers = [grammar.matcher() for grammar in grammars]
        for _ in range(30):
            for row, matcher in enumerate(matchers):
                matcher.fill(bitmask, row)
            np.testing.assert_array_equal(bitmask[0], bitmask[1])
            allowed = np.flatnonzero(unpack_row(bitmask[0], vocabulary.vocab_size))
            token_id = int(random.choice(allowed))
            assert all(matcher.accept(token_id) for matcher in matchers)


@pytest.mark.parametrize("constraint", [JsonSchema(True), Grammar('start: "a"')])
def test_schemas_and_grammars_are_refused(constraint):
    with pytest.raises(UnsupportedConstraint, match="regexes and choices only"):
        backend("bytes", "outlines").compile(constraint)


def test_a_malformed_regex_is_refused_with_its_place():
    with pytest.raises(GrammarError, match="line 1, column"):
        backend("bytes", "outlines").compile(Regex("(a"))


def test_what_was_packed_allows_the_same_as_before():
    made = backend("pieces", "outlines").compile(Regex("[a-c]{3,9}d"))
    again = backend("pieces", "outlines").unpack(made.pack())
    assert again.report == made.report
    bitmask = allocate_bitmask(2, VOCABULARIES["pieces"]().vocab_size)
    one, other = made.matcher(), again.matcher()
    for byte in b"abcabcd":
        one.fill(bitmask, 0)
        other.fill(bitmask, 1)
        np.testing.assert_array_equal(bitmask[0], bitmask[1])
        assert one.accept(byte) and other.accept(byte)
