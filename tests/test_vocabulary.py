"""Vocabularies: the bytes behind every token, whichever way a tokenizer spells them."""

from __future__ import annotations

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from structspec.errors import ModelError
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import smollm2_vocabulary

TEXTS = ["Hello, world", '{"name": "Zoë", "n": [1, 22]}', "naïve 日本 😀\n\ttabs", "  two  blanks"]


def byte_level_tokenizer() -> Tokenizer:
    """All 256 bytes, the merge `Ġa`, a special and a plain added token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: i for i, character in enumerate([*alphabet, "Ġa"])}
    tokenizer = Tokenizer(models.BPE(vocab, [("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>"])
    tokenizer.add_tokens([AddedToken("Ġplain", special=False)])
    return tokenizer


def sentencepiece_tokenizer() -> Tokenizer:
    """`▁` for the blank and every byte as `<0xNN>`."""
    pieces = ["<unk>", "</s>", "▁", "a", "▁a", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    model = models.BPE(vocab, [("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("make", [byte_level_tokenizer, sentencepiece_tokenizer])
def test_the_bytes_of_encoded_text_are_the_text(make, text):
    vocabulary = Vocabulary.from_tokenizer(make())
    assert vocabulary.decode_bytes(vocabulary.encode_text(text)) == text.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_encoded_text_are_the_text_in_a_real_vocabulary(text):
    vocabulary = smollm2_vocabulary()
    assert vocabulary.decode_bytes(vocabulary.encode_text(text)) == text.encode()


def test_special_tokens_and_padding_have_no_bytes_and_added_text_has_its_own():
    tokenizer = byte_level_tokenizer()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, vocab_size=300)
    end, plain = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("Ġplain")
    assert vocabulary.stop_token_ids == (end,)
    assert vocabulary.special_token_ids == {end, *range(259, 300)}
    assert vocabulary.token_bytes[plain] == "Ġplain".encode()  # not " plain"
    assert vocabulary.token_bytes[tokenizer.token_to_id("Ġa")] == b" a"
    assert (vocabulary.vocab_size, vocabulary.num_words) == (300, 10)
    assert (
        not vocabulary.is_text(end) and not vocabulary.is_text(-1) and not vocabulary.is_text(300)
    )


def test_every_byte_can_be_written_in_every_spelling():
    for tokenizer in (byte_level_tokenizer(), sentencepiece_tokenizer()):
        token_bytes = Vocabulary.from_tokenizer(tokenizer).token_bytes
        assert {bytes([byte]) for byte in range(256)} <= set(token_bytes)


def test_special_token_text_in_user_text_is_read_as_text():
    vocabulary = Vocabulary.from_tokenizer(byte_level_tokenizer())
    ids = vocabulary.encode_text("a<|im_end|>")
    assert not vocabulary.special_token_ids & set(ids)
    assert vocabulary.decode_bytes(ids) == b"a<|im_end|>"


def test_reading_a_tokenizer_leaves_it_as_it_was():
    tokenizer = byte_level_tokenizer()
    Vocabulary.from_tokenizer(tokenizer)
    assert tokenizer.encode("<|im_end|>").ids == [tokenizer.token_to_id("<|im_end|>")]


def test_a_file_a_folder_and_a_wrapper_read_the_same(tmp_path):
    tokenizer = byte_level_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": {"content": "<|im_end|>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    class Fast:
        backend_tokenizer = tokenizer
        eos_token = "<|im_end|>"

    direct = Vocabulary.from_tokenizer(tokenizer)
    for other in (tmp_path, str(tmp_path / "tokenizer.json"), Fast()):
        vocabulary = Vocabulary.from_tokenizer(other)
        assert vocabulary.token_bytes == direct.token_bytes
        assert vocabulary.stop_token_ids == direct.stop_token_ids


def test_an_object_that_has_a_vocabulary_gives_it_with_other_stops_where_asked():
    class Own:
        vocabulary = Vocabulary.bytes()

    assert Vocabulary.from_tokenizer(Own()) is Own.vocabulary
    other = Vocabulary.from_tokenizer(Own(), vocab_size=260, stop_token_ids=[10, 256])
    assert other.stop_token_ids == (10, 256)
    assert other.special_token_ids == {10, 256, 257, 258, 259}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vocab_size": 10}, "vocab_size 10"),
        ({"stop_token_ids": [500]}, "stop token 500"),
        ({"stop_token_ids": [-1]}, "stop token -1"),
    ],
)
def test_options_that_do_not_fit_the_tokenizer_are_refused(options, words):
    with pytest.raises(ModelError, match=words):
        Vocabulary.from_tokenizer(byte_level_tokenizer(), **options)


def test_a_tokenizer_without_any_known_end_asks_for_one():
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    with pytest.raises(ModelError, match="stop_token_ids"):
        Vocabulary.from_tokenizer(tokenizer)
    assert Vocabulary.from_tokenizer(tokenizer, vocab_size=2, stop_token_ids=[1]).vocab_size == 2


@pytest.mark.parametrize("thing", [object(), 3])
def test_what_is_no_tokenizer_is_refused_by_name(thing):
    with pytest.raises(ModelError, match=type(thing).__name__):
        Vocabulary.from_tokenizer(thing)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        Vocabulary.from_tokenizer(tmp_path / "nowhere")
