"""Lark text before xgrammar reads it: its regexes in the words that library reads right.

They are Rust's, as llguidance reads them: Unicode's `\\d`, `(?i)`, `[[:alpha:]]`. xgrammar takes
some of that for something else without a word.
"""

from __future__ import annotations

from collections.abc import Callable

from structspec.errors import GrammarError
from structspec.grammars.cfg import place
from structspec.grammars.lark_reader import Token, tokens_of
from structspec.grammars.regex import translate


def prepare_lark(text: str) -> str:
    """The grammar with its regexes translated; lines stay where they are.

    Raises GrammarError, with the place, for a regex that has no translation.
    """
    return _replaced(text, lambda token: _regex(text, token))


def without_regexes(text: str) -> str:
    """The grammar with a plain regex of the same width in the place of each."""
    return _replaced(text, lambda token: f"/{'a' * (len(token.text) - 2)}/")


def _replaced(text: str, replace: Callable[[Token], str]) -> str:
    written: list[str] = []
    position = 0
    for token in tokens_of(text):
        if token.kind == "regex":
            written += [text[position : token.start], replace(token)]
            position = token.start + len(token.text)
    return "".join(written) + text[position:]


def _regex(text: str, token: Token) -> str:
    body, _, flags = token.text[1:].rpartition("/")
    pattern = body.replace(r"\/", "/")
    try:
        written = translate(f"(?{flags}){pattern}" if flags else pattern, dialect="rust")
    except GrammarError as error:
        line, column = place(text, token.start)
        raise type(error)(f"in this regex, {error}", line=line, column=column) from None
    return f"/{written.replace('/', chr(92) + '/')}/"
