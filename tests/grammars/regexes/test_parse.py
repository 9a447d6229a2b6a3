"""Patterns mean what Python's `re` and ECMA-262 say, conditions on the surroundings included."""

from __future__ import annotations

import re
import unicodedata
import warnings

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.regexes import classes, ranges
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.parse import parse_full, parse_search
from structspec.grammars.regexes.syntax import EMPTY, NOTHING

_CONDITIONS = st.sampled_from(
    [
        "^",
        "$",
        r"\b",
        r"\B",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?=b|$)",
        "(?<=^|b)",
        "(?!.*bb)",
    ]
    + ["(?<!ab)", "(?=.*b)", "(?=a(?!b))", "(?!^)", r"(?=a\b)", "(?<!^a)"]
)
_TAKING = st.recursive(
    st.sampled_from(["a", "b", "-", "[ab]", "[^a]", ".", r"\w"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=4,
)
_PARTS = st.recursive(
    st.one_of(_TAKING, _CONDITIONS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["?", "{1,2}", "*", "+"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        st.tuples(st.sampled_from(["=", "!"]), inner).map(lambda two: f"(?{two[0]}{two[1]})"),
    ),
    max_leaves=6,
)
_TEXTS = st.lists(st.text("ab-", max_size=5), min_size=1, max_size=5)


def _as_python(pattern: str) -> re.Pattern[str]:
    # its lookbehinds are of one width, its `$` stands before a last line feed too, and its `\\B`
    # is not in an empty text
    widths = pattern.replace("(?<=^|b)", "(?:^|(?<=b))").replace("(?<!^a)", "(?<!\\Aa)")
    return re.compile(widths.replace("$", r"\Z").replace(r"\B", r"(?!\b)"), re.ASCII)


@settings(deadline=None, max_examples=400)
@given(_PARTS, _TEXTS)
def test_a_search_finds_what_python_finds(pattern, texts):
    try:
        regex = parse_search(pattern)
    except UnsupportedConstraint:
        assume(False)
    for text in texts:
        assert matches(regex, text) == (_as_python(pattern).search(text) is not None), text


@settings(deadline=None, max_examples=400)
@given(_PARTS, _TEXTS)
def test_a_full_match_is_pythons(pattern, texts):
    try:
        regex = parse_full(pattern)
    except UnsupportedConstraint:
        assume(False)
    for text in texts:
        assert matches(regex, text) == (_as_python(pattern).fullmatch(text) is not None), text


@pytest.mark.parametrize(
    ("pattern", "found", "missing"),
    [
        ("^a|b$", ["ax", "xb"], ["xax", "bx", ""]),
        (r"^(?!admin)[a-z]+$", ["user", "adm"], ["admin", "adminx"]),
        (r"^(?=.*[0-9])(?=.*[A-Z]).{4,}$", ["abC1", "1bcD"], ["abcd", "aC1", "ABCD"]),
        (r"\bfoo\b", ["foo", "a foo.", "x-foo"], ["foobar", "xfoo"]),
        (r"(^|\s)foo(\s|$)", ["foo", "a foo b"], ["afoo", "foob"]),
        (r"(?<!foo)bar", ["bar", "xbar foobar"], ["foobar"]),
        (r"^[a-z]+(?<!\.lock)$", ["a"], [".lock"]),
        (r"^[a-z.]+(?<!\.lock)$", ["a", "lock", "a.lockx"], ["a.lock", ".lock"]),
        (r"^(?=[a-z.]+$).*(?<!\.lock)$", ["a.b"], ["a.lock"]),
        (r"^(?:(?!foo).)*$", ["", "fo", "barfo"], ["foo", "xfoox"]),
        (r"^<!--((?!-->).)*-->$", ["<!---->", "<!-- a->-->"], ["<!--->", "<!--a-->b-->"]),
        (r"^([a-z]+(,|$))+$", ["ab", "ab,c", "a,"], ["", ",a", "a,,b"]),
        (r"(^|,)(?:^a|b)*$", ["abb", "x,b", "x,", ""], ["x,ab", "xb"]),
        (r"^(?:[a-z](-|$)){10,}$", ["a-" * 9 + "b", "a-" * 12], ["a-" * 8 + "b", "a-" * 9]),
        (r"a{,2}", ["a{,2}"], ["aa"]),
        (r"^[^]$", ["a", "\n", "😀"], ["", "ab"]),
        (r"^.$", ["a", "\x85"], ["\n", "\r", "\u2028", "\u2029"]),
        (r"^\s$", ["\ufeff", "\xa0", "\u2029"], ["\x1c", "\u200b"]),
        (r"^\w\d$", ["a1", "_0"], ["é1", "a٣"]),
        (r"^\p{L}+$", ["éß日"], ["1", "a b"]),
        (r"^\p{Script=Greek}\P{Lu}$", ["αa", "Ω1"], ["aa", "αA"]),
        (r"^\p{Uppercase_Letter}\p{gc=Nd}$", ["A٣"], ["a3"]),
        (r"^\p{Alphabetic}\p{Emoji}$", ["a😀"], ["😀a"]),
        (r"^\cA\x41\u0042\u{1F600}\uD83D\uDE00\0$", ["\x01AB😀😀\0"], ["A"]),
        (r"^[\b\-a\]]$", ["\b", "-", "a", "]"], ["b", "\\"]),
        (r"^[a-\d]$", ["a", "-", "1"], ["b"]),
        (r"^(?<year>\d{4})-(?:a|b)??$", ["2024-", "2024-a"], ["24-"]),
        (r"(?i)^straße[k]$", ["STRAßEK", "straße\u212a"], ["strasse k"]),
        (r"^(?i:a)b$", ["Ab"], ["aB"]),
        (r"(?m)^b$", ["a\nb\nc", "b"], ["ab"]),
        (r"(?s)^.$", ["\n"], [""]),
        ("", ["", "anything"], []),
    ],
)
def test_a_schemas_pattern_means_what_ecma_262_says(pattern, found, missing):
    regex = parse_search(pattern)
    assert [text for text in found if not matches(regex, text)] == []
    assert [text for text in missing if matches(regex, text)] == []


def test_an_empty_class_matches_nothing():
    assert parse_search("[]") is NOTHING
    assert parse_search("^(?:[]|)$") is EMPTY


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("a$\n", "a\n"), ("a$", "a\n"), (r"a\Z\n", "a\n"), ("(?m)a$\nb", "a\nb"), ("x$|y\n", "x\n")],
)
def test_a_dollar_in_a_full_match_is_pythons(pattern, text):
    assert matches(parse_full(pattern), text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "words", "column"),
    [
        (r"(a)\1", "back-reference", 4),
        (r"(?<n>a)\k<n>", "back-reference", 8),
        (r"(?>a)", "atomic", 1),
        (r"(?:\ba)+", "inside a repetition", 8),
        (r"\p{Nonsense}", "property", 1),
        (r"(?x)a", "flag", 1),
        ("(" * 200 + ")" * 200, "nesting", 102),
    ],
)
def test_what_no_automaton_holds_is_refused_with_its_place(pattern, words, column):
    with pytest.raises(UnsupportedConstraint, match=words) as caught:
        parse_search(pattern)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_more_conditions_than_can_be_taken_apart_are_refused():
    with pytest.raises(UnsupportedConstraint, match="too many"):
        parse_search(r"(?:(?:(?:(?:a\b-?){1,8}){1,8}){1,8}){1,8}")


def test_many_word_boundaries_are_taken_apart_in_one_pass():
    words = " ".join(["foo"] * 20)
    assert matches(parse_search(r"\bfoo\b ?" * 20), words)
    assert not matches(parse_search(r"\bfoo\b ?" * 20), words.replace(" foo", "foo", 1))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a\n(b", "not closed"),
        ("a)", "unbalanced"),
        ("a**", "multiple repeat"),
        ("a++", "multiple repeat"),
        ("?", "nothing to repeat"),
        ("^*", "nothing to repeat"),
        ("[a", "unterminated"),
        ("[b-a]", "bad character range"),
        ("a{2,1}", "min repeat greater"),
        (r"\q", "bad escape"),
        (r"\u{110000}", "no character"),
        (r"\ud800", "no character"),
        ("\\", "backslash"),
        ("(?=", "not closed"),
        ("(?", "unknown kind"),
    ],
)
def test_a_malformed_pattern_is_refused_with_its_place(pattern, words):
    with pytest.raises(GrammarError, match=words) as caught:
        parse_search(pattern)
    assert not isinstance(caught.value, UnsupportedConstraint)
    assert caught.value.line is not None and caught.value.column is not None


@settings(deadline=None, max_examples=500)
@given(st.text("ab()[]{}|*+?^$\\.-,:=!<>1dbpsuUxPik#&~ \n", max_size=12))
def test_any_text_is_a_pattern_or_an_error_with_a_place(pattern):
    for parse in (parse_search, parse_full):
        try:
            parse(pattern)
        except GrammarError as error:
            assert error.line is not None and error.column is not None


@pytest.mark.parametrize("name", ["alpha", "^digit", "word", "punct"])
@pytest.mark.parametrize("parse", [parse_full, parse_search])
def test_a_posix_class_is_refused_where_it_stands(parse, name):
    with pytest.raises(GrammarError, match=re.escape(f"[:{name}:]")) as caught:
        parse(f"\n-[_[:{name}:]]+")
    assert (caught.value.line, caught.value.column) == (2, 4)


@pytest.mark.parametrize("pattern", ["[[:]", "[:alpha:]", "[[:nonesuch:]]", "[a:]"])
def test_brackets_and_colons_that_name_no_class_are_read_as_python_does(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "possible nested set"
        expected = re.compile(pattern)
    for text in ["[", ":", "a", ":]", "a]", "n]", "]", "[]", ""]:
        assert matches(parse_full(pattern), text) == bool(expected.fullmatch(text)), text


def test_terminals_of_a_grammar_have_posix_classes_as_rust_does():
    regex = parse_full("[_[:^alpha:]]+$", "rust")
    assert matches(regex, "_1 é")
    assert not matches(regex, "a") and not matches(regex, "1a")


@pytest.mark.parametrize(
    ("letter", "names"),
    [("d", ["Nd"]), ("s", ["White_Space"])]
    + [("w", ["Alphabetic", "M", "Nd", "Pc", "Join_Control"])],
)
def test_the_sets_of_rust_are_those_of_unicode(letter, names):
    whole = ranges.normalise(pair for name in names for pair in classes.unicode_property(name))
    found = classes.named_set(letter, "rust")
    assert not ranges.subtract(whole, found)
    newer = ranges.subtract(found, whole)  # than Python's own tables
    assert {unicodedata.category(chr(c)) for c in ranges.code_points(newer)} <= {"Cn"}
