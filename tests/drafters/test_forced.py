"""ForcedDrafter: forced text in the tokens that the tokenizer would use there."""

from structspec.drafters.forced import ForcedDrafter
from structspec.request import RequestStatus
from structspec.vocabulary import Vocabulary
from tests.drafters.replay import replay
from tests.drafters.toy import batch_of, start, words_vocabulary

STOP = None  # the bytes of a stop token
WORDS = words_vocabulary('{"', "name", '":', ' "', "café", "na", "xname", "xx")


def draft(texts, written=(), num_draft_slots=15, vocabulary=WORDS):
    """The drafted tokens as bytes."""
    request = start(vocabulary, texts, written=written)
    result = ForcedDrafter(vocabulary).propose(batch_of(request, num_draft_slots=num_draft_slots))
    assert result.is_forced == [[True] * len(result.token_ids[0])]
    return [vocabulary.token_bytes[token_id] for token_id in result.token_ids[0]]


def test_forced_text_is_spelled_as_the_tokenizer_would():
    assert draft(['{"name": "a"}', '{"name": "b"}']) == [b'{"', b"name", b'":', b' "']


def test_it_goes_on_behind_what_is_written():
    assert draft(['{"name": 1', '{"name": 2'], WORDS.encode_text('{"')) == [b"name", b'":', b" "]


def test_never_more_than_there_are_slots():
    assert draft(['{"name": "'], num_draft_slots=2) == [b'{"', b"name"]
    assert draft(['{"name": "'], num_draft_slots=0) == []


def test_nothing_forced_gives_no_draft():
    assert draft(["a", "b"]) == []


def test_behind_an_odd_spelling_the_rest_is_spelled_on_its_own():
    # The tokenizer writes `xname` as one token; behind `x` alone no token of its ends.
    assert draft(["xname"], b"x") == [b"name", STOP]


def test_a_backend_that_forces_less_than_there_is_gets_asked_again():
    request = start(WORDS, ['{"name": 1', '{"name": 2'])
    whole = request.matcher.forced
    request.matcher.forced = lambda limit: whole(min(limit, 7))  # `":` is torn apart there
    drafted = ForcedDrafter(WORDS).propose(batch_of(request)).token_ids[0]
    assert [WORDS.token_bytes[token_id] for token_id in drafted] == [b'{"', b"name", b'":', b" "]
    assert request.matcher.token_ids == []


def test_tokens_fall_into_step_again_behind_an_odd_spelling():
    # `n` `a` is not how the tokenizer spells `na`, but behind it a token begins all the same.
    assert draft(['na{"name'], b"na") == [b'{"', b"name", STOP]


def test_an_incomplete_character_at_the_end_is_left_out():
    # The texts part in the middle of a character: é is c3 a9, è is c3 a8.
    vocabulary = Vocabulary.bytes()
    assert draft(["caf\u00e9", "caf\u00e8"], vocabulary=vocabulary) == [b"c", b"a", b"f"]


def test_a_character_begun_in_the_output_is_completed():
    vocabulary = Vocabulary.bytes()
    assert draft(["\u00e9!"], b"\xc3", vocabulary=vocabulary) == [b"\xa9", b"!", STOP]


def test_tokenisation_starts_afresh_behind_a_special_token():
    request = start(WORDS, None, written=[ord("x"), *WORDS.stop_token_ids])
    request.matcher = start(WORDS, ["xname"]).matcher
    drafted = ForcedDrafter(WORDS).propose(batch_of(request)).token_ids[0]
    assert [WORDS.token_bytes[token_id] for token_id in drafted] == [b"xname", STOP]


def test_unconstrained_requests_get_no_forced_draft():
    assert draft(None) == []


def test_where_only_the_end_is_left_it_is_drafted():
    assert draft(["a"], b"a") == [STOP]
    assert draft(["a", "ab"], b"a") == []
    assert draft(["a"], b"a", num_draft_slots=0) == []


PAID = ['{"paid": false, "paid": true', '{"paid": true, "paid": false']
MERGING = words_vocabulary('{"', "paid", '":', " false", " true", ', "')


def test_a_last_token_that_always_merges_with_what_follows_is_drafted_no_more():
    drafter, drafted = ForcedDrafter(MERGING), []
    for request_id in range(5):
        for text in PAID:
            request = start(MERGING, PAID, request_id=10 * request_id + PAID.index(text))
            steps = replay(drafter, request, MERGING.encode_text(text), num_draft_slots=8)
            drafted.append([MERGING.decode_bytes(step.token_ids) for step in steps])
            request.status = RequestStatus.FINISHED
    assert drafted[0][0] == b'{"paid": '
    assert drafted[-1][0] == b'{"paid":'
    assert len(drafted[0]) == len(drafted[-1])


def test_a_last_token_that_stands_is_drafted_on():
    texts = ['{"paid": 1', '{"paid": 2']
    drafter = ForcedDrafter(MERGING)
    for request_id in range(5):
        request = start(MERGING, texts, request_id=request_id)
        steps = replay(drafter, request, MERGING.encode_text(texts[0]), num_draft_slots=8)
        assert MERGING.decode_bytes(steps[0].token_ids) == b'{"paid": '
        request.status = RequestStatus.FINISHED
