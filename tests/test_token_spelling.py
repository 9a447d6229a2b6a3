"""Tokens that were told of, with what they spell."""

from __future__ import annotations

from structspec import TokenDetail, TokenLogprob, Vocabulary
from structspec.token_spelling import spelled


def test_a_token_is_spelled_in_bytes_which_need_be_no_whole_characters() -> None:
    vocabulary = Vocabulary.bytes()
    told = [TokenLogprob(byte, -1.0, ((97, -0.5), (256, -2.0))) for byte in "é".encode()]
    one, other = spelled(told, vocabulary)
    assert (one.text, one.data) == ("\ufffd", b"\xc3")
    assert one.top_texts == ("a", "") and one.top_data == (b"a", b"")  # 256 stops, without a name
    assert (one.data or b"") + (other.data or b"") == "é".encode()
    assert (one.token_id, one.logprob, one.top) == (0xC3, -1.0, told[0].top)


def test_special_tokens_are_spelled_by_name() -> None:
    vocabulary = Vocabulary((b"a", None), (1,), lambda text: [0] * len(text), {"<end>": 1})
    (detail,) = spelled([TokenDetail(1, "sampled", None, -1.0, -1.0, ((0, -3.0),))], vocabulary)
    assert (detail.text, detail.data, detail.top_texts) == ("<end>", b"<end>", ("a",))


def test_of_nothing_nothing_is_spelled() -> None:
    assert spelled([], Vocabulary.bytes()) == ()
    assert spelled([TokenLogprob(97, 0.0)], Vocabulary.bytes())[0].top_texts == ()
