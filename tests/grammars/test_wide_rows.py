"""Wide rows: the bytes that texts are made of, and rows that allow whatever any row does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import GrammarCompiler
from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Choice, Constraint, Grammar, JsonSchema, Regex, StructuralTag
from structspec.errors import GrammarError
from structspec.grammars.alphabet import alphabet_of, utf8_bytes
from structspec.grammars.base import Row
from structspec.grammars.wide_rows import WideRows
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import CASE_IDS, CASES, VOCABULARIES, backend, compiled, pieces_vocabulary

DIGITS = b"0123456789"
CHARACTERS = st.characters(exclude_categories=["Cs"])


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (Regex("[b-d ]{9}x?"), b"bcd x"),
        (Regex(r"^(?=.*z)a+\b(?!b)$"), b"a"),  # conditions write nothing
        (Regex("(?i)k"), "kK\u212a".encode()),
        (Regex(r"\d+|é"), DIGITS + "é".encode()),
        (Regex("[а-п]"), b"\xd0" + bytes(range(0xB0, 0xC0))),
        (Choice(("yes", "né")), "yesné".encode()),
        (Grammar('start: A "c"*\nA: /[ab]+/ // d\n%ignore / +/'), b"abc "),
        (Grammar('start[max_tokens=7]: ("(" start ")" | /[0-6]/) ~ 2..3'), b"0123456()"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value)[:40],
)
def test_a_text_is_made_of_the_bytes_that_are_written_in_its_constraint(
    constraint: Constraint, expected: bytes
) -> None:
    found = alphabet_of(constraint)
    assert found == set(expected)


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema({"type": "integer"}),
        StructuralTag({"format": {"type": "any_text"}}),
        Grammar('root ::= "a"'),
        Grammar('start: "a"i'),
        Grammar('start: A\nA: /a.b/ & ~("x" | "y")'),
        Grammar('start: %json {"type": "string"}'),
        Grammar('start: "a".."f"'),
        Grammar("start: /[a&&b]/"),
        Regex(r"(a)\1"),
    ],
    ids=lambda constraint: str(constraint.key[1])[:30],
)
def test_where_the_bytes_are_not_plain_from_the_text_nobody_claims_to_know_them(
    constraint: Constraint,
) -> None:
    assert alphabet_of(constraint) is None


@given(st.lists(st.tuples(CHARACTERS, CHARACTERS).map(sorted), min_size=1, max_size=4), st.data())
def test_every_character_of_a_set_is_made_of_its_bytes(ends: list[list[str]], data) -> None:
    low, high = data.draw(st.sampled_from(ends))
    character = data.draw(st.characters(min_codepoint=ord(low), max_codepoint=ord(high),
                                        exclude_categories=["Cs"]))  # fmt: skip
    regex = "".join(rf"\U{ord(a):08x}-\U{ord(b):08x}" for a, b in ends)
    alphabet = alphabet_of(Regex(f"[{regex}]"))
    assert alphabet is not None and alphabet >= set(character.encode())


def test_bytes_in_which_no_character_of_a_set_begins_or_goes_on_are_not_among_them() -> None:
    assert utf8_bytes(((0x41, 0x43), (0xE9, 0xE9))) == set("ABCé".encode())
    assert utf8_bytes(((0x80, 0x10FFFF),)) == set(range(0x80, 0xC0)) | set(range(0xC2, 0xF5))


def wide_row(constraint: Constraint, vocabulary: Vocabulary) -> Row | None:
    return WideRows(vocabulary).of(constraint)


def check_walk(grammar, wide: Row, vocabulary: Vocabulary, numbers: list[int]) -> None:
    """Rows on the way of a walk allow nothing that the wide one does not."""
    matcher, bitmask = grammar.matcher(), allocate_bitmask(1, vocabulary.vocab_size)
    for number in numbers:
        matcher.fill(bitmask, 0)
        assert not (bitmask[0] & ~wide).any()
        allowed = np.flatnonzero(unpack_row(bitmask[0], vocabulary.vocab_size))
        assert matcher.accept(int(allowed[number % len(allowed)]))


NUMBERS = st.lists(st.integers(0, 10**6), max_size=15)
HAVE_ROWS = [
    pytest.param(*case[:2], case[2], id=name)
    for name, case in zip(CASE_IDS, CASES, strict=True)
    if isinstance(case[2], Regex | Choice | Grammar) and case[1] != "ebnf"
]


@pytest.mark.parametrize("vocabulary_name", VOCABULARIES)
@pytest.mark.parametrize(("library", "name", "constraint"), HAVE_ROWS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(numbers=NUMBERS)
def test_no_row_of_a_grammar_allows_more_than_its_wide_row(
    vocabulary_name, library, name, constraint, numbers
):
    vocabulary = VOCABULARIES[vocabulary_name]()
    wide = wide_row(constraint, vocabulary)
    assert wide is not None
    check_walk(compiled(vocabulary_name, library, name), wide, vocabulary, numbers)


ATOMS = ["a", "é", "00", r"\d", "[a-c]", "(?i:e)", "[^a-z]", "[а-я]", ".", r"\s", "(?!b)", r"\b"]


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Regexes of all kinds, some of which mean nothing."""
    parts = st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4).map("".join)
    more = st.recursive(
        parts,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: "(" + "|".join(pair) + ")"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,3}"])).map(
                lambda pair: f"({pair[0]}){pair[1]}"
            ),
        ),
        max_leaves=5,
    )
    return draw(more)


PIECES = pieces_vocabulary()


@settings(max_examples=150, deadline=None)
@given(pattern=patterns(), numbers=NUMBERS)
def test_whatever_the_regex_its_rows_allow_no_more_than_the_wide_one(
    pattern: str, numbers: list[int]
) -> None:
    try:
        grammar = backend("pieces", "llguidance").compile(Regex(pattern))
    except GrammarError:
        return
    wide = wide_row(Regex(pattern), PIECES)
    if wide is not None:
        check_walk(grammar, wide, PIECES, numbers)


def test_a_wide_row_allows_the_tokens_of_its_bytes_and_every_end() -> None:
    row = wide_row(Regex("[0(abc1]*"), PIECES)
    assert row is not None
    allowed = np.flatnonzero(unpack_row(row, 32 * PIECES.num_words)).tolist()
    texts = [PIECES.token_bytes[i] for i in allowed if i not in PIECES.stop_token_ids]
    assert texts == [b"(", b"0", b"1", b"a", b"b", b"c", b"00", b"ab", b"(1"]
    assert set(PIECES.stop_token_ids) <= set(allowed)


def test_a_row_that_would_forbid_little_is_none() -> None:
    assert wide_row(Regex(r"[^\n]*"), PIECES) is None
    assert wide_row(Regex(r"[ -~\s]*"), PIECES) is not None


def test_the_compiler_gives_equal_alphabets_one_row_and_json_none(tmp_path) -> None:
    for _ in ("compiled", "from disk"):
        with GrammarCompiler(PIECES, cache_dir=tmp_path) as compiler:
            constraints = (Regex("[ab]{3}"), Regex("[ab]+"), Choice(("ab", "ba")), Regex("[abc]"))
            rows = [compiler.submit(constraint).result().wide_row for constraint in constraints]
            assert rows[0] is not None and rows[0] is rows[1] is rows[2] is not rows[3]
            assert compiler.submit(JsonSchema({"type": "integer"})).result().wide_row is None


@pytest.mark.parametrize("vocabulary_name", sorted(VOCABULARIES))
@pytest.mark.parametrize("name", [name for library, name, _ in CASES if library == "llguidance"])
def test_a_row_at_the_start_is_what_a_new_matcher_fills(name: str, vocabulary_name: str) -> None:
    grammar = compiled(vocabulary_name, "llguidance", name)
    assert grammar.start_row is not None
    row = np.zeros((1, len(grammar.start_row)), np.int32)
    grammar.matcher().fill(row, 0)
    assert (row[0] == grammar.start_row).all()
