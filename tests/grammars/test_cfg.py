"""Context-free grammars: what they take in either dialect, and what is said of wrong ones."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Grammar, StructuralTag
from structspec.errors import GrammarError, StructspecError, UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar
from structspec.grammars.ebnf import unproductive
from structspec.grammars.lark_checks import check_productive
from structspec.grammars.lark_losses import find_losses
from structspec.grammars.lark_reader import inline_json, read_rules
from structspec.grammars.router import route
from tests.grammars.cases import VOCABULARIES, backend


def compiled(grammar: Grammar, library: str | None = None) -> CompiledGrammar:
    return backend("bytes", library or route(grammar)[0]).compile(grammar)


def takes(grammar: Grammar, text: str, library: str | None = None) -> bool:
    matcher = compiled(grammar, library).matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


# dialect, grammar, what it takes, what it does not
LANGUAGES: dict[str, tuple[str, list[str], list[str]]] = {
    "lark-direct-left": ('start: start "-" N | N\nN: /[0-9]+/', ["1", "1-23-4"], ["", "1-", "-1"]),
    "ebnf-direct-left": ('root ::= root "-" n | n\nn ::= [0-9]+', ["1", "1-23-4"], ["", "1-"]),
    "lark-hidden-left": ('start: m start ";" | "k"\nm: "m"?', ["k", "mk;", "mmk;;"], ["mk", ";"]),
    "ebnf-hidden-left": ('root ::= m root ";" | "k"\nm ::= "m" | ""', ["k", "mk;", "k;;"], ["mk"]),
    "lark-mutual-left": ('start: a\na: b "x" | "p"\nb: a "y" | "q"', ["p", "qx", "pyx"], ["py"]),
    "lark-cycle": ('start: a\na: b | "p"\nb: a | "q"', ["p", "q"], ["", "pq"]),
    "lark-ambiguous": ('start: start start | "s"', ["s", "s" * 40], ["", "st"]),
    "lark-nested": ('start: "<" start ">" start | ""', ["", "<><<>>", "<" * 60 + ">" * 60], ["<"]),
    "ebnf-nested": ('root ::= "<" root ">" root | ""', ["", "<><<>>"], ["<", "><"]),
    "lark-counts": ('start: "a"{2,3} "b"~1..2 "c"~2 "d"{,1}', ["aabcc", "aaabbccd"], ["abcc"]),
    "ebnf-counts": ('root ::= "a"{2,3} [0-9]{2}', ["aa12", "aaa12"], ["a12", "aa1"]),
    "lark-ignore": ('start: "let" /[a-z]/ ";"\n%ignore / +/', ["letx;", "let x  ;"], ["le tx;"]),
    "lark-import": ("start: INT\n%import common.INT", ["42"], ["x", ""]),
    "lark-and-not": ("start: W\nW: /[a-z]+/ & ~/(?s:.*)no(?s:.*)/", ["yes", "n"], ["nope"]),
    "lark-not-inline": ('start: ~("a" | ~/[ab]+/) "c"', ["bc", "abc"], ["ac", "xc", "c"]),
    "lark-unicode": ('start: "日" /[а-я]+/ | "é"', ["日да", "é"], ["日", "e"]),
    "ebnf-unicode": ("root ::= [а-я]+ [^a-z]", ["да日", "дД", "да"], ["даx", "д"]),
    "lark-overlap": ("start: A B\nA: /[a-z]+/\nB: /[a-z]+[0-9]/", ["ab1", "abcd1"], ["a1", "ab"]),
    "lark-keyword": ('start: "if " W | W\nW: /[a-z]+/', ["if x", "if", "iffy"], ["if "]),
    "lark-json": ('start: "x=" j\nj: %json {"enum": [1, "a"]}', ["x=1", 'x="a"'], ["x=2", "1"]),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_grammar_takes_its_language(name):
    text, right, wrong = LANGUAGES[name]
    grammar = Grammar(text)
    assert route(grammar)[0] == "xgrammar" or name.startswith("lark")
    for sentence in right:
        assert takes(grammar, sentence), sentence
    for sentence in wrong:
        assert not takes(grammar, sentence), sentence


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('start: "a" start', 1, "start"),
        ('start: "a" | x\nx: "b" x', 2, "'x'"),
        ('start: "a" x*\n\nx: y "c"\ny: x', 3, "'x'"),
        ('start: ("a"\n  | b)\nb: [b] b', 3, "'b'"),
        ("start: a\na: missing", 2, "missing"),
        ('start: "a', 1, "error"),
        ("start: /(a/", 1, "group"),
        ('start: "a" %json {"type": }', 1, "JSON"),
        ('start: "a"\nj: b\nb: %json\n', 3, "%json"),
        ('root ::= "a" root', 1, "root"),
        ('root ::= "a" | x\nx ::= "b" x', 2, "'x'"),
        ("root ::= a\na ::= missing", 2, "missing"),
        ('root ::= "a', 1, "string"),
        ('main ::= "a"', 1, "root"),
    ],
)
def test_a_wrong_grammar_is_refused_with_its_line(text, line, words):
    with pytest.raises(GrammarError, match=re.escape(words)) as caught:
        compiled(Grammar(text))
    assert caught.value.line == line
    assert caught.value.column is not None


def test_no_schema_inside_a_grammar_is_believed_unread():
    with pytest.raises(GrammarError, match="strin") as caught:
        compiled(Grammar('start: "a" j\nj: %json {"type": "strin"}'))
    assert caught.value.line == 2


def test_what_a_schema_inside_a_grammar_loses_is_in_the_report():
    schema = '{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}'
    report = compiled(Grammar(f'start: "<" j ">"\nj: %json {schema}')).report
    assert [finding.keyword for finding in report.approximated] == ["uniqueItems"]
    assert "line 2" in report.approximated[0].reason
    assert not report.exact


def test_lines_behind_a_long_schema_are_counted_right():
    text = 'start: "a" j\nj: %json {\n"type":\n"integer"\n}\nk: "b\n'
    with pytest.raises(GrammarError) as caught:
        compiled(Grammar(text), "llguidance")
    assert caught.value.line == 6


def test_white_space_that_a_grammar_ignores_is_not_ignored_inside_its_json():
    grammar = Grammar('start: "a" %json {"enum": [[1, 2]]} "b"\n%ignore / +/')
    assert takes(grammar, "a[1, 2]  b")
    assert not takes(grammar, f"a[1,{' ' * 9}2] b"), "more blanks than JSON is given"
    assert any("%ignore" in change for change in compiled(grammar).report.changes)


def test_json_inside_a_grammar_is_refused_by_xgrammar_by_name():
    with pytest.raises(UnsupportedConstraint, match="llguidance"):
        compiled(Grammar('start: %json {"type": "integer"}'), "xgrammar")


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ('start: A "b"\nA: /[a-z]+/', True),
        ('start: A "1"\nA: /[a-z]+/', False),
        ("start: A+\nA: /[a-z]/", False),
        ("start: A+\nA: /[a-z]+/", False),
        ('start: "a" | "ab" "c" | "a" "bd"', True),
        ('start: "if" " " ID | ID\nID: /[a-z]+/', False),
        ('start: x "é"\nx: A\nA: "a" /[èê]/*', True),  # one first byte
        ("start: A B\nA: /a/ | B\nB: C{2,3}\nC: /x/", True),
        ("start: A B\nA: /[ab]*a[ab]{20}/\nB: /c/", True),  # not soon decided
    ],
)
def test_texts_that_greedy_terminals_lose_are_found(text, is_lost):
    lost = find_losses(text)
    if text == "start: A+\nA: /[a-z]+/":
        assert lost, "a second A never begins, though every text is taken as one"
    else:
        assert bool(lost) == is_lost, lost


def test_a_grammar_that_llguidance_would_lose_texts_of_goes_to_xgrammar():
    library, reason = route(Grammar(LANGUAGES["lark-overlap"][0]))
    assert library == "xgrammar"
    assert "A" in reason
    changes = compiled(Grammar(LANGUAGES["lark-overlap"][0]), "llguidance").report.changes
    assert any("line 1" in change for change in changes)


WORDS = ["".join(letters) for n in range(5) for letters in itertools.product("ab", repeat=n)]


@st.composite
def bodies(draw, depth: int = 2) -> tuple[str, str]:
    """A rule body without names in Lark, and the regex that means the same."""
    kind = draw(st.sampled_from(["text", "row", "or", "count"] if depth else ["text"]))
    if kind == "text":
        text = draw(st.sampled_from(["a", "b", "ab"]))
        return f'"{text}"', text
    parts = draw(st.lists(bodies(depth - 1), min_size=1, max_size=3))
    if kind == "row":
        return " ".join(f"({p})" for p, _ in parts), "".join(f"(?:{r})" for _, r in parts)
    if kind == "or":
        return " | ".join(f"({p})" for p, _ in parts), "|".join(f"(?:{r})" for _, r in parts)
    count = draw(st.sampled_from(["*", "+", "?", "{1,2}", "{2}"]))
    return f"({parts[0][0]}){count}", f"(?:{parts[0][1]}){count}"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(body=bodies())
def test_a_grammar_never_takes_what_its_rules_do_not_and_loses_only_what_is_reported(body):
    lark, regex = body
    grammar = compiled(Grammar(f"start: {lark}"), "llguidance")
    lost = []
    for word in WORDS:
        matcher = grammar.matcher()
        is_taken = all(map(matcher.accept, word.encode())) and matcher.accept(256)
        is_right = re.fullmatch(regex, word) is not None
        assert is_right or not is_taken, word
        if is_right and not is_taken:
            lost.append(word)
    assert not lost or grammar.report.changes, lost


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(alphabet='startx:|" \n/()[]{}*+?%~,.#0ab"', max_size=40))
def test_any_text_as_a_grammar_ends_in_a_grammar_or_a_typed_error(text):
    try:
        compiled(Grammar(f"start: {text}"))
    except StructspecError as error:
        assert str(error)


def test_rules_are_read_with_their_parts():
    rules = read_rules('?start.2: "a" b~1..2 [C]\n  | b -> c // x: y\nb: /[/:]/ # z\nC: "é"i\n')
    assert list(rules) == ["start", "b", "C"]
    assert len(rules["start"].body.alternatives) == 2
    assert len(rules["start"].body.alternatives[0]) == 3


def test_a_schema_is_found_where_it_stands_and_not_in_strings():
    text = 'start: "%json {" %json {"a": "}"} /%json/ // %json {\n'
    assert [(j.schema, text[j.start : j.end]) for j in inline_json(text)] == [
        ('{"a": "}"}', '%json {"a": "}"}')
    ]


def test_an_unused_rule_may_be_without_end():
    check_productive('start: "a"\nx: x')


def test_rules_of_printed_ebnf_that_no_text_ends_are_named():
    printed = 'root ::= (("a") | (x))\nx ::= (("b" x))\ny ::= ((y))'
    assert unproductive(printed) == ("x",)


def test_a_wrong_grammar_inside_a_structural_tag_has_the_place_of_both():
    inside = {"type": "grammar", "syntax": "lark", "grammar": 'start: "a"\n  missing'}
    tag = StructuralTag({"format": {"type": "sequence", "elements": [inside]}})
    with pytest.raises(GrammarError, match="read as Lark") as caught:
        backend("bytes", "llguidance").compile(tag)
    assert caught.value.pointer == "#/format/elements/0/grammar"
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "text", ["start: A\nA: ~/x/", "start: ~/x/", 'start: A\nA: ~("x" "y" | ~"z")']
)
def test_a_negation_allows_no_special_token_and_no_half_character(text):
    vocabulary = VOCABULARIES["pieces"]()
    matcher = backend("pieces", "llguidance").compile(Grammar(text)).matcher()
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    matcher.fill(bitmask, 0)
    allowed = set(np.flatnonzero(unpack_row(bitmask[0], vocabulary.vocab_size)).tolist())
    assert not (allowed & vocabulary.special_token_ids) - set(vocabulary.stop_token_ids)
    assert 0xFF not in allowed
