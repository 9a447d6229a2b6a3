"""Masks over vocabularies of every kind.

A token is allowed exactly where each of its bytes is; where text is forced, the canonical one.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Choice, Constraint, JsonSchema, Regex
from structspec.grammars.base import CompiledGrammar, Matcher
from structspec.grammars.router import Backends
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import PERSON
from tests.small_tokenizers import (
    PIECES,
    byte_level_tokenizer,
    large_spec,
    llama2_tokenizer,
    real_vocabulary,
    sentencepiece_tokenizer,
    tekken_content,
    unigram_tokenizer,
)

BYTES = Vocabulary.bytes()
STOP = 256
LAW = settings(max_examples=10, deadline=None, derandomize=True)

CONSTRAINTS: dict[str, Constraint] = {
    "json": JsonSchema(PERSON | {"additionalProperties": {"type": "string"}}),
    "pretty": JsonSchema(PERSON, style="pretty"),
    "regex": Regex(r"([a-z ]{1,30}|\d{4}-\d\d|[^\x00-\x7f]{2})+"),
    "choice": Choice(("name", "na", "é日本😀", 'q"uo\n', "</s>", "<0x41>", "▁a")),
}
TEXTS = {
    "json": '{"name": "Zoë日", "age": 12, "tags": ["a", "é"], "more": "x\\n\\u00e9\\ud83d\\ude00"}',
    "pretty": json.dumps({"name": "é日", "age": 7, "tags": []}, ensure_ascii=False, indent=2),
    "regex": "name na 2000-12é日ab",
    "choice": "é日本😀",
}


def odd_vocabulary() -> Vocabulary:
    """Twins, an empty token, bytes that are no text, stops in between, and 40 rows of padding."""
    tokens = [bytes([i]) for i in range(256)] + [None, b"name", b"name", b"", *PIECES, None]
    tokens += [*(b"</s>", b"\xff<3>", b"\xff[261]", b"a" * 40), *[None] * 40]
    stops = (256, tokens.index(None, 257))
    return Vocabulary(tuple(tokens), stops, lambda text: list(text.encode()))


def tekken_vocabulary() -> Vocabulary:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tekken.json").write_text(json.dumps(tekken_content()))
        return Vocabulary.from_tokenizer(folder, stop_token_ids=[2, 3], vocab_size=1000)


def large_vocabulary() -> Vocabulary:
    """128,006 tokens by rule, the logits a little wider."""
    return Vocabulary.from_tokenizer(Tokenizer.from_str(large_spec()), vocab_size=128_256)


SMALL = {
    "byte-level": lambda: Vocabulary.from_tokenizer(byte_level_tokenizer(), vocab_size=290),
    "sentencepiece": lambda: Vocabulary.from_tokenizer(sentencepiece_tokenizer()),
    "dummy-prefix": lambda: Vocabulary.from_tokenizer(llama2_tokenizer()),
    "unigram": lambda: Vocabulary.from_tokenizer(unigram_tokenizer()),
    "tekken": tekken_vocabulary,
    "odd": odd_vocabulary,
}
REAL = ("smollm2", "llama3", "qwen3", "mistral-v1", "mistral-v3", "tekken")
LARGE = ("large", *(f"real-{name}" for name in REAL))
WALKED = pytest.mark.parametrize(
    ("vocabulary_name", "library", "name"),
    [
        *((v, lib, name) for v in SMALL for lib in ("llguidance", "xgrammar") for name in TEXTS),
        *((v, "llguidance", name) for v in LARGE for name in TEXTS),
        ("large", "xgrammar", "choice"),
    ],
)


@cache
def vocabulary_of(name: str) -> Vocabulary:
    """By name; skips the test where a real one is not kept on this machine."""
    if name.startswith("real-"):
        return real_vocabulary(name.removeprefix("real-"))
    return large_vocabulary() if name == "large" else SMALL[name]()


@cache
def backends_of(vocabulary: Vocabulary) -> Backends:
    """One set for each."""
    return Backends(vocabulary)


@cache
def compiled(vocabulary: Vocabulary, library: str, name: str) -> CompiledGrammar:
    """One of the constraints."""
    constraint = CONSTRAINTS[name]
    return backends_of(vocabulary).get(library, constraint).compile(constraint)


def allowed_by(matcher: Matcher, vocabulary: Vocabulary) -> np.ndarray:  # [vocab_size]
    """Which tokens the mask allows, over bits that were all set."""
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    bitmask[:] = -1
    matcher.fill(bitmask, 0)
    return np.array(unpack_row(bitmask[0], vocabulary.vocab_size), bool)


def takes_bytes(matcher: Matcher, data: bytes) -> bool:
    """Whether these bytes may follow; the matcher is left as it was."""
    num_taken = 0
    for byte in data:
        if not matcher.accept(byte):
            break
        num_taken += 1
    matcher.rollback(num_taken)
    return num_taken == len(data)


def canonical(text: str, last: bytes, vocabulary: Vocabulary) -> set[bytes]:
    """What text begins with in the tokenizer's tokens: by itself, and behind the last token."""
    spelled = [vocabulary.encode_text(before + text) for before in ("", last.decode())]
    tokens = [[vocabulary.token_bytes[i] or b"" for i in token_ids] for token_ids in spelled]
    return {tokens[0][0]} | ({tokens[1][1]} if last and tokens[1][0] == last else set())


@WALKED
@LAW
@given(numbers=st.lists(st.integers(0, 10**6), max_size=12), seed=st.integers(0, 10**6))
@example(numbers=[394, 0, 0], seed=0)  # forced text, spelled otherwise from its middle on
@example(numbers=[4, 0, 0, 0], seed=0)
def test_a_token_is_allowed_exactly_where_its_bytes_are_or_is_the_canonical_one_of_forced_text(
    vocabulary_name, library, name, numbers, seed
):
    vocabulary = vocabulary_of(vocabulary_name)
    matcher = compiled(vocabulary, library, name).matcher()
    by_bytes = compiled(BYTES, library, name).matcher()
    last = b""
    for number in numbers:
        texts = allowed_by(matcher, vocabulary)
        texts[list(vocabulary.stop_token_ids)] = False
        if not texts.any():
            break
        ids = np.flatnonzero(texts)
        token_id = int(ids[number % len(ids)])
        assert matcher.accept(token_id)
        last = vocabulary.token_bytes[token_id]
        assert all(map(by_bytes.accept, last))
    allowed = allowed_by(matcher, vocabulary)
    forced = matcher.forced_tokens(1)
    if forced:
        assert np.flatnonzero(allowed).tolist() == forced
        data, text = vocabulary.token_bytes[forced[0]], by_bytes.forced(1000)
        assert text.startswith(data)
        with suppress(UnicodeDecodeError):  # halves of characters have no spelling of their own
            assert data in canonical(text.decode(), last, vocabulary)
        return
    may_stop = allowed_by(by_bytes, BYTES)[STOP]
    chosen = np.random.default_rng(seed)
    some = chosen.integers(0, vocabulary.vocab_size, 300)
    taken = chosen.permutation(np.flatnonzero(allowed))[:300]
    for token_id in {*some.tolist(), *taken.tolist(), *vocabulary.stop_token_ids}:
        data = vocabulary.token_bytes[token_id]
        if data is not None:
            assert allowed[token_id] == takes_bytes(by_bytes, data), data
        else:
            assert allowed[token_id] == (may_stop and token_id in vocabulary.stop_token_ids)
    without_text = np.array(sorted(vocabulary.special_token_ids - {*vocabulary.stop_token_ids}))
    assert without_text.size == 0 or not allowed[without_text].any()


@WALKED
def test_text_is_taken_token_by_token_and_then_any_of_the_stop_tokens(
    vocabulary_name, library, name
):
    vocabulary = vocabulary_of(vocabulary_name)
    matcher = compiled(vocabulary, library, name).matcher()
    token_ids = vocabulary.encode_text(TEXTS[name])
    assert vocabulary.decode_bytes(token_ids).decode() == TEXTS[name]
    for token_id in token_ids[:-1]:
        assert matcher.accept(token_id), (vocabulary.token_bytes[token_id], matcher.forced(30))
        if name != "regex":  # which may end in many places
            assert not any(map(matcher.accept, vocabulary.stop_token_ids))
    assert matcher.accept(token_ids[-1])
    for stop in vocabulary.stop_token_ids:
        assert matcher.accept(stop)
        assert np.flatnonzero(allowed_by(matcher, vocabulary)).tolist() == sorted(
            vocabulary.stop_token_ids
        )
        matcher.rollback(1)


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
def test_a_character_may_be_written_in_halves_and_must_be_finished(library):
    vocabulary = vocabulary_of("odd")
    constraint = JsonSchema({"type": "string", "maxLength": 1})
    matcher = backends_of(vocabulary).get(library, constraint).compile(constraint).matcher()
    whole = "日".encode()
    half, rest = map(vocabulary.token_bytes.index, (whole[:2], whole[2:]))
    assert matcher.accept(ord('"')) and matcher.accept(half)
    allowed = allowed_by(matcher, vocabulary)
    endings = {vocabulary.token_bytes[i] for i in np.flatnonzero(allowed)}
    assert endings == {bytes([byte]) for byte in range(0x80, 0xC0)}
    assert matcher.accept(rest) and matcher.accept(ord('"')) and matcher.accept(256)


@pytest.mark.parametrize("library", ["llguidance", "xgrammar", "outlines", "lm-format-enforcer"])
def test_twins_are_both_allowed_and_empty_tokens_and_padding_never(library):
    vocabulary = vocabulary_of("odd")
    constraint = Regex("[a-z]*")
    matcher = backends_of(vocabulary).get(library, constraint).compile(constraint).matcher()
    ids = set(np.flatnonzero(allowed_by(matcher, vocabulary)).tolist())
    twins = [i for i, data in enumerate(vocabulary.token_bytes) if data == b"name"]
    assert len(twins) == 3  # the third is in PIECES
    spelled = {i for i, data in enumerate(vocabulary.token_bytes) if data and data.isalpha()}
    letters = {i for i in spelled if vocabulary.token_bytes[i].islower()}
    assert ids == letters | {*vocabulary.stop_token_ids}
    for token_id in twins:
        assert matcher.accept(token_id)
        matcher.rollback(1)
    for token_id in vocabulary.special_token_ids - {*vocabulary.stop_token_ids}:
        assert not matcher.accept(token_id)
