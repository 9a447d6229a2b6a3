"""A drafter stops spelling forced text where the model spells it otherwise, and tries again."""

import pytest

from structspec import Speculation, SpeculativeConfig
from structspec.drafters import trust as module
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.trust import SpellingTrust
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
