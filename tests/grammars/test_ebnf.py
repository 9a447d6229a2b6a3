"""EBNF is read to its last character, or refused with the place of what is not understood."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.constraint import Grammar, StructuralTag
from structspec.errors import GrammarError, StructspecError, UnsupportedConstraint
from tests.grammars.cases import backend


def compiled(text: str):
    return backend("bytes", "xgrammar").compile(Grammar(text, "ebnf"))


def takes(grammar, text: str) -> bool:
    matcher = grammar.matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


@pytest.mark.parametrize(
    "character", [*map(chr, range(1, 9)), "\v", "\f", "\x7f", "\x85", "\u2028"]
)
@pytest.mark.parametrize("place", ['root ::= "a"{} "b"', 'root ::= "a"{}', '{}root ::= "a"'])
def test_a_strange_character_between_texts_is_an_error_with_its_line(character, place):
    with pytest.raises(GrammarError) as caught:
        compiled("# first\n" + place.format(character))
    assert caught.value.line == 2
    assert caught.value.column is not None


@pytest.mark.parametrize("text", ['root ::= "a"\0', 'root ::= "\0"', "root ::= [\0]", "# \0\n"])
@pytest.mark.parametrize("dialect", ["ebnf", "lark"])
def test_a_nul_is_an_error_wherever_it_stands(text, dialect):
    with pytest.raises(GrammarError, match="NUL") as caught:
        backend("bytes", "xgrammar").compile(Grammar(text, dialect))
    assert (caught.value.line, caught.value.column) == (1, text.index("\0") + 1)


@pytest.mark.parametrize("dialect", ["ebnf", "lark", "auto"])
def test_a_byte_order_mark_is_named(dialect):
    with pytest.raises(GrammarError, match="utf-8-sig"):
        backend("bytes", "xgrammar").compile(Grammar('\ufeffroot ::= "a"', dialect))


MISREAD = {
    "a hexadecimal escape without a plain end": (r'root ::= "ab\x414"', 13, "second digit"),
    "the same in a class": (r"root ::= [\x00ab]", 11, "second digit"),
    "an octal escape": (r'root ::= "\012"', 11, "two things"),
    "half a character": (r'root ::= "\uD83D\uDE00"', 11, "surrogate"),
    "no character": (r'root ::= "\U00110000"', 11, "no character"),
    "a name beyond ASCII": ("root ::= é", 10, "ASCII"),
    "a count beyond what is counted": ('root ::= "a"{4294967297}', 14, "at most"),
    "a second count beyond it": ('root ::= "a"{1,99999999999}', 16, "at most"),
    "an assertion": ('root ::= "a" (="b")', 14, "assertion"),
    "a lookahead in a regex": ('root ::= Regex("(?!.*ab).*")', 16, "lookahead"),
    "an escape that a string lacks": (r'root ::= Regex("\d")', 17, r"\d"),
}


@pytest.mark.parametrize("name", MISREAD)
def test_what_would_be_misread_is_an_error_with_its_place(name):
    text, column, words = MISREAD[name]
    with pytest.raises(GrammarError, match=re.escape(words)) as caught:
        compiled(text)
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    "text",
    ['root ::= "a" )', 'root ::= "a" ] "b"', 'root ::= "a" ;', 'root ::= "a"\nfoo', "root ::= 'a'"]
    + ['root ::= "a', "root ::= [a", 'root ::= ("a"', 'root ::= "é', r'root ::= "\q"']
    + ['root ::= a\na ::= "a"\na ::= "b"', 'root ::= "a"\nb ::= c', "root ::= [z-a]"]
    + [
        'root ::= "a"{3,2}',
        'root ::= "a"{}',
        'root ::= "a" | ',
        'root ::= "a\nb"',
        "root ::= [a\n]",
    ]
    + [r'root ::= "\u12"', r'root ::= "\xg"', 'root ::= "a" // c', 'root ::= "a"i', "root ::= []"],
)
def test_what_is_no_ebnf_is_an_error_with_its_line(text):
    with pytest.raises(GrammarError) as caught:
        compiled(text)
    assert caught.value.line is not None


@pytest.mark.parametrize("macro", ['Substring("a")', 'Token("a")', "TagDispatch(loop=true)"])
def test_a_macro_that_speaks_of_more_than_text_is_refused_by_name(macro):
    with pytest.raises(UnsupportedConstraint, match=macro.partition("(")[0]):
        compiled(f'root ::= "x" {macro}')


RIGHT = {
    **{
        f'root ::= {name} ("\\\\d(")\n{name} ::= "x"': ("x\\d(", "x1(")
        for macro in ("Regex", "Token", "ExcludeToken", "Substring", "TagDispatch")
        for name in (f"my-{macro}", f"my.{macro}", f"my_{macro}", f"my{macro}")
    },
    r'root ::= "a\0b\u0000" [\0-\x1f]': ("a\0b\0\x01", "a"),
    r'root ::= "\x41" "\x4" "\u00e9b"': ("A\x04éb", "A4éb"),
    'root ::= "a" # "\r\n  "b"\r\n': ("ab", "a"),
    'root ::= "é" [日-本] "😀"': ("é日😀", "e日😀"),
    'a.b-c ::= "x"\nroot ::= a.b-c{2} []*': ("xx", "x"),
    r'root ::= Regex("[0-9]\\x0ab\\s") Regex("\"|é")': ('1\nb "', "1ª b "),
    r'root ::= Regex("a(?i)b\\Z") "c"': ("aBc", "aBZc"),
    'root ::= Regex("a(?!b)[a-z]")': ("ac", "ab"),
    'root ::= "Regex(\\"(\\")" [#"(=]': ('Regex("(")#', "Regex()#"),
}


@pytest.mark.parametrize("text", RIGHT)
def test_what_may_be_misread_is_read_right(text):
    right, wrong = RIGHT[text]
    grammar = compiled(text)
    assert takes(grammar, right)
    assert not takes(grammar, wrong)


def test_a_regex_inside_ebnf_inside_a_tag_is_read_in_the_same_dialect():
    content = {"type": "grammar", "grammar": r'root ::= Regex("\\x0ab")'}
    tag = StructuralTag({"format": {"type": "tag", "begin": "<", "content": content, "end": ">"}})
    assert takes(backend("bytes", "xgrammar").compile(tag), "<\nb>")


_LITERALS = st.text(st.characters(codec="utf-8"), max_size=6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(texts=st.lists(_LITERALS, min_size=1, max_size=3))
def test_any_text_written_in_escapes_is_taken_and_nothing_shorter(texts):
    escaped = ("".join(f"\\U{ord(c):08x}" for c in text) for text in texts)
    grammar = compiled("root ::= " + " ".join(f'"{text}"' for text in escaped))
    whole = "".join(texts)
    assert takes(grammar, whole)
    assert not whole or not takes(grammar, whole[:-1])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(alphabet='ro:= \n\r\0\x01\\x0u"[]^-(){}12,+*?|#é\ufeff', max_size=30))
def test_any_text_as_ebnf_is_a_grammar_or_a_typed_error(text):
    try:
        compiled(f"root ::= {text}")
    except StructspecError as error:
        assert str(error)
