"""Vocabularies: the bytes behind every token, whichever way a tokenizer spells them."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from structspec.errors import ModelError
from structspec.vocabulary import Vocabulary
from tests.small_tokenizers import (
    byte_level_tokenizer,
    llama2_tokenizer,
    real_vocabulary,
    save,
    sentencepiece_content,
    sentencepiece_tokenizer,
    tekken_content,
    unigram_tokenizer,
)

TEXTS = [
    "Hello, world",
    '{"name": "Zoë", "n": [1, 22]}',
    "naïve 日本 😀\n\ttabs",
    "  two  blanks",
    "a a",
    "e\u0301 ﬁ①",  # what normalisation would write otherwise
    "<|im_end|></s><unk><0x41>",
]
MAKERS = [
    byte_level_tokenizer,
    sentencepiece_tokenizer,
    lambda: sentencepiece_tokenizer("always"),
    llama2_tokenizer,
    unigram_tokenizer,
]
MAKER_IDS = ["byte-level", "sentencepiece", "dummy-prefix", "llama2", "unigram"]
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("make", MAKERS, ids=MAKER_IDS)
def test_the_bytes_of_encoded_text_are_the_text(make, text):
    vocabulary = Vocabulary.from_tokenizer(make())
    assert vocabulary.decode_bytes(vocabulary.encode_text(text)) == text.encode()


@pytest.mark.parametrize(
    "name", ["smollm2", "llama3", "qwen3", "mistral-v1", "mistral-v3", "tekken"]
)
@settings(max_examples=50, deadline=None, derandomize=True)
@given(text=st.text())
def test_the_bytes_of_encoded_text_are_the_text_in_a_real_vocabulary(name, text):
    vocabulary = real_vocabulary(name)
    for whole in (text, *TEXTS):
        whole = "".join(c for c in whole if is_writable(c, vocabulary))
        assert vocabulary.decode_bytes(vocabulary.encode_text(whole)) == whole.encode()


def is_writable(character: str, vocabulary: Vocabulary) -> bool:
    """SmolLM2 has no token for 21 of the bytes; SentencePiece reads `▁` as a blank."""
    bytes_of_it = (bytes([byte]) for byte in character.encode())
    return character != "▁" and all(byte in single_bytes(vocabulary) for byte in bytes_of_it)


@cache
def single_bytes(vocabulary: Vocabulary) -> frozenset[bytes]:
    return frozenset(data for data in vocabulary.token_bytes if data and len(data) == 1)


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
    for make in MAKERS:
        token_bytes = Vocabulary.from_tokenizer(make()).token_bytes
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


def test_a_blank_that_the_tokenizer_puts_before_text_is_in_no_encoded_text():
    for tokenizer in (sentencepiece_tokenizer("always"), llama2_tokenizer()):
        assert tokenizer.encode("a").tokens == ["▁a"]
        vocabulary = Vocabulary.from_tokenizer(tokenizer)
        assert vocabulary.encode_text("a") == [tokenizer.token_to_id("a")]
        assert vocabulary.encode_text(" a") == [tokenizer.token_to_id("▁a")]


def test_two_tokens_of_the_same_bytes_keep_both_ids():
    vocabulary = Vocabulary.from_tokenizer(sentencepiece_tokenizer())
    same = [i for i, data in enumerate(vocabulary.token_bytes) if data == b"a"]
    assert same == [3, 5 + ord("a")]  # `a` and `<0x61>`


def test_a_byte_token_is_text_where_bytes_do_not_stand_in_for_characters():
    model = models.BPE({"<0x41>": 0, "</s>": 1}, [])
    vocabulary = Vocabulary.from_tokenizer(Tokenizer(model), stop_token_ids=[1])
    assert vocabulary.token_bytes[0] == b"<0x41>"


@pytest.mark.parametrize("make", [sentencepiece_tokenizer, unigram_tokenizer])
def test_the_unknown_token_is_no_text(make):
    tokenizer = make()
    assert not Vocabulary.from_tokenizer(tokenizer).is_text(tokenizer.token_to_id("<unk>"))


def test_tokens_without_bytes_are_no_text():
    vocabulary = Vocabulary((b"a", b"", None), (2,), lambda text: [0] * len(text))
    assert vocabulary.token_bytes == (b"a", None, None)
    assert vocabulary.special_token_ids == {1, 2}


def test_blanks_around_an_added_token_are_kept_where_the_tokenizer_would_eat_them():
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([AddedToken("<call>", special=False, lstrip=True, rstrip=True)])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    token_ids = vocabulary.encode_text("x <call> y")
    assert tokenizer.token_to_id("<call>") in token_ids
    assert vocabulary.decode_bytes(token_ids) == b"x <call> y"


def test_a_tokenizer_that_drops_merges_at_random_is_read_without():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate([*alphabet, "ab", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocab, [("a", "b")], dropout=1.0))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert tokenizer.encode("ab").tokens == ["a", "b"]
    assert Vocabulary.from_tokenizer(tokenizer).encode_text("ab") == [256]


def test_words_that_are_marked_instead_of_spelled_are_refused():
    for model in (
        models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"),
        models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>"),
    ):
        with pytest.raises(ModelError, match="do not spell text"):
            Vocabulary.from_tokenizer(Tokenizer(model), stop_token_ids=[0])


# Where texts end and how wide the logits are


def ends_tokenizer() -> Tokenizer:
    """Ids 0 to 4: two ends, a start, padding and a letter."""
    pieces = ["</s>", "<|im_end|>", "<s>", "<pad>", "a"]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.add_special_tokens(pieces[:4])
    return tokenizer


@pytest.mark.parametrize(
    ("configs", "stops"),
    [
        ({}, (0, 1)),
        ({"generation_config": {"eos_token_id": 2}}, (0, 1, 2)),
        ({"generation_config": {"eos_token_id": [1, 2]}}, (0, 1, 2)),
        ({"generation_config": {}, "config": {"eos_token_id": 2}}, (0, 1, 2)),
        ({"generation_config": {"eos_token_id": 1}, "config": {"eos_token_id": 2}}, (0, 1)),
        ({"tokenizer_config": {"eos_token": "<s>"}}, (0, 1, 2)),
        ({"tokenizer_config": {"eos_token": {"content": "<s>"}}}, (0, 1, 2)),
        ({"tokenizer_config": {"eos_token": None}}, (0, 1)),
        ({"tokenizer_config": {"pad_token": "<pad>"}}, (0, 1)),
    ],
    ids=lambda value: json.dumps(value).replace('"', "") if isinstance(value, dict) else "",
)
def test_all_ends_that_the_files_of_a_model_name_are_stop_tokens(tmp_path, configs, stops):
    vocabulary = Vocabulary.from_tokenizer(save(tmp_path, ends_tokenizer(), **configs))
    assert vocabulary.stop_token_ids == stops
    assert vocabulary.special_token_ids == {0, 1, 2, 3}


def test_stop_tokens_that_are_given_are_all_there_are(tmp_path):
    folder = save(tmp_path, ends_tokenizer(), generation_config={"eos_token_id": 2})
    assert Vocabulary.from_tokenizer(folder, stop_token_ids=[1]).stop_token_ids == (1,)


def test_a_wrapper_knows_the_folder_it_was_read_from(tmp_path):
    class Fast:
        backend_tokenizer = ends_tokenizer()
        eos_token = "</s>"
        name_or_path = str(save(tmp_path, ends_tokenizer(), generation_config={"eos_token_id": 2}))

    assert Vocabulary.from_tokenizer(Fast()).stop_token_ids == (0, 1, 2)


def test_a_message_end_stops_unless_turns_have_an_end_of_their_own():
    tokenizer = ends_tokenizer()
    tokenizer.add_special_tokens(["<|end|>"])
    assert Vocabulary.from_tokenizer(tokenizer).stop_token_ids == (0, 1, 5)
    tokenizer.add_special_tokens(["<|return|>"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer, stop_token_ids=None)
    assert vocabulary.stop_token_ids == (0, 1)


def test_rows_of_the_embedding_beyond_the_tokenizer_are_padding(tmp_path):
    folder = save(tmp_path, ends_tokenizer(), config={"vocab_size": 64})
    vocabulary = Vocabulary.from_tokenizer(folder)
    assert vocabulary.vocab_size == 64
    assert set(range(5, 64)) <= vocabulary.special_token_ids
    assert Vocabulary.from_tokenizer(folder, vocab_size=8).vocab_size == 8


def test_an_embedding_narrower_than_the_tokenizer_does_not_cut_it(tmp_path):
    folder = save(tmp_path, ends_tokenizer(), config={"vocab_size": 3})
    assert Vocabulary.from_tokenizer(folder).vocab_size == 5


# Other kinds of files


def test_a_tekken_file_holds_special_tokens_first_and_then_bytes_by_rank(tmp_path):
    (tmp_path / "tekken.json").write_text(json.dumps(tekken_content()))
    vocabulary = Vocabulary.from_tokenizer(tmp_path)
    assert vocabulary.token_bytes[:30] == (None,) * 30
    assert vocabulary.token_bytes[30:286] == tuple(bytes([i]) for i in range(256))
    assert b"left out 0" not in vocabulary.token_bytes
    assert "日".encode()[:2] in vocabulary.token_bytes
    assert vocabulary.stop_token_ids == (2,)
    assert vocabulary.special_tokens["[TOOL_CALLS]"] == 9
    assert vocabulary.special_tokens["<SPECIAL_29>"] == 29
    for text in TEXTS:
        assert vocabulary.decode_bytes(vocabulary.encode_text(text)) == text.encode()
    name = vocabulary.token_bytes.index(b"name")
    assert vocabulary.encode_text("name") == [name]


def test_a_tekken_file_may_name_its_special_tokens(tmp_path):
    named = [{"rank": 0, "token_str": "<s>"}, {"rank": 4, "token_str": "</s>"}]
    (tmp_path / "tekken.json").write_text(json.dumps(tekken_content(special_tokens=named)))
    vocabulary = Vocabulary.from_tokenizer(tmp_path / "tekken.json")
    assert vocabulary.stop_token_ids == (4,)
    assert vocabulary.special_tokens["<SPECIAL_1>"] == 1


SENTENCE_PIECES = [
    ("<unk>", 0.0, _UNKNOWN),
    ("<s>", 0.0, _CONTROL),
    ("</s>", 0.0, _CONTROL),
    *((f"<0x{byte:02X}>", 0.0, _BYTE) for byte in range(256)),
    ("<call>", 0.0, _USER_DEFINED),
    ("never", 0.0, _UNUSED),
    ("ab", -1.0, _NORMAL),
    ("▁ab", -2.0, _NORMAL),
    ("bc", -3.0, _NORMAL),
    *((piece, -4.0, _NORMAL) for piece in "▁abc日"),
]


@pytest.mark.parametrize("model_type", [1, 2], ids=["unigram", "bpe"])
def test_a_sentencepiece_file_tells_pieces_from_control_tokens(tmp_path, model_type):
    file = tmp_path / "tokenizer.model"
    file.write_bytes(sentencepiece_content(SENTENCE_PIECES, model_type))
    vocabulary = Vocabulary.from_tokenizer(tmp_path)
    ids = {piece: i for i, (piece, _, _) in enumerate(SENTENCE_PIECES)}
    assert vocabulary.vocab_size == len(SENTENCE_PIECES)
    assert vocabulary.stop_token_ids == (2,)
    assert vocabulary.special_token_ids == {0, 1, 2, ids["never"]}
    assert vocabulary.token_bytes[ids["<0x41>"]] == b"A"
    assert vocabulary.token_bytes[ids["▁ab"]] == b" ab"
    assert vocabulary.token_bytes[ids["<call>"]] == b"<call>"
    assert vocabulary.encode_text(" ab") == [ids["▁ab"]]
    assert vocabulary.encode_text("abc") == [ids["ab"], ids["c"]]  # `ab` is worth more than `bc`
    assert vocabulary.encode_text("<call>") == [ids["<call>"]]
    for text in TEXTS:
        assert vocabulary.decode_bytes(vocabulary.encode_text(text)) == text.encode()


def test_tokenizer_json_is_read_before_other_files_beside_it(tmp_path):
    save(tmp_path, ends_tokenizer())
    (tmp_path / "tokenizer.model").write_bytes(b"")
    assert Vocabulary.from_tokenizer(tmp_path).vocab_size == 5


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.model", b"IQ== 0\nIg== 1\n", "no SentencePiece model"),
        ("tokenizer.model", sentencepiece_content(SENTENCE_PIECES, 2)[:-9], "no SentencePiece"),
        ("tokenizer.model", b"", "no pieces"),
        ("tokenizer.model", sentencepiece_content(SENTENCE_PIECES, 3), "type 3"),
        ("tokenizer.json", b"{", "is not JSON"),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}', "no model with a vocab"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"</s>": 0}}}', "cannot be read"),
        ("tekken.json", b'{"config": {}, "vocab": []}', "damaged"),
        (
            "tekken.json",
            json.dumps(tekken_content() | {"vocab": []}).encode(),
            "ranks 0 to ",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_so(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=words):
        Vocabulary.from_tokenizer(tmp_path / name)
