"""A terminal takes exactly what its regex matches, as plain text and inside JSON strings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.lark import FREE_CHARACTER, QUOTED_ANY, to_lark
from structspec.grammars.regexes.parse import parse_full
from tests.grammars.regexes.regexes import ANY_REGEX, PLAIN, TEXTS, takes

_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def _numbered(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def spellings(character: str) -> list[str]:
    """All of the convention: itself, short, by number in either case."""
    found = [f"\\{_SHORT[character]}"] if character in _SHORT else []
    if character >= " " and character not in '"\\':
        found.append(character)
    if not " " <= character <= "~" or character in '"\\':
        found += [_numbered(character), _numbered(character).upper().replace("\\U", "\\u")]
    return found


@st.composite
def spelled_texts(draw: st.DrawFn) -> str:
    return "".join(draw(st.sampled_from(spellings(c))) for c in draw(TEXTS))


@settings(deadline=None, max_examples=400)
@given(ANY_REGEX, TEXTS)
def test_a_plain_terminal_takes_what_its_regex_matches(regex, text):
    assert takes(to_lark(regex, quoted=False), text) == matches(regex, text)


@settings(deadline=None, max_examples=400)
@given(ANY_REGEX, spelled_texts())
def test_a_quoted_terminal_takes_every_spelling_of_what_its_regex_matches(regex, spelling):
    text = json.loads(f'"{spelling}"')
    assert takes(to_lark(regex, quoted=True), spelling) == matches(regex, text)


@pytest.mark.parametrize(
    "spelling",
    [r"\u0061", r"\u002f", '"', "\n", r"\ud83d", r"\ude00\ud83d", r"\ud83d\u0041", "\\", r"\a"],
)
def test_no_other_spelling_is_taken(spelling):
    anything = to_lark(parse_full("[^z]*"), quoted=True)
    assert takes(anything, "b")
    assert not takes(anything, spelling)
    assert not takes(f"({QUOTED_ANY}*)", spelling)


@pytest.mark.parametrize("spelling", ["a", r"\u0061", r"\u002F", r"\/", "é", r"\u00E9", r"\n"])
def test_a_free_character_is_any_one_in_any_spelling(spelling):
    assert takes(FREE_CHARACTER, spelling)
    assert not takes(FREE_CHARACTER, spelling * 2)


@pytest.mark.parametrize("spelling", ["😀", r"\uD83D\uDE00", r"\ud83d\ude00", r"\udbff\udfff"])
def test_a_surrogate_pair_is_one_character(spelling):
    assert takes(FREE_CHARACTER, spelling) and takes(QUOTED_ANY, spelling)
    assert not takes(FREE_CHARACTER, spelling[: len(spelling) // 2])


@settings(deadline=None, max_examples=200)
@given(PLAIN)
def test_a_regex_without_and_or_not_is_one_literal(regex):
    written = to_lark(regex, quoted=True)
    assert written == '""' or (written[0] == written[-1] == "/" and "/" not in written[1:-1])


def test_plain_letters_look_in_json_as_they_did():
    assert to_lark(parse_full("[a-z]{2,3}-x"), quoted=True) == r"/[a-z]{2,3}\x2Dx/"


@pytest.mark.parametrize("text", ["a\U0010ffffb", "/", "#", "<x>", "é/"])
def test_characters_with_a_meaning_in_lark_are_only_text(text):
    escaped = "".join(f"\\U{ord(c):08x}" for c in text)
    assert takes(to_lark(parse_full(escaped), quoted=False), text)
