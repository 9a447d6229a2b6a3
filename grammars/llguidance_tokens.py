"""A vocabulary as llguidance reads it: bytes, names, and the slices that make masks quick."""

from __future__ import annotations

from llguidance import LLTokenizer

from structspec.grammars.llguidance_native import NativeTokenizer
from structspec.grammars.spelling_memory import spelling_function
from structspec.vocabulary import Vocabulary

SPECIAL = b"\xff"  # begins every token that is no text, and no text
# Tokens of one kind, which a mask admits or leaves as a whole where it can: letters and digits,
# then what has no blanks (`\S`), no line ends (`.`), and what a string holds without escapes; and
# words with blanks, as prose of so many characters has them, up to the longest that is usual: of
# such a mask in the middle of its text next to nothing is left to be looked at token by token.
# Every grammar's lexer takes them in, and many byte ranges make it slower to read: where blanks
# are forbidden, symbols and emoji are looked at one by one.
_NO_BLANKS = r"[!#-\[\]-~\x{A1}-\x{167F}\x{3001}-\x{D7FF}]"
_NO_LINE_ENDS = r'[^"\\\x00-\x1F\x7F\x{2028}\x{2029}]'
_SLICES = [
    "[a-z ]{1,10}",
    "[a-z ]{1,30}",
    "[a-zA-Z ]{1,30}",
    "[a-zA-Z0-9 ]{1,30}",
    "[a-zA-Z0-9]{1,10}",
    _NO_BLANKS + "{1,10}",
    _NO_LINE_ENDS + "{1,10}",
    _NO_LINE_ENDS + "{1,30}",
    _NO_LINE_ENDS + "+",
    r'[^"\\\x00-\x1F\x7F]+',
]


def make_tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """llguidance's view of a vocabulary; takes about half a second for 150,000 tokens.

    It may be used for as long as the vocabulary is kept.
    """
    memory, function = spelling_function(vocabulary)
    return LLTokenizer.from_llamacpp(
        tokens=_named_tokens(vocabulary),
        vocab_ptr=memory,
        tokenize_fptr=function,
        eos_token=list(vocabulary.stop_token_ids),
        slices=_SLICES,
    )


def make_native_tokenizer(vocabulary: Vocabulary) -> NativeTokenizer:
    """The same for the C interface; as slow."""
    spelling = spelling_function(vocabulary, is_for_c=True)
    return NativeTokenizer(vocabulary, _named_tokens(vocabulary), spelling, _SLICES)


def _named_tokens(vocabulary: Vocabulary) -> list[bytes]:
    # ids without text need a name each; 0xFF, which no UTF-8 holds, keeps it out of all text
    return [
        SPECIAL + b"<%d>" % token_id if data is None else data
        for token_id, data in enumerate(vocabulary.token_bytes)
    ]
