"""A vocabulary as llguidance reads it: bytes, names, and the slices that make masks quick."""

from __future__ import annotations

from functools import lru_cache

from llguidance import LLTokenizer

from structspec.vocabulary import Vocabulary

_LONGEST_KEPT = 200  # characters
SPECIAL = b"\xff"  # begins every token that is no text, and no text
# Tokens of one kind, which a mask admits or leaves as a whole where it can: letters and digits,
# then what has no blanks (`\S`), no line ends (`.`), and what a string holds without escapes.
# Every grammar's lexer takes them in, and many byte ranges make it slower to read: where blanks
# are forbidden, symbols and emoji are looked at one by one.
_NO_BLANKS = r"[!#-\[\]-~\x{A1}-\x{167F}\x{3001}-\x{D7FF}]"
_NO_LINE_ENDS = r'[^"\\\x00-\x1F\x7F\x{2028}\x{2029}]'
_SLICES = [
    "[a-zA-Z0-9]{1,10}",
    _NO_BLANKS + "{1,10}",
    _NO_LINE_ENDS + "{1,10}",
    _NO_LINE_ENDS + "{1,30}",
    _NO_LINE_ENDS + "+",
    r'[^"\\\x00-\x1F\x7F]+',
]


class TokenTable:
    """What LLTokenizer reads."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.stop_token_ids[0]
        self.special_token_ids = sorted(vocabulary.special_token_ids)
        # ids without text need a name each; 0xFF, which no UTF-8 holds, keeps it out of all text
        self.tokens = [
            SPECIAL + b"<%d>" % token_id if data is None else data
            for token_id, data in enumerate(vocabulary.token_bytes)
        ]
        self._encode_text = vocabulary.encode_text
        self._encode_again = lru_cache(maxsize=4096)(vocabulary.encode_text)

    def __call__(self, text: str) -> list[int]:
        """The tokens of forced text: keys, mostly, asked for by every row on their way.

        Threads that fill rows wait for each other here.
        """
        is_short = len(text) <= _LONGEST_KEPT
        return self._encode_again(text) if is_short else self._encode_text(text)


def make_tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """llguidance's view of a vocabulary; takes about a second for 150,000 tokens."""
    return LLTokenizer(
        TokenTable(vocabulary), eos_token=list(vocabulary.stop_token_ids), slices=_SLICES
    )
