"""A drafter stops spelling forced text where the model spells it otherwise, and tries again."""

import pytest

from structspec import Speculation, SpeculativeConfig
from structspec.drafters import trust as module
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.trust import SpellingTrust, TailTrust
from structspec.request import RequestStatus
from tests.drafters.replay import replay
from tests.drafters.toy import batch_of, start, words_vocabulary

WORDS = words_vocabulary("ab", "abab")  # the tokenizer always takes the longer one
TEXT = "abab" * 8
IN_FOURS = WORDS.encode_text(TEXT)
IN_TWOS = WORDS.encode_text("ab") * 16
STOP = WORDS.stop_token_ids[0]
ONLY_FORCED = Speculation(drafters=("forced",))
DRAFTERS = {
    "forced": lambda: ForcedDrafter(WORDS),
    "hybrid": lambda: HybridDrafter(WORDS, SpeculativeConfig()),
}


def drafted(drafter, output_token_ids, num_requests, first_id=0):
    """How many tokens were drafted for each of some requests that write this."""
    counts = []
    for index in range(num_requests):
        request = start(WORDS, [TEXT], request_id=first_id + index, speculation=ONLY_FORCED)
        steps = replay(drafter, request, list(output_token_ids))
        request.status = RequestStatus.FINISHED
        counts.append(sum(token_id != STOP for step in steps for token_id in step.token_ids))
    return counts


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_model_that_spells_as_its_tokenizer_does_is_always_drafted_for(kind):
    assert min(drafted(DRAFTERS[kind](), IN_FOURS, 100)) > 0


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_model_that_never_does_is_left_alone_after_a_while_and_tried_again(kind, monkeypatch):
    monkeypatch.setattr(module, "_REST", 100)
    counts = drafted(DRAFTERS[kind](), IN_TWOS, 40)
    assert counts[0] > 0
    first_rest = counts.index(0)
    assert any(counts[first_rest:]), "tried again"
    assert counts.count(0) > 10


def test_another_model_is_judged_for_itself():
    drafter = DRAFTERS["forced"]()
    drafted(drafter, IN_TWOS, 40)
    assert drafted(drafter, IN_FOURS, 1, first_id=100) == [0]
    assert drafted(DRAFTERS["forced"](), IN_FOURS, 1)[0] > 0


def judged(written, spelled, token_ids=(1, 2, 3)):
    """What counts of a draft behind an empty output."""
    trust, request = SpellingTrust(), start(WORDS)
    trust.note(request, list(token_ids), spelled)
    request.token_ids += written
    trust.judge()
    return trust._num_judged, trust._num_held


def test_a_token_counts_only_if_all_before_it_held():
    assert judged([1, 2, 3, 9], [0, 1, 2]) == (3, 3)
    assert judged([1, 9], [0, 1, 2]) == (2, 1)
    assert judged([9], [0, 1, 2]) == (1, 0)


def test_what_was_certain_or_guessed_does_not_count():
    assert judged([1, 2, 3, 9], [1]) == (1, 1)
    assert judged([9], [1]) == (0, 0)


def test_a_step_that_brought_nothing_yet_is_judged_later_and_one_that_never_will_is_dropped():
    trust, request = SpellingTrust(), start(WORDS)
    trust.note(request, [1], [0])
    trust.judge()
    assert (trust._num_judged, len(trust._pending)) == (0, 1)
    request.status = RequestStatus.FINISHED
    trust.judge()
    assert (trust._num_judged, len(trust._pending)) == (0, 0)


def test_certain_tokens_are_drafted_whatever_the_model_does():
    drafter = DRAFTERS["hybrid"]()
    drafted(drafter, IN_TWOS, 40)
    request = start(WORDS, [TEXT], request_id=100)
    request.matcher.forced_tokens = lambda limit: (
        IN_FOURS[:limit] if not request.matcher.token_ids else []
    )
    draft = drafter.propose(batch_of(request))
    assert draft.token_ids[0][: len(IN_FOURS)] == IN_FOURS
    assert draft.num_certain == [len(IN_FOURS)]


def asked(trust, written, request_id=0):
    """Whether a tail 9 is drafted behind 1 2; then the request goes on like this."""
    request = start(WORDS, request_id=request_id)
    is_drafted = trust.allows(request, [1, 2], 9)
    request.token_ids += written
    request.status = RequestStatus.FINISHED
    trust.judge()
    return is_drafted


def test_a_tail_is_dropped_once_it_failed_twice_as_often_and_tried_again_once_it_would_stand():
    trust = TailTrust()
    answers = [asked(trust, [1, 2, 8], i) for i in range(3)]
    answers += [asked(trust, [1, 2, 9], i) for i in range(3, 6)]
    assert answers == [True, True, False, False, True, True]


def test_a_place_that_was_not_reached_says_nothing_of_its_tail():
    trust = TailTrust()
    for request_id, written in enumerate(([1, 3, 8], [1], [1, 2], []) * 3):
        assert asked(trust, written, request_id)
    assert not trust._num_ahead and not trust._pending


def test_a_tail_is_judged_once_its_place_is_written_and_places_are_told_apart():
    trust, request = TailTrust(), start(WORDS)
    trust.allows(request, [1, 2], 9)
    for token_id in (1, 2):
        request.token_ids.append(token_id)
        trust.judge()
        assert len(trust._pending) == 1
    request.token_ids.append(8)
    trust.judge()
    assert trust._num_ahead == {(1, 2, 9): -1}


def test_only_so_many_places_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "_MAX_PLACES", 3)
    trust = TailTrust()
    for place in range(10):
        request = start(WORDS, request_id=place)
        trust.allows(request, [place], 99)
        request.token_ids += [place, 99]
        trust.judge()
    assert list(trust._num_ahead) == [(place, 99) for place in (7, 8, 9)]
