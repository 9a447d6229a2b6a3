"""NgramGpuDrafter: what the drafter on the host drafts, from a table that is only added to."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.ngram import NgramDrafter
from structspec.drafters.ngram_gpu import NgramGpuDrafter
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.request import RequestStatus
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import batch_of, start

VOCABULARY = Vocabulary.bytes()
CONFIG = SpeculativeConfig(prompt_lookup_min=1, prompt_lookup_max=3)


@pytest.fixture
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def on_device(device):
    return NgramGpuDrafter(CONFIG, device)


# Requests by slot: what each writes in a step, whether it takes part, and whether it ends then.
STEPS = st.lists(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), max_size=5), st.booleans(), st.booleans()),
        min_size=4,
        max_size=4,
    ),
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.integers(0, 300))
def test_it_drafts_what_the_host_drafts_whoever_comes_and_goes(steps, length):
    """Rows of finished requests are others' then, and long prompts make the table grow."""
    device, host = on_device(torch.device("cpu")), NgramDrafter(CONFIG)
    requests, next_id = {}, 0
    for step in steps:
        scheduled = []
        for slot, (token_ids, takes_part, ends) in enumerate(step):
            if slot not in requests:
                requests[slot] = start(VOCABULARY, request_id=next_id, prompt="abc" * length)
                next_id += 1
            request = requests[slot]
            request.token_ids += token_ids
            if takes_part:
                scheduled.append(ScheduledRequest(request, 1, slot + 1, True))
            if ends:
                requests.pop(slot).status = RequestStatus.FINISHED
        batch = Batch([one for one in scheduled if not one.request.is_finished])
        drafted = device.propose(batch)
        assert list(map(list, drafted.token_ids)) == list(map(list, host.propose(batch).token_ids))
        for one, token_ids in zip(batch.requests, drafted.token_ids, strict=True):
            assert len(token_ids) <= one.num_draft_slots
    assert device._rows.num_used <= 4


def test_a_row_is_used_again_and_shows_nothing_of_who_had_it(device):
    drafter = on_device(device)
    first = start(VOCABULARY, prompt="hello world hel", request_id=0)
    assert bytes(drafter.propose(batch_of(first, num_draft_slots=4)).token_ids[0]) == b"lo w"
    first.status = RequestStatus.FINISHED
    second = start(VOCABULARY, prompt="hel", request_id=1)
    assert drafter.propose(batch_of(second)).token_ids == [[]]
    assert drafter._rows.num_used == 1
    second.token_ids += b"p hel"
    assert bytes(drafter.propose(batch_of(second)).token_ids[0]) == b"p hel"


def test_a_preempted_request_keeps_its_row_and_is_not_sent_again(device):
    drafter = on_device(device)
    first, second = (start(VOCABULARY, prompt="abcabc", request_id=i) for i in (0, 1))
    drafter.propose(batch_of(first, second))
    second.status = RequestStatus.WAITING
    drafter.propose(batch_of(first))
    assert drafter._rows.num_known(second) == 6
    second.token_ids += b"ab"
    assert bytes(drafter.propose(batch_of(second)).token_ids[0]) == b"cab"


def test_nothing_is_drafted_without_slots_or_with_the_last_token_on_its_way(device):
    request = start(VOCABULARY, prompt="abcabc")
    drafter = on_device(device)
    assert drafter.propose(batch_of(request, num_draft_slots=0)).token_ids == [()]
    on_its_way = Batch([ScheduledRequest(request, 1, 5, True, last_index=0)])
    assert drafter.propose(on_its_way).token_ids == [()]
    assert drafter.propose(Batch([])).token_ids == []
