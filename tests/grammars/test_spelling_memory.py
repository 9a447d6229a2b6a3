"""The memory of spellings: what the compiled function says is what the tokenizer says."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.grammars import spelling_memory
from structspec.grammars.llguidance_tokens import make_tokenizer
from structspec.vocabulary import Vocabulary
from tests.grammars.test_vocabularies import SMALL, vocabulary_of

TEXTS = st.text(min_size=1, max_size=300)


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(texts=st.lists(TEXTS, max_size=5))
def test_text_is_spelled_as_the_tokenizer_spells_it_the_first_time_and_again(name, texts):
    vocabulary = vocabulary_of(name)
    tokenizer = make_tokenizer(vocabulary)
    for text in [*texts, *texts]:
        assert tokenizer.tokenize_str(text) == vocabulary.encode_text(text)


def counted(vocabulary: Vocabulary) -> tuple[Vocabulary, list[str]]:
    """The same vocabulary, and the texts that its tokenizer was asked for."""
    asked: list[str] = []

    def encode_text(text: str) -> list[int]:
        asked.append(text)
        return vocabulary.encode_text(text)

    return replace(vocabulary, encode_text=encode_text), asked


def test_the_tokenizer_is_asked_once_for_a_short_text_and_each_time_for_a_long_one():
    vocabulary, asked = counted(Vocabulary.bytes())
    tokenizer = make_tokenizer(vocabulary)
    asked.clear()
    short, long = "key", "k" * 300
    for _ in range(3):
        assert tokenizer.tokenize_str(short) == list(short.encode())
        assert tokenizer.tokenize_str(long) == list(long.encode())
    assert asked.count(short) == 1
    assert asked.count(long) >= 3


def test_texts_beyond_what_is_kept_push_out_old_ones_and_stay_right():
    vocabulary, asked = counted(Vocabulary.bytes())
    tokenizer = make_tokenizer(vocabulary)
    texts = [f"text {n}" for n in range(3 * spelling_memory._NUM_SLOTS)]
    for text in texts:
        assert tokenizer.tokenize_str(text) == list(text.encode())
    asked.clear()
    for text in (*texts[:1000], *texts[-1000:]):
        assert tokenizer.tokenize_str(text) == list(text.encode())
    assert texts[0] in asked and texts[-1] not in asked


def test_many_threads_agree():
    vocabulary = vocabulary_of("byte-level")
    tokenizer = make_tokenizer(vocabulary)

    def spell_some(seed: int) -> bool:
        random = Random(seed)
        texts = [f'"name{random.randrange(500)}": ' for _ in range(2000)]
        return all(tokenizer.tokenize_str(text) == vocabulary.encode_text(text) for text in texts)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(spell_some, range(16)))


def test_a_tokenizer_that_fails_leaves_a_line_in_the_log_and_no_tokens(caplog):
    def fail(text: str) -> list[int]:
        if text == "bad":
            raise RuntimeError("broken")
        return list(text.encode())

    vocabulary = replace(Vocabulary.bytes(), encode_text=fail)
    tokenizer = make_tokenizer(vocabulary)
    assert tokenizer.tokenize_str("bad") == []
    assert tokenizer.tokenize_str("good") == list(b"good")
    assert "broken" in caplog.text


def test_a_tokenizer_that_loses_text_is_not_believed():
    vocabulary = replace(Vocabulary.bytes(), encode_text=lambda text: [])
    tokenizer = make_tokenizer(vocabulary)
    assert tokenizer.tokenize_str("good") == list(b"good")


def test_a_memory_goes_with_its_vocabulary():
    vocabulary = Vocabulary.bytes()
    make_tokenizer(vocabulary)
    memory = weakref.ref(list(spelling_memory._memories.values())[-1])
    del vocabulary
    gc.collect()
    assert memory() is None
