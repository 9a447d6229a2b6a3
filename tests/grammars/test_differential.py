"""Every backend takes the same texts as the others, and as a model that is no backend at all."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, reject
from hypothesis import strategies as st

from structspec.constraint import Choice, Constraint, Grammar, Regex
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar
from tests.fuzz.bounds import fuzzed
from tests.fuzz.judge import limited
from tests.fuzz.languages import RULES, Language, language_of, matched_by
from tests.fuzz.patterns import patterns
from tests.grammars.cases import backend


def compiled(library: str, constraint: Constraint) -> CompiledGrammar | None:
    """The grammar; None where the backend says that it does not hold the constraint."""
    with limited():
        try:
            return backend("bytes", library).compile(constraint)
        except UnsupportedConstraint:
            return None


def check(constraint: Constraint, library: str, expected: Language) -> None:
    """The backend takes these texts, or says that it refuses them or takes others."""
    try:
        grammar = compiled(library, constraint)
    except GrammarError as error:
        assert expected <= {""}, (library, error)  # nothing, or nothing to write
        return
    if grammar is not None and grammar.report.exact:
        taken = language_of(grammar)
        assert taken <= expected, (library, sorted(taken - expected))
        assert taken == expected or grammar.report.changes, (library, sorted(expected - taken))


@fuzzed(80, 5_000, pattern=patterns(has_lookaround=False))
def test_a_regex_takes_what_python_matches_with_every_backend(pattern):
    expected = matched_by(pattern)
    for library in ("llguidance", "xgrammar", "outlines"):
        check(Regex(pattern), library, expected)


@fuzzed(80, 5_000, pattern=patterns(has_lookaround=True))
def test_a_regex_with_lookaround_takes_what_python_matches(pattern):
    try:
        expected = matched_by(pattern)
    except re.error:
        reject()  # Python wants lookbehind of one width
    for library in ("llguidance", "xgrammar"):
        check(Regex(pattern), library, expected)


@fuzzed(60, 5_000, rules=RULES)
def test_a_grammar_takes_the_texts_of_its_rules_in_either_dialect(rules):
    languages = rules.languages()
    # a rule without texts, or with none but the empty one, is refused
    assume(all(language - {""} for language in languages.values()))
    check(Grammar(rules.lark()), "llguidance", languages["s"])
    check(Grammar(rules.lark()), "xgrammar", languages["s"])
    check(Grammar(rules.ebnf()), "xgrammar", languages["s"])


@fuzzed(30, 1_000, choices=st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=6))
def test_choices_are_taken_with_every_backend_and_nothing_else(choices):
    for library in ("llguidance", "xgrammar", "outlines"):
        check(Choice(tuple(choices)), library, frozenset(choices))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('root ::= "a"\ny ::= y{0,3}', 2),
        ('root ::= "a"\nx ::= "" y{2}\ny ::= x', 2),
        ("root ::= root{1,2}", 1),
        ("start: start{0,3}", 1),
        ('start: "a" x\nx: y{2}\ny: x?', 2),
    ],
)
def test_a_rule_that_is_nothing_but_a_count_of_itself_is_refused_before_xgrammar_crashes(
    text, line
):
    with pytest.raises(GrammarError, match="for ever") as caught:
        backend("bytes", "xgrammar").compile(Grammar(text))
    assert caught.value.line == line


@pytest.mark.parametrize("pattern", ["(?:a|ab)(?:[ab])?", "(a|ab)(b|ba)?", "(?:a|aé)(?:[aé])?"])
def test_outlines_is_refused_where_it_reads_alternatives_as_the_first_that_fits(pattern):
    with pytest.raises(UnsupportedConstraint, match="outlines-core loses"):
        backend("bytes", "outlines").compile(Regex(pattern))
