"""Regexes in Lark mean the same whichever library runs the grammar, or are refused by one."""

from __future__ import annotations

import pytest

from structspec.constraint import Grammar
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.lark_regexes import prepare_lark, without_regexes
from structspec.grammars.router import route
from tests.grammars.cases import backend

TEXTS = [*"٣3éeE_\n\r\u2028aAkK\u212a \xa0\x85.]-\0/^$\\:[", "", "a\nb", "a:b", "aa", "ab", "aB"]
TEXTS += ["a\n", "a{1}", "a$", "aaa"]
PATTERNS = [r"[\W]", r"[^\D]"]
PATTERNS += [r"\d", r"\w", r"\W", r"\s", r"[\d_]", r"[^\s]", ".", "(?s).", "[[:alpha:]]"]
PATTERNS += [
    "[[:^alpha:]a]",
    "(?i)k",
    "(?i:a)b",
    r"a\x0ab",
    r"[\x0ab]",
    r"\p{L}",
    r"\PL",
    r"\x{e9}",
]
PATTERNS += [
    r"\u{e9}",
    "a{2}",
    "a{2,}",
    "(?P<n>a)",
    "[]a]",
    r"\Aa\z",
    r"[a\-b]",
    r"\/",
    "()a",
    "a|",
]
PATTERNS += ["^a$", r"a\$", "a*?b", "[a-]", r"\x00", "[^a-z]", r"\\"]


def taken(grammar: Grammar, library: str) -> list[str]:
    compiled = backend("bytes", library).compile(grammar)
    found = []
    for text in TEXTS:
        matcher = compiled.matcher()
        if all(map(matcher.accept, text.encode())) and matcher.accept(256):
            found.append(text)
    return found


@pytest.mark.parametrize("flags", ["", "i", "s"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_both_libraries_take_the_same(pattern, flags):
    grammar = Grammar(f"start: A\nA: /{pattern}/{flags}", "lark")
    assert taken(grammar, "xgrammar") == taken(grammar, "llguidance") != []


@pytest.mark.parametrize(
    "pattern", ["[a&&b]", "[a[b]]", "[a--b]", "a++", "(?x) a ", "a{,2}", "a{1"]
)
def test_what_cannot_be_translated_is_refused_where_it_stands(pattern):
    with pytest.raises(GrammarError, match="in this regex") as caught:
        backend("bytes", "xgrammar").compile(Grammar(f"start: A\nA:  /{pattern}/", "lark"))
    assert (caught.value.line, caught.value.column) == (2, 5)


LOST = "start: A B\nA: /[a-z]+/\nB: /{}/"


def test_a_grammar_that_only_llguidance_reads_stays_there_and_says_what_it_loses():
    assert route(Grammar(LOST.format("[a-z]+[0-9]")))[0] == "xgrammar"
    grammar = Grammar(LOST.format("(?x) [a-z]+ [0-9]"))
    assert route(grammar)[0] == "llguidance"
    assert backend("bytes", "llguidance").compile(grammar).report.changes


@pytest.mark.parametrize("tail", [" ]", " missing", ' "a'])
def test_an_error_behind_a_translated_regex_has_the_place_that_the_user_knows(tail):
    text = 'start: /[[:alpha:]]/ "x"' + tail
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "xgrammar").compile(Grammar(text, "lark"))
    assert (caught.value.line, caught.value.column) == (1, len(text) - len(tail) + 2)


def test_lookaround_that_needs_an_intersection_is_refused_by_name():
    with pytest.raises(UnsupportedConstraint, match="lookahead"):
        prepare_lark("start: /(?!.*ab).*/")


def test_nothing_but_regexes_is_touched():
    text = 'start: "/[0-9]/" /[0-9]/ // /\\d/\n'
    assert prepare_lark(text) == text
    assert without_regexes(text) == 'start: "/[0-9]/" /aaaaa/ // /\\d/\n'
