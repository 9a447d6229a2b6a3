"""Structural tags: what they allow, where wrong ones are wrong, and that xgrammar agrees."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import StructuralTag
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar, Matcher
from structspec.grammars.router import route
from tests.grammars.cases import backend

DIGIT = {"type": "object", "properties": {"n": {"enum": [1, 22]}}, "required": ["n"]}
ANY = {"type": "any_text"}


def const(value: str) -> dict:
    return {"type": "const_string", "value": value}


def tag(begin: str, content: dict, end: str | list[str] = "</f>") -> dict:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def row(*elements: dict) -> dict:
    return {"type": "sequence", "elements": list(elements)}


JSON = {"type": "json_schema", "json_schema": DIGIT}
A, B = tag("<fa>", JSON), tag("<fb>", {"type": "regex", "pattern": "[a-c]{1,3}"})
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f"], "tags": [A, B]}
SEPARATED = {"type": "tags_with_separator", "tags": [A, B], "separator": ", "}

FORMATS: dict[str, dict] = {
    "const": const("ab<é"),
    "json": JSON,
    "regex": {"type": "regex", "pattern": "a+(bc)?"},
    "lark": {"type": "grammar", "syntax": "lark", "grammar": 'start: "a" start "b" | "c"'},
    "any-text": ANY,
    "any-text-without": {"type": "any_text", "excludes": ["ab", "<f"]},
    "any-text-short": {"type": "any_text", "max_chars": 3},
    "tag": A,
    "tag-free": tag("<t>", ANY, "</t>"),
    "tag-two-ends": tag("<t>", ANY, ["</t>", "!"]),
    "tag-nested": tag("<t>", row(const("x"), tag("<u>", ANY, "</u>"), ANY), "</t>"),
    "triggered": TRIGGERED,
    "triggered-first": {**TRIGGERED, "at_least_one": True},
    "triggered-once": {**TRIGGERED, "stop_after_first": True},
    "triggered-first-once": {**TRIGGERED, "at_least_one": True, "stop_after_first": True},
    "triggered-without": {**TRIGGERED, "excludes": ["a"]},
    "triggered-two": {**TRIGGERED, "triggers": ["<fa", "<fb>"]},
    "triggered-in-tag": tag("<t>", TRIGGERED, "</t>"),
    "separated": SEPARATED,
    "separated-some": {**SEPARATED, "at_least_one": True},
    "separated-once": {**SEPARATED, "stop_after_first": True},
    "or": {"type": "or", "elements": [A, const("none"), {"type": "regex", "pattern": "n[a-z]"}]},
    "optional": row(const("a"), {"type": "optional", "content": JSON}, const("z")),
    "plus": {"type": "plus", "content": A},
    "star": row({"type": "star", "content": B}, const(".")),
    "repeat": {"type": "repeat", "min": 2, "max": 3, "content": A},
    "repeat-open": {"type": "repeat", "min": 1, "max": -1, "content": const("ab")},
    "dispatch": {"type": "dispatch", "rules": [["<a", JSON], ["<b", const("!")]]},
    "dispatch-once": {"type": "dispatch", "rules": [["<a", JSON]], "loop": False},
    "regex-then-text": row({"type": "regex", "pattern": "[a-z]+"}, const("abc"), JSON),
}


@cache
def compiled(library: str, name: str) -> CompiledGrammar:
    constraint = StructuralTag({"type": "structural_tag", "format": FORMATS[name]}, style="compact")
    return backend("bytes", library).compile(constraint)


@cache
def original(name: str) -> CompiledGrammar:
    """xgrammar's own reading of the tag, its JSON schemas replaced by the texts they allow."""
    import xgrammar

    from structspec.grammars.base import Report
    from structspec.grammars.xgrammar import XGrammarBackend, XGrammarGrammar

    library = backend("bytes", "xgrammar")
    assert isinstance(library, XGrammarBackend)
    plain = {"type": "regex", "pattern": r'\{"n":(1|22)\}'}
    grammar = xgrammar.Grammar.from_structural_tag(
        {"type": "structural_tag", "format": _replace(FORMATS[name], JSON, plain)}
    )
    compiled = library._compiler.compile_grammar(grammar)
    return XGrammarGrammar(library, compiled, Report(""), has_free_keys=False)


def _replace(value, old, new):
    if value == old:
        return new
    if isinstance(value, dict):
        return {key: _replace(part, old, new) for key, part in value.items()}
    return [_replace(part, old, new) for part in value] if isinstance(value, list) else value


def takes(grammar: CompiledGrammar, text: str) -> bool:
    matcher = grammar.matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


def allowed(matcher: Matcher) -> list[int]:
    bitmask = allocate_bitmask(1, 257)
    matcher.fill(bitmask, 0)
    return np.flatnonzero(unpack_row(bitmask[0], 257)).tolist()


NUMBERS = st.lists(st.integers(0, 10**6), max_size=40)
LIKELY = (*b'<fab>/t!ux{"n":12}, .', 256)


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(numbers=NUMBERS)
def test_every_byte_allowed_is_one_that_xgrammars_own_reading_allows(library, name, numbers):
    ours, theirs = compiled(library, name).matcher(), original(name).matcher()
    for number in numbers:
        choices = allowed(ours)
        # xgrammar lets bytes begin a character that it cannot end; only whole ones are compared
        assert [b for b in choices if b < 0x80 or b == 256] == [
            b for b in allowed(theirs) if b < 0x80 or b == 256
        ]
        likely = [byte for byte in choices if byte in LIKELY] or choices
        token_id = likely[number % len(likely)]
        assert ours.accept(token_id)
        assert theirs.accept(token_id)
        if token_id == 256:
            break


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("triggered", ['say <b><fa>{"n":1}</f> and <fb>cab</f>', "", "a<"], ["<f", "<fc>", "<fa>"]),
        ("triggered-first", ['<fa>{"n":1}</f>, done'], ["", 'x<fa>{"n":1}</f>']),
        ("triggered-once", ["no", 'x<fa>{"n":1}</f>'], ['<fa>{"n":1}</f>x']),
        ("tag-free", ["<t></t>", "<t>a</</t>"], ["<t>", "<t></t></t>"]),
        ("separated", ["", '<fa>{"n":1}</f>, <fb>a</f>'], ["<fb>a</f>,", "<fb>a</f><fb>a</f>"]),
        ("any-text-short", ["", "éé😀"], ["abcd"]),
        ("regex-then-text", ['abcabc{"n":22}'], ['ab{"n":1}']),
    ],
)
def test_a_tag_takes_what_it_says_and_no_more(library, name, right, wrong):
    for text in right:
        assert takes(compiled(library, name), text), text
    for text in wrong:
        assert not takes(compiled(library, name), text), text


def test_the_older_form_is_triggered_tags():
    structures = [{"begin": "<fa>", "schema": DIGIT, "end": "</f>"}]
    old = StructuralTag({"structures": structures, "triggers": ["<f"]})
    grammar = backend("bytes", "llguidance").compile(old)
    assert takes(grammar, 'so <fa>{"n": 22}</f>.')
    assert not takes(grammar, "<fb>")


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"type": "foo"}, "#/format"),
        ({"type": "const_string"}, "#/format"),
        ({"type": "const_string", "value": 3}, "#/format/value"),
        ({"type": "const_string", "value": "a", "valeu": 3}, "#/format/valeu"),
        (row(const("a"), {"type": "regex", "pattern": "(a"}), "#/format/elements/1/pattern"),
        (row(), "#/format/elements"),
        (tag("<a>", ANY, ""), "#/format/end"),
        (tag("<a>", {"type": "json_schema", "json_schema": 3}), "#/format/content/json_schema"),
        ({**TRIGGERED, "triggers": ["<x"]}, "#/format/tags/0/begin"),
        ({**TRIGGERED, "triggers": ["<f", "<fa"]}, "#/format/tags/0/begin"),
        ({"type": "repeat", "min": 3, "max": 2, "content": const("a")}, "#/format/max"),
        ({"type": "any_text", "excludes": [""]}, "#/format/excludes"),
    ],
)
def test_a_wrong_tag_is_refused_with_a_pointer(value, pointer):
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "llguidance").compile(StructuralTag({"format": value}))
    assert caught.value.pointer == pointer


def test_an_error_in_a_schema_inside_has_its_place_in_the_whole():
    schema = {"properties": {"a": {"type": "strin"}}}
    inside = row(const("a"), tag("<f>", {"type": "json_schema", "json_schema": schema}))
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "llguidance").compile(StructuralTag({"format": inside}))
    place = "#/format/elements/1/content/json_schema/properties/a"
    assert (caught.value.pointer or "").startswith(place)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "any_tokens"},
        {"type": "exclude_token", "exclude_tokens": [3]},
        {"type": "any_text", "max_tokens": 5},
        {"type": "json_schema", "json_schema": True, "style": "qwen_xml"},
        {"type": "json_schema", "json_schema": True, "excludes": ["a"]},
    ],
    ids=lambda value: " ".join(value),
)
def test_what_no_library_holds_is_refused(value):
    with pytest.raises(UnsupportedConstraint) as caught:
        backend("bytes", "llguidance").compile(StructuralTag({"format": value}))
    assert (caught.value.pointer or "").startswith("#/format")


def test_a_tag_goes_to_xgrammar_where_llguidance_would_lose_texts_of_it():
    ebnf = {"type": "grammar", "grammar": 'root ::= "a" | "(" root ")"'}
    free_then_json = row(ANY, JSON)
    for value in (ebnf, free_then_json):
        assert route(StructuralTag({"format": value}))[0] == "xgrammar"
    for name in ("triggered", "tag-nested", "separated", "regex-then-text"):
        assert route(StructuralTag({"format": FORMATS[name]}))[0] == "llguidance"
    grammar = backend("bytes", "xgrammar").compile(StructuralTag({"format": free_then_json}))
    assert takes(grammar, 'see {"n": 1} or {"n": 22}')


def test_texts_that_llguidance_would_lose_are_in_its_report():
    constraint = StructuralTag({"format": row(ANY, JSON)})
    changes = backend("bytes", "llguidance").report(constraint).changes
    assert any("#/format/elements/0" in change for change in changes)


def test_ebnf_inside_is_refused_by_llguidance_by_name():
    value = {"type": "grammar", "grammar": 'root ::= "a"'}
    with pytest.raises(UnsupportedConstraint, match="xgrammar"):
        backend("bytes", "llguidance").compile(StructuralTag({"format": row(const("x"), value)}))


LARK_LOST = "start: A B\nA: /[a-z]+/\nB: /[a-z]+[0-9]/"  # llguidance would lose texts of it
WRONG_PARTS = [
    ({"grammar": 'root ::= "a"\n  ]'}, (2, 3), "read as EBNF"),
    ({"grammar": 'root ::= "a" root'}, (1, 1), '"syntax": "lark" reads Lark'),
    ({"grammar": 'start: "a"'}, (1, 6), '"syntax": "lark" reads Lark'),
    ({"grammar": r'root ::= "\x414"'}, (1, 11), "read as EBNF"),
    ({"grammar": "root ::= é"}, (1, 10), "read as EBNF"),
    ({"grammar": ""}, (None, None), "empty"),
    ({"grammar": f"{LARK_LOST}\n  ]", "syntax": "lark"}, (4, 3), "read as Lark"),
    ({"grammar": 'root ::= "a"', "syntax": "lark"}, (1, 6), '"syntax": "ebnf" reads EBNF'),
    ({"pattern": "a\n(b"}, (2, 3), "Python's dialect"),
    ({"pattern": "a(?=b)"}, (None, None), "no text at all"),
]


@pytest.mark.parametrize(("part", "place", "words"), WRONG_PARTS, ids=lambda v: str(v)[:40])
def test_a_wrong_grammar_or_regex_inside_has_both_places_and_says_how_it_was_read(
    part, place, words
):
    keyword = "grammar" if "grammar" in part else "pattern"
    kind = "grammar" if keyword == "grammar" else "regex"
    before = {"type": "grammar", "grammar": 'root ::= "b"'}
    content = {"type": kind, **part}
    wrong = StructuralTag({"format": row(before, tag("<f>", content))})
    with pytest.raises(GrammarError, match=re.escape(words)) as caught:
        backend("bytes", "xgrammar").compile(wrong)
    assert caught.value.pointer == f"#/format/elements/1/content/{keyword}"
    assert (caught.value.line, caught.value.column) == place


def test_a_schema_in_a_grammar_inside_is_read_by_our_own_rules_or_refused():
    content = {"type": "grammar", "syntax": "lark", "grammar": 'start: %json {"type": "null"}'}
    whole = StructuralTag({"format": tag("<f>", content)})
    assert route(whole)[0] == "llguidance"
    assert takes(backend("bytes", "llguidance").compile(whole), "<f>null</f>")
    with pytest.raises(UnsupportedConstraint, match="#/format/content/grammar: %json"):
        backend("bytes", "xgrammar").compile(whole)


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
def test_a_regex_inside_may_be_empty(library):
    whole = StructuralTag({"format": tag("<f>", {"type": "regex", "pattern": ""})})
    assert takes(backend("bytes", library).compile(whole), "<f></f>")
