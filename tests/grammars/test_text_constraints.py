"""Regexes, choices and grammars: what they match, and where wrong ones are wrong."""

from __future__ import annotations

import re

import pytest

from structspec.constraint import Choice, Constraint, Grammar, Regex
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.cfg import dialect_of
from structspec.grammars.ebnf import is_productive
from structspec.grammars.router import route
from tests.grammars.cases import backend

LIBRARIES = pytest.mark.parametrize("library", ["llguidance", "xgrammar"])


def takes(library: str, constraint: Constraint, text: str) -> bool:
    """Whether this text, and the end after it, may be written."""
    matcher = backend("bytes", library).compile(constraint).matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


@LIBRARIES
@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"\d{4}-\d\d", ["2024-01", "2024-1", "2024-011"]),
        (r"^ab$", ["ab", "abc", "^ab$"]),
        (r"(^a|b$)", ["a", "b", "ab"]),
        (r"(a$|ab)|d", ["a", "ab", "d", "ad"]),
        (r"(?:a|ab)c?|d", ["ab", "abc", "d"]),
        (r"a{,2}b{2,}", ["bb", "aabbb", "aaabb", "ab"]),
        (r"a.c", ["abc", "a\nc", "aéc"]),
        (r"[&&~~^-]+", ["&~^-", "a"]),
        (r"[]a[]+", ["]a[", "b"]),
        (r"a&b~c", ["a&b~c", "a"]),
        (r"\x41\u00e9\/\.", ["Aé/.", "Aé/x"]),
        (r"{a}x{", ["{a}x{", "a"]),
        (r'"[^"\n]*"', ['"é b"', '"a"b"']),
        (r"(?P<year>\d+)(?#note)", ["12", "x"]),
        (r"(a+)+b", ["aaab", "aaaa"]),
        (r"\[\]\^\$\|\(\)", ["[]^$|()", "[]"]),
        (r"\d\D\w\W", ["1x_-", "٣xaa", "1١a-", "1xé-", "1xaé"]),
        (r"[\d.]+[^\w]", ["1.2-", "1٣-", "1é"]),
        (r"[\W][^\D\n][^\W\d][\D]", ["é1a٣", "-1_x", "a1a-", "-٣a-", "-1éx", "-1a1", "`1a["]),
        (r"\u200b[\u200b\ue000-\uf8ff]", ["\u200b\u200b", "\u200b\uf000", "2b", "\u200b2"]),
        (r"[^\u2028\U0010ffff]", ["2", "x", "\u2028", "\U0010ffff"]),
        (
            r"\x0ab\x1fa[\x00a]\x00c[\n-\r]",
            ["\nb\x1fa\0\0c\v", "\nb\x1faa\0c\r", "\xab\u01faa\0c\n"],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Possible set:FutureWarning")
def test_a_regex_matches_what_python_matches_from_first_to_last_character(library, pattern, texts):
    for text in texts:
        expected = re.fullmatch(pattern, text, re.ASCII) is not None
        assert takes(library, Regex(pattern), text) == expected, text


@LIBRARIES
@pytest.mark.parametrize(
    ("pattern", "column", "words"),
    [
        ("(a", 3, "not closed"),
        ("a)", 2, "unbalanced"),
        ("ab[c", 3, "unterminated"),
        ("*a", 1, "nothing to repeat"),
        ("a**", 3, "multiple repeat"),
        ("ab\\", 3, "backslash"),
        (r"a\y", 2, "bad escape"),
        ("[z-a]", 2, "bad character range"),
        ("a{3,1}", 3, "min repeat greater"),
        (r"a[b\y]", 4, "bad escape"),
        (r"ab[\ud800]", 4, "no character"),
        (r"\U00110000", 1, "no character"),
        ("ab\ud800", 3, "half a surrogate pair"),
    ],
)
def test_a_malformed_regex_is_refused_with_its_place(library, pattern, column, words):
    with pytest.raises(GrammarError, match=re.escape(words)) as caught:
        backend("bytes", library).compile(Regex(pattern))
    assert caught.value.line == 1
    assert caught.value.column == column


@LIBRARIES
@pytest.mark.parametrize(
    ("pattern", "column", "words"),
    [
        (r"(a)\1", 4, "back-reference"),
        (r"(?:\ba)+", 8, "inside a repetition"),
        ("a++", 2, "possessive"),
        ("(?>a)", 1, "atomic"),
        ("(?x)a", 1, "flag"),
    ],
)
def test_what_no_automaton_holds_is_refused_by_name_and_place(library, pattern, column, words):
    with pytest.raises(UnsupportedConstraint, match=words) as caught:
        backend("bytes", library).compile(Regex(pattern))
    assert (caught.value.line, caught.value.column) == (1, column)


@LIBRARIES
@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"\w+\b.*", ["ab c", "ab", "-"]),
        (r"(a\b|b)[-c]", ["a-", "bc", "ac", "b-"]),
        (r"(?<!x)a(?![b-z])..?", ["a-", "ab", "aa-"]),
        (r"(^a|b)+?$", ["a", "bb", "ab"]),
        ("(?m)(a|\n)?^b", ["b", "\nb", "ab"]),
    ],
)
def test_conditions_on_one_neighbour_are_any_librarys(library, pattern, texts):
    for text in texts:
        expected = re.fullmatch(pattern, text, re.ASCII) is not None
        assert takes(library, Regex(pattern), text) == expected, text


LOOKAROUND = [
    (r"(?=.*\d)[a-z\d]{3,}", 1, "lookahead", ["ab1", "1ab", "abc", "1b"]),
    ("x(?!ab).*", 2, "lookahead", ["x", "xa", "xac", "xab", "xabc"]),
    (r"[\w.]+(?<!\.py)", 7, "lookbehind", ["a.c", "py", "a.py", ".py"]),
]


@pytest.mark.parametrize(("pattern", "column", "word", "texts"), LOOKAROUND)
def test_lookaround_is_held_by_llguidance(pattern, column, word, texts):
    for text in texts:
        expected = re.fullmatch(pattern, text, re.ASCII) is not None
        assert takes("llguidance", Regex(pattern), text) == expected, text


@pytest.mark.parametrize(("pattern", "column", "word", "texts"), LOOKAROUND)
def test_lookaround_that_xgrammar_cannot_hold_is_refused_with_its_place(
    pattern, column, word, texts
):
    with pytest.raises(UnsupportedConstraint, match=word) as caught:
        backend("bytes", "xgrammar").compile(Regex(pattern))
    assert (caught.value.line, caught.value.column) == (1, column)


def test_a_place_in_a_regex_counts_lines():
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "llguidance").compile(Regex("a\nb)"))
    assert (caught.value.line, caught.value.column) == (2, 2)


@LIBRARIES
def test_each_choice_is_taken_and_no_beginning_or_mixture_of_them(library):
    choices = ("a", "ab", "abc def", 'say "hi"\n', "tab\t\\", "é😀", "a|b", "x" * 300)
    for choice in choices:
        assert takes(library, Choice(choices), choice)
    for text in ("", "abc", "aa", "b", 'say "hi"', "é"):
        assert not takes(library, Choice(choices), text)


@LIBRARIES
def test_choices_may_hold_any_ascii_character(library):
    choices = tuple(f"a{chr(code)}b" for code in range(128))
    for choice in choices:
        assert takes(library, Choice(choices), choice), repr(choice)
    assert not takes(library, Choice(choices), "ab")


@LIBRARIES
@pytest.mark.parametrize(
    "choices",
    [(), ("a", ""), ("a", 3), "ab", ("\ud83d",)],
    ids=["none", "empty", "int", "str", "half"],
)
def test_choices_that_cannot_be_chosen_from_are_refused(library, choices):
    with pytest.raises(GrammarError, match="choice"):
        backend("bytes", library).compile(Choice(choices))


@LIBRARIES
def test_a_choice_given_twice_counts_once(library):
    assert takes(library, Choice(("a", "a")), "a")


ARITHMETIC_LARK = 'start: sum\nsum: sum "+" atom | atom\natom: /[0-9]+/ | "(" sum ")"'
ARITHMETIC_EBNF = 'root ::= sum\nsum ::= sum "+" atom | atom\natom ::= [0-9]+ | "(" sum ")"'


@pytest.mark.parametrize(
    ("library", "text"),
    [("llguidance", ARITHMETIC_LARK), ("xgrammar", ARITHMETIC_LARK), ("xgrammar", ARITHMETIC_EBNF)],
    ids=["llguidance-lark", "xgrammar-lark", "xgrammar-ebnf"],
)
def test_a_left_recursive_grammar_matches_its_language(library, text):
    for sentence in ("1", "1+2", "(1+23)+4", "((7))"):
        assert takes(library, Grammar(text), sentence)
    for sentence in ("", "+", "1+", "(1", "1)"):
        assert not takes(library, Grammar(text), sentence)


@pytest.mark.parametrize(
    ("library", "text", "line"),
    [
        ("llguidance", "start: a\na: missing", 2),
        ("llguidance", 'start: "a', 1),
        ("llguidance", "start: /(a/", 1),
        ("xgrammar", "start: a\na: missing", 2),
        ("xgrammar", "root ::= a\na ::= missing", 2),
        ("xgrammar", 'root ::= "a', 1),
        ("xgrammar", 'other ::= "a"', 1),
        ("llguidance", 'start: a\na: "\ud800"', 2),
        ("xgrammar", 'start: a\na: "\ud800"', 2),
        ("xgrammar", 'root ::= a\na ::= "\ud800"', 2),
    ],
)
def test_a_malformed_grammar_is_refused_with_line_and_column(library, text, line):
    with pytest.raises(GrammarError) as caught:
        backend("bytes", library).compile(Grammar(text))
    assert caught.value.line == line
    assert caught.value.column is not None


def test_the_words_about_a_malformed_grammar_hold_no_place_in_the_librarys_source():
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "xgrammar").compile(Grammar("root ::= [z-a]"))
    assert "Invalid character class" in str(caught.value) and ".cc" not in str(caught.value)


@LIBRARIES
@pytest.mark.parametrize("grammar", [Grammar('start: "a"', "lrak"), Grammar(3)], ids=repr)
def test_a_grammar_of_another_kind_is_refused(library, grammar):
    with pytest.raises(GrammarError, match="lrak|not 3"):
        backend("bytes", library).compile(grammar)


@pytest.mark.parametrize(
    ("library", "text"),
    [
        ("llguidance", 'start: "a" start'),
        ("llguidance", 'start: x "b"\nx: "a" x'),
        ("xgrammar", 'start: "a" start'),
        ("xgrammar", 'root ::= "a" x\nx ::= x "b" | "c" x'),
    ],
)
def test_a_grammar_without_any_finite_text_is_refused(library, text):
    with pytest.raises(GrammarError, match="for ?ever"):
        backend("bytes", library).compile(Grammar(text))


@LIBRARIES
@pytest.mark.parametrize(
    "pattern", [r"a[^\s\S]", r"[^\x00-\U0010ffff]+b", r"([^\w\W]|[^\d\D])", "a^b", "a$b", "x(?=y)"]
)
def test_a_regex_that_no_text_matches_is_refused(library, pattern):
    with pytest.raises(GrammarError, match="text .*satisfies"):
        backend("bytes", library).compile(Regex(pattern))
    assert takes(library, Regex(f"{pattern}|c"), "c")


@pytest.mark.parametrize(
    ("grammar", "is_finite"),
    [
        ('root ::= (("a" root))', False),
        ('root ::= (("a" root) | ("b"))', True),
        ("root ::= ((x{0, -1} y))\nx ::= ((x))\ny ::= ([a-z\\]])", True),
        ("root ::= ((x{1, 2}))\nx ::= ((x))", False),
        ('root ::= (("\\"" x)) (=(root))\nx ::= ("" | (x))', True),
        (r'root ::= (("a" [^\0-\t\n-\u1fff\]\u2000-\U0010ffff]))', False),
        (r'root ::= (("a" [^\0-\ud7ff\ue000-\U0010ffff]) | ([^\0-\U0010fffe]))', True),
        (r"root ::= (([^\0-\ud7ff\ue000-\U0010ffff]) | ([^\0-`b-\U0010ffff]))", True),
        (r"root ::= (([^\0-\ud7ff\ue000-\U0010ffff]{0, 3}))", True),
    ],
)
def test_productive_is_what_derives_a_finite_text(grammar, is_finite):
    assert is_productive(grammar) == is_finite


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ('root ::= "a"', "ebnf"),
        ('start: "::="', "lark"),
        ('start: "a"', "lark"),
        ('# x ::= y\nstart: "a"', "lark"),
    ],
)
def test_the_dialect_shows_in_how_rules_are_written(text, dialect):
    assert dialect_of(Grammar(text)) == dialect
    assert route(Grammar(text))[0] == {"ebnf": "xgrammar", "lark": "llguidance"}[dialect]


def test_a_backend_that_cannot_read_a_dialect_names_the_one_that_can():
    with pytest.raises(UnsupportedConstraint, match="xgrammar"):
        backend("bytes", "llguidance").compile(Grammar('root ::= "a"'))


@pytest.mark.parametrize(
    ("library", "text", "column"),
    [
        ("llguidance", 'start: "a" <[256]>', 12),
        ("llguidance", "start: <|im_end|>", 8),
        ("xgrammar", "start: <|im_end|>", 8),
        ("xgrammar", "root ::= Token(3)", 10),
    ],
)
def test_special_tokens_cannot_be_smuggled_in_by_a_grammar(library, text, column):
    with pytest.raises(UnsupportedConstraint) as caught:
        backend("bytes", library).compile(Grammar(text))
    assert caught.value.column == column


def test_a_less_than_sign_in_text_is_no_special_token():
    grammar = Grammar('start: "<b>" /[<>]/ // <note>\n')
    assert takes("llguidance", grammar, "<b><")
