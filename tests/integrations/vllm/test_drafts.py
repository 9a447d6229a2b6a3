"""The scheduler's drafts and the proposer's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch, Draft
from structspec.integrations.vllm import Proposer
from tests.integrations.vllm.engine import PERSON, STOP, TOKENIZER, Core, config, encode


def text_of(token_ids: list[int]) -> str:
    return TOKENIZER.decode(token_ids)


def test_forced_text_is_drafted_where_the_worker_proposed_nothing():
    core = Core(num_drafts=12)
    request = core.add({"json": PERSON})
    core.write(request, encode("{"))
    assert text_of(core.draft(request)) == '"name": "A'


def test_what_the_worker_proposed_against_the_grammar_is_replaced():
    core = Core(num_drafts=4)
    request = core.add({"json": PERSON})
    core.write(request, encode("{"))
    assert text_of(core.draft(request, encode("xyz"))) == '"nam'


def test_the_worker_s_drafts_stay_where_no_grammar_says_otherwise():
    core = Core(num_drafts=4)
    request = core.add(None)
    core.write(request, encode("x"))
    assert core.draft(request, encode("yz")) == encode("yz")


def test_every_drafted_token_is_allowed_by_the_row_before_it():
    core = Core(num_drafts=8)
    request = core.add({"json": PERSON})
    token_ids = encode('{"name": "Ada", "born": 1815}')
    for token_id in token_ids:
        core.write(request, [token_id])
        draft = core.draft(request)
        rows = core.allowed(request, draft)
        assert all(token in row for token, row in zip(draft, rows, strict=False))
        assert len(rows) == len(draft) + 1


def test_the_end_is_drafted_where_nothing_else_is_left():
    core = Core(num_drafts=8)
    request = core.add({"choice": ["yes", "yeah"]})
    core.write(request, encode("yea"))
    draft = core.draft(request)
    assert text_of(draft[:1]) == "h" and draft[1:] in ([], [STOP])


def test_a_drafter_that_fails_drafts_nothing_and_ends_nothing(monkeypatch):
    def fail(drafter: HybridDrafter, batch: Batch) -> Draft:
        raise IndexError("no such row")

    core = Core(num_drafts=12)
    request = core.add({"json": PERSON})
    core.write(request, encode("{"))
    with monkeypatch.context() as patch:
        patch.setattr(HybridDrafter, "propose", fail)
        assert core.draft(request) == []
    assert text_of(core.draft(request)) == '"name": "A'


def test_drafts_leave_room_for_the_token_behind_them():
    core = Core(num_drafts=12)
    request = core.add({"json": PERSON}, max_tokens=40)
    core.write(request, encode("{"))
    request.max_tokens = 4  # one is written: three are left, and one is the model's own
    assert len(core.draft(request)) == 2


def test_what_a_finished_request_wrote_is_drafted_for_the_next():
    core = Core(num_drafts=12)
    schema = {"regex": "[a-z ]*"}
    text = "colourless green ideas sleep furiously"
    first = core.add(schema)
    core.write(first, encode(text[:20]))
    core.draft(first)
    core.write(first, encode(text[20:]))
    core.draft(first)
    first.has_ended = True
    second = core.add(schema)
    core.write(second, encode(text[:20]))
    core.draft(second)
    assert text_of(core.draft(second)) == text[20:32]


def test_a_request_that_still_reasons_is_not_drafted_for():
    core = Core(num_drafts=8)
    core.manager.reasoner_cls = object
    request = core.add({"json": PERSON})
    core.write(request, encode("{"))
    assert core.draft(request) == []
    request.structured_output_request.reasoning_ended = True
    assert core.draft(request) != []


def test_asynchronous_steps_keep_the_worker_s_drafts():
    core = Core(num_drafts=8, is_async=True)
    request = core.add({"json": PERSON})
    core.write(request, encode("{"))
    assert core.draft(request) == []
    assert core.draft(request, encode('"n')) == encode('"n')


class Rows:
    """The worker's table of tokens, and a proposer that reads it."""

    def __init__(self, *prompts: str, num_drafts: int = 8) -> None:
        self.proposer = Proposer(config(num_drafts))
        self.token_ids = np.zeros((8, 256), np.int32)
        self.num_tokens = np.zeros(8, np.int32)
        for row, prompt in enumerate(prompts):
            self.put(row, encode(prompt))
        self.num_rows = len(prompts)

    def put(self, row: int, token_ids: list[int]) -> None:
        start = self.num_tokens[row]
        self.token_ids[row, start : start + len(token_ids)] = token_ids
        self.num_tokens[row] += len(token_ids)

    def step(self, *sampled: str) -> list[str]:
        """Write to each row; what is drafted behind."""
        drawn = [encode(text) for text in sampled]
        for row, token_ids in enumerate(drawn):
            self.put(row, token_ids)
        drafts = self.proposer.propose(
            drawn, self.num_tokens, self.token_ids, slot_mappings=SimpleNamespace()
        )
        return [text_of(draft) for draft in drafts]


def test_a_row_s_own_text_is_drafted_again_where_it_begins_again():
    rows = Rows("the larch and the alder, the lar", "nothing")
    found = rows.step("ch", "!")
    assert found[0].startswith(" and the")
    assert found[1] == ""


def test_rows_without_new_tokens_are_not_drafted_for():
    rows = Rows("the larch and the alder, the lar")
    assert rows.step("") == [""]


def test_rows_may_change_places_between_steps():
    rows = Rows("abcdefgh abcd", "tuvwxyz 123 tuvw")
    rows.step("e", "x")
    rows.token_ids[[0, 1]] = rows.token_ids[[1, 0]]
    rows.num_tokens[[0, 1]] = rows.num_tokens[[1, 0]]
    found = rows.step("y", "f")
    assert found[0].startswith("z 123") and found[1].startswith("gh abc")


def test_what_one_row_wrote_is_drafted_for_a_later_one():
    text = "colourless green ideas sleep furiously "
    rows = Rows("?")
    for start in range(0, len(text), 5):
        rows.step(text[start : start + 5])
    rows.num_tokens[0] = 0  # another request takes the row
    rows.put(0, encode("!"))
    rows.step(text[:15])
    assert rows.step(text[15:20])[0].startswith("as sleep")


def test_nothing_is_drafted_past_the_end_of_the_context():
    rows = Rows("ab" * 126)  # 252 of 256
    assert len(rows.step("ab")[0]) <= 1
    assert rows.step("ab") == [""]
