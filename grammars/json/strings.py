r"""JSON strings as Lark terminals.

One spelling convention makes quoting commute with `&` and `~` (see `regexes/lark.py`); strings
without patterns may besides escape printable ASCII. A literal has the spelling `json.dumps`
gives it; to the letter of JSON Schema (`closed=False`) also the one with escapes for what is no
ASCII.
"""

from __future__ import annotations

from functools import lru_cache

from structspec.grammars.json.shapes import String
from structspec.grammars.lark_text import LarkText, in_quotes, literal, times
from structspec.grammars.regexes.derive import is_empty, length_bounds, words
from structspec.grammars.regexes.lark import FREE_CHARACTER, QUOTED_ANY, to_lark
from structspec.grammars.regexes.syntax import (
    ANY_CHARACTER,
    ANYTHING,
    Regex,
    alternatives,
    both,
    repeat,
    sequence,
)
from structspec.grammars.regexes.syntax import parts as parts_of
from structspec.grammars.regexes.syntax import text as text_regex

_NOTHING = r"/[^\s\S]/"
QUOTE = '"\\""'
_UNWRITTEN = r"/\x{10FFFF}/"  # Unicode promises that it is no character
_SEVERAL_SPELLINGS = frozenset('"\\/').union(map(chr, range(32)))


def has_text(string: String) -> bool:
    """Whether there is any such string, as far as can soon be told."""
    if string.values is not None:
        return bool(string.values)
    if not string.regexes:
        return True  # lengths alone leave room
    return _has_match(string_regex(string))


def string_regex(string: String) -> Regex:
    """Which texts these are."""
    if string.values is not None:
        return alternatives(*map(text_regex, string.values))
    regex = both(*string.regexes)
    if string.min_length or string.max_length is not None:
        regex = both(repeat(ANY_CHARACTER, string.min_length, string.max_length), regex)
    return regex


def list_texts(string: String, limit: int) -> tuple[str, ...] | None:
    """All of them, if they are few; None where they are more, or not soon found."""
    if string.values is not None:
        return string.values if len(string.values) <= limit else None
    return _list_words(string_regex(string), limit) if string.regexes else None


@lru_cache(maxsize=512)
def _list_words(regex: Regex, limit: int) -> tuple[str, ...] | None:
    if length_bounds(regex)[1] is None:
        return None
    found = words(regex, limit)
    return None if found is None else tuple(found)


@lru_cache(maxsize=512)
def _has_match(regex: Regex) -> bool:
    """Kept for the next schema: of a format with an intersection it takes 30 ms to tell."""
    return is_empty(regex) is not True


def string_body(string: String, lark: LarkText, *, is_lenient: bool) -> str:
    """The body of a Lark terminal for these strings, quotes included."""
    if string.values is not None:
        return " | ".join(literal_body(text, is_lenient=is_lenient) for text in string.values)
    if string.max_length == 0:
        return literal_body("", is_lenient=is_lenient)
    length = times(string.min_length, string.max_length)
    if not string.regexes:
        return f"{QUOTE} {lark.terminal(FREE_CHARACTER)}{length} {QUOTE}"
    parts = [_content(regex, lark) for regex in string.regexes]
    if string.min_length or string.max_length is not None:
        parts.append(f"({lark.terminal(QUOTED_ANY)}{length})")
    return f"{QUOTE} ({' & '.join(parts)}) {QUOTE}"


def _content(regex: Regex, lark: LarkText) -> str:
    """The inside of the strings that a regex describes.

    Of one that is only searched for, what follows is written as all byte strings, bound by what may
    stand in a string: once found, the library then sees that everything goes, and a mask is quick.
    """
    items = list(parts_of(regex))
    if len(items) < 3 or items[0] is not ANYTHING or items[-1] is not ANYTHING:
        return to_lark(regex, quoted=True)
    found = to_lark(sequence(*items[:-1]), quoted=True)
    return f"({found} ~({_NOTHING})) & {lark.terminal(QUOTED_ANY)}*"


def shadow_body(string: String, lark: LarkText) -> str | None:
    """The body of a terminal for a few of the strings that a search finds, to stand beside all.

    A mask is quick where the library sees at once that all text may follow, and it only looks
    whether a terminal goes on with text of any length, whatever comes then. While a search is on
    its way that of all strings does not; this one does, since what it waits for is a character
    that nobody writes. None where nothing is searched.
    """
    if len(string.regexes) != 1 or string.min_length or string.max_length is not None:
        return None
    items = list(parts_of(string.regexes[0]))
    if len(items) < 2 or items[0] is not ANYTHING:
        return None
    text = f"{lark.terminal(QUOTED_ANY)}*"
    is_open = items[-1] is ANYTHING
    searched = to_lark(sequence(*items[1 : -1 if is_open else None]), quoted=True)
    return f"{QUOTE} {text} {_UNWRITTEN} {searched} {text if is_open else ''} {QUOTE}"


def regex_body(regex: Regex) -> str:
    """The body of a terminal for all strings that a regex describes, quotes included."""
    return f"{QUOTE} {to_lark(regex, quoted=True)} {QUOTE}"


def literal_body(text: str, *, is_lenient: bool) -> str:
    """The body of a terminal for one string, quotes included.

    Lenient, in both spellings of `json.dumps`; else in the one without escapes for what is no
    ASCII, so that all of it is forced.
    """
    if is_lenient and not is_spelled_in_one_way(text):
        return regex_body(text_regex(text))
    return literal(in_quotes(text))


def every_spelling(text: str) -> str:
    """The same with the spellings that `json.dumps` never gives it, such as an escaped `/`."""
    if is_spelled_in_one_way(text) and _SEVERAL_SPELLINGS.isdisjoint(text):
        return literal_body(text, is_lenient=True)
    return regex_body(text_regex(text))


def is_spelled_in_one_way(text: str) -> bool:
    """Whether `json.dumps` writes the same with and without `ensure_ascii`."""
    return text.isascii() and "\x7f" not in text
