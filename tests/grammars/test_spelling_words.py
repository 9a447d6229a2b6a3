"""Words cut off forced text: both sides are spelled as the tokenizer spells the whole."""

from __future__ import annotations

import numpy as np
import pytest

from structspec.grammars.llguidance_tokens import make_tokenizer
from structspec.grammars.spelling_words import first_word, word_table
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import VOCABULARIES
from tests.grammars.test_spelling_memory import counted
from tests.grammars.test_vocabularies import SMALL, vocabulary_of

RESTS = ['", "name": ', '"}, {"', ", 1", "}", "]}", ": ", '"', "x", ""]


def cut(table: np.ndarray, text: bytes) -> tuple[int, int]:
    return first_word(table, 0, np.frombuffer(text, np.uint8), len(text))


def spelled_by(tokens: list[bytes]):
    def spell(data: bytes) -> list[int]:
        found = []
        while data:
            token = max((t for t in tokens if data.startswith(t)), key=len)
            found.append(tokens.index(token))
            data = data[len(token) :]
        return found

    return spell


LETTERS = [bytes([i]) for i in range(32, 127)]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b'ky", "a": ', b"ky"),
        (b" Ann, ", b" Ann"),
        (b"12}", b"12"),
        (b"k", b""),  # nothing behind it
        (b"ky", b""),
        (b'kyk", ', b""),  # no token
        (b'"ky", ', b""),
        (b'!", ', b""),  # might be joined with what comes behind
        (b'", ', b""),
        (b"", b""),
    ],
)
def test_a_word_that_is_a_token_is_cut_off(text, word):
    tokens = [*LETTERS, b"ky", b" Ann", b"12"]
    table = word_table(tokens, spelled_by(tokens))
    end, token_id = cut(table, text)
    assert text[:end] == word
    assert not word or tokens[token_id] == word


def test_nothing_is_cut_where_a_token_may_stand_across():
    tokens = [*LETTERS, b"ky", b'y"']
    table = word_table(tokens, spelled_by(tokens))
    assert cut(table, b'ky", ') == (0, 0)
    assert cut(table, b"ky, ")[0] == 2


@pytest.mark.parametrize(
    "spell", [lambda data: [0], lambda data: [*data][::-1], lambda data: 1 / 0]
)
def test_a_tokenizer_that_spells_parts_otherwise_has_nothing_cut(spell):
    assert not word_table([*LETTERS, b"ky"], spell).any()


def test_the_tokenizer_is_not_asked_again_because_another_word_stands_before():
    vocabulary, asked = counted(Vocabulary.bytes())
    tokenizer = make_tokenizer(vocabulary)
    asked.clear()
    for word in "abcdefghij":
        text = f'{word}", "key": '
        assert tokenizer.tokenize_str(text) == list(text.encode())
    assert asked == ['", "key": ']


@pytest.mark.parametrize("name", [*SMALL, "smollm2"])
def test_words_with_json_behind_them_are_spelled_as_the_tokenizer_spells_them(name):
    vocabulary = VOCABULARIES[name]() if name in VOCABULARIES else vocabulary_of(name)
    tokenizer = make_tokenizer(vocabulary)
    words = [data.decode() for data in vocabulary.token_bytes if data and data.isascii()]
    for word in words[:: 1 + len(words) // 500]:
        for text in (word + rest for rest in RESTS):
            assert tokenizer.tokenize_str(text) == vocabulary.encode_text(text)
