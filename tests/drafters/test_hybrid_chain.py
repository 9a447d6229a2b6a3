"""HybridDrafter's kinds of drafts: which comes first, and where the next goes on."""

from structspec import Speculation, SpeculativeConfig
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.request import RequestStatus
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import batch_of, start

BYTES = Vocabulary.bytes()
STOP = BYTES.stop_token_ids[0]
FABLE = "the quick brown fox jumps over the lazy dog"


def hybrid(**settings):
    """With room for long drafts; prompt lookup needs five letters."""
    sizes = {"num_speculative_tokens": 40, "max_guess_rows": 60, "prompt_lookup_min": 5}
    return HybridDrafter(BYTES, SpeculativeConfig(method="hybrid", **sizes, **settings))


def drafted(drafter, request, num_slots=40):
    token_ids = drafter.propose(batch_of(request, num_draft_slots=num_slots)).token_ids[0]
    return bytes(token_id for token_id in token_ids if token_id != STOP)


def finish(drafter, request):
    """Let the drafter see a request in a step, and then in the next that it is finished."""
    drafter.propose(batch_of(request))
    request.status = RequestStatus.FINISHED
    drafter.propose(Batch([]))


def predicting(text, **about):
    request = start(BYTES, **about)
    request.prediction_token_ids = list(text)
    return request


def test_a_prediction_comes_before_prompt_lookup():
    assert drafted(hybrid(), predicting(b"abcdeX", prompt="abcdeY", written=b"abcde"), 1) == b"X"
    assert drafted(hybrid(), start(BYTES, prompt="abcdeY", written=b"abcde"), 1) == b"Y"


def test_forced_text_then_the_prediction_then_forced_text_again():
    texts = ['{"a": 1, "b": 2}', '{"a": 9, "b": 8}']
    request = predicting(b'{"a": 9, "b": 2}', texts=texts)
    assert drafted(hybrid(), request) == b'{"a": 9, "b": 8}'


def test_the_tail_of_a_prediction_that_the_grammar_refuses_is_replaced_by_what_it_forces():
    request = predicting(b"abXYZ", texts=["abcd", "b"])
    assert drafted(hybrid(), request) == b"abcd"


def test_what_a_finished_request_wrote_is_drafted_behind_a_long_match():
    drafter = hybrid()
    finish(drafter, start(BYTES, prompt="?", written=FABLE.encode()))
    begun, rest = FABLE[:20].encode(), FABLE[20:].encode()
    request = start(BYTES, prompt="!", written=begun, request_id=1)
    assert drafted(drafter, request) == rest
    short = start(BYTES, prompt="!", written=begun[5:], request_id=2)
    assert drafted(drafter, short) == b""


def test_the_same_prompt_again_is_answered_as_before():
    drafter, prompt = hybrid(), "what do you know of foxes?"
    finish(drafter, start(BYTES, prompt=prompt, written=FABLE.encode()))
    again = start(BYTES, prompt=prompt, request_id=1)
    draft = drafted(drafter, again)
    assert len(draft) >= 16
    assert FABLE.encode().startswith(draft)


def test_without_cached_requests_nothing_is_remembered():
    drafter = hybrid(suffix_decoding_max_cached_requests=0)
    finish(drafter, start(BYTES, prompt="?", written=FABLE.encode()))
    request = start(BYTES, prompt="!", written=FABLE[:20].encode(), request_id=1)
    assert drafted(drafter, request) == b""


def test_what_a_finished_request_wrote_is_steered_by_the_grammar():
    drafter = hybrid()
    finish(drafter, start(BYTES, prompt="?", written=FABLE.encode()))
    texts = [FABLE.replace("dog", word) for word in ("cat", "bird")]
    request = start(BYTES, texts, written=FABLE[:20].encode(), request_id=1)
    request.matcher.forced = lambda limit: b""
    assert drafted(drafter, request) == FABLE[20:-3].encode()


def test_with_too_many_requests_for_guesses_only_what_is_certain_is_drafted():
    drafter = HybridDrafter(BYTES, SpeculativeConfig(max_guess_rows=3))
    requests = [
        predicting(b"abcd", prompt="abcd", written=b"ab", request_id=index) for index in range(2)
    ]
    certain = start(BYTES, ["abcd"], request_id=2)
    certain.matcher.forced_tokens = lambda limit: list(b"abcd")[:limit]
    batch = Batch([ScheduledRequest(one, 1, 15, True) for one in (*requests, certain)])
    draft = drafter.propose(batch)
    assert draft.token_ids[:2] == [[], []]
    assert bytes(draft.token_ids[2][:4]) == b"abcd"
    assert draft.num_certain == [0, 0, 4]
    assert not drafter._suffix._known and not drafter._prediction._known


def test_nothing_is_kept_of_requests_that_are_finished():
    drafter = hybrid()
    request = predicting(b"abcd", prompt="abcd", texts=["abcd"])
    finish(drafter, request)
    drafter.propose(batch_of(start(BYTES, ["ab", "b"], request_id=1)))
    parts = drafter._suffix._known, drafter._prediction._known, drafter._copier._known
    assert not any(request.request_id in part for part in parts)
    assert drafter._ngram._index.num_known(request) == 0


def test_a_request_may_choose_its_kinds_of_drafts_and_their_order():
    def drafted_by(*drafters):
        request = predicting(
            b"abcdeX",
            texts=["abcdeX", "abcdeYZ"],
            prompt="abcdeY",
            written=b"abcde",
            speculation=Speculation(drafters=drafters or None),
        )
        return drafted(hybrid(), request)

    assert drafted_by() == b"X"
    assert drafted_by("ngram", "prediction") == b"Y"
    assert drafted_by("ngram", "forced") == b"YZ"
    assert drafted_by("suffix") == b"Y"
    assert drafted_by("forced") == b""


def test_a_request_may_have_fewer_drafts():
    for limit in range(1, 7):
        wish = Speculation(num_speculative_tokens=limit)
        request = start(BYTES, ["abcde"], speculation=wish)
        assert drafted(hybrid(), request) == b"abcde"[:limit]
