"""The two mask calls of a step: whose rows are filled, what a draft's fate is, who fails alone."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from structspec.bitmask import unpack_row
from structspec.constraint import Constraint, Grammar, Regex
from structspec.engine.batch import Batch, Draft, SamplerOutput, ScheduledRequest, guessed
from structspec.errors import EngineError
from structspec.grammars.base import MatcherFailed
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import backend

VOCABULARY = Vocabulary.bytes()
STOP = 256


def make_request(constraint: Constraint | None = None, library: str = "llguidance") -> Request:
    """A request at the start of its output; None: unconstrained."""
    if constraint is None:
        return Request(0, [1], SamplingParams(), 10)
    compiled: Future = Future()
    compiled.set_result(backend("bytes", library).compile(constraint))
    request = Request(0, [1], SamplingParams(), 10, compiled)
    request.matcher = compiled.result().matcher()
    return request


def make_batch(*requests: Request, unsampled: tuple[int, ...] = ()) -> Batch:
    return Batch(
        [
            ScheduledRequest(r, 1, 8, i not in unsampled, num_divergences=r.num_divergences)
            for i, r in enumerate(requests)
        ]
    )


def make_draft(*texts: bytes) -> Draft:
    return guessed([list(text) for text in texts])


def allowed(row) -> list[int]:
    return np.flatnonzero(unpack_row(row.numpy(), 257)).tolist()


def test_only_constrained_sampled_requests_have_rows_and_each_knows_its_logits_row():
    requests = [
        make_request(),
        make_request(Regex("abc")),
        make_request(Regex("xy")),
        make_request(Regex("q")),
    ]
    batch = make_batch(*requests, unsampled=(2,))
    mask = Masker(VOCABULARY).fill(batch, make_draft(b"zz", b"ab", b"", b""))
    # logits rows: 0 1 2 free | 3 4 5 constrained | (unsampled: none) | 6 constrained
    assert mask.rows.tolist() == [3, 4, 5, 6]
    assert mask.num_valid == [2, 2, 0, 0]
    assert [allowed(row) for row in mask.bitmask] == [[97], [98], [99], [ord("q")]]


def test_num_valid_is_where_the_first_forbidden_draft_stands():
    batch = make_batch(make_request(Regex("abc")), make_request(Regex("abc")))
    mask = Masker(VOCABULARY).fill(batch, make_draft(b"axc", b"abc"))
    assert mask.num_valid == [1, 3]
    assert allowed(mask.bitmask[1]) == [98]  # what has to stand there instead
    assert allowed(mask.bitmask[7]) == [STOP]


def test_fill_changes_no_matcher_and_may_be_called_again():
    masker, batch = Masker(VOCABULARY), make_batch(make_request(Regex("abc|abd")))
    first = masker.fill(batch, make_draft(b"ab")).bitmask.clone()
    assert (masker.fill(batch, make_draft(b"ab")).bitmask == first).all()


def test_a_batch_without_constraints_gives_an_empty_mask():
    mask = Masker(VOCABULARY).fill(make_batch(make_request()), make_draft(b"ab"))
    assert mask.bitmask.shape == (0, 9)
    assert mask.rows.tolist() == []
    assert mask.num_valid == [2]


def test_requests_of_different_backends_share_one_mask():
    batch = make_batch(
        make_request(Regex("ab"), "xgrammar"),
        make_request(Regex("cd")),
        make_request(Grammar('root ::= "ef"'), "xgrammar"),
    )
    mask = Masker(VOCABULARY).fill(batch, make_draft(b"a", b"x", b""))
    assert [allowed(mask.bitmask[i]) for i in (0, 1, 2, 4)] == [[97], [98], [99], [101]]
    assert mask.rows.tolist() == [0, 1, 2, 3, 4]
    assert mask.num_valid == [1, 0, 0]


def test_the_buffer_grows_and_shrinks_with_the_batch():
    masker = Masker(VOCABULARY)
    requests = [make_request(Regex("ab")) for _ in range(5)]
    for num in (1, 5, 2):
        mask = masker.fill(make_batch(*requests[:num]), make_draft(*[b"a"] * num))
        assert [allowed(row) for row in mask.bitmask] == [[97], [98]] * num


def test_a_row_nobody_fills_allows_the_end_alone():
    masker = Masker(VOCABULARY)
    masker.fill(make_batch(make_request(Regex("abcd"))), make_draft(b"abcd"))
    mask = masker.fill(make_batch(make_request(Regex("abcd"))), make_draft(b"xbcd"))
    assert [allowed(row) for row in mask.bitmask] == [[97]] + [[STOP]] * 4


def test_time_spent_on_rows_is_charged_to_constrained_requests():
    free, one, two = make_request(), make_request(Regex("abc")), make_request(Regex("abc"))
    Masker(VOCABULARY).fill(make_batch(free, one, two), make_draft(b"ab", b"ab", b""))
    assert free.stats.mask_ms == 0
    assert one.stats.mask_ms == pytest.approx(3 * two.stats.mask_ms)
    assert two.stats.mask_ms > 0


@pytest.mark.parametrize("is_masked", [True, False])
def test_advance_moves_each_matcher_over_its_new_tokens(is_masked):
    one, other, free = make_request(Regex("abcd")), make_request(Regex("xy")), make_request()
    masker, batch = Masker(VOCABULARY), make_batch(one, other, free)
    draft, chosen = make_draft(b"ab", b"", b""), [is_masked, is_masked, False]
    mask = masker.fill(batch, draft, chosen)
    output = SamplerOutput([list(b"abc"), list(b"x"), [5]], [2, 0, 0])
    assert masker.advance(batch, draft, mask, output) is output
    draft = make_draft(b"d", b"", b"")
    mask = masker.fill(batch, draft)
    assert [allowed(row) for row in mask.bitmask] == [[ord("d")], [STOP], [ord("y")]]
    if not is_masked:
        mask = masker.fill(batch, draft, chosen)
    masker.advance(batch, draft, mask, SamplerOutput([[*b"d", STOP], list(b"y"), [5]], [1, 0, 0]))
    assert allowed(masker.fill(batch, make_draft(b"", b"", b"")).bitmask[0]) == [STOP]
    assert one.error is None and other.error is None


def test_a_forbidden_token_of_a_masked_row_fails_its_own_request_only():
    wrong, right = make_request(Regex("abcd")), make_request(Regex("xy"))
    masker, batch, draft = Masker(VOCABULARY), make_batch(wrong, right), make_draft(b"b", b"")
    mask = masker.fill(batch, draft)
    output = SamplerOutput([list(b"ac"), list(b"x")], [1, 0])
    assert masker.advance(batch, draft, mask, output) is output
    assert isinstance(wrong.error, EngineError)
    assert "99" in str(wrong.error)
    assert right.error is None
    assert right.matcher is not None and right.matcher.forced(9) == b"y"


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
def test_of_tokens_drawn_without_a_mask_stands_what_the_grammar_takes(library):
    """tokens, guesses accepted, runners-up -> what stands, of it guesses, diverged, needs a mask"""
    cases = {
        "abc": ("abcd", 3, "xy", "abcd", 3, False, False),
        "a bonus, the second runner-up": ("abx", 2, "zcd", "abc", 2, True, False),
        "no runner-up is allowed": ("abx", 2, "zyx", "ab", 2, True, True),
        "no runners-up at all": ("x", 0, "", "", 0, True, True),
        "a guess: runners-up are not its own": ("axcd", 3, "b", "a", 1, True, True),
    }
    requests = [make_request(Regex("abcde"), library) for _ in cases]
    masker, batch = Masker(VOCABULARY), make_batch(*requests)
    draft = make_draft(*[b"bcd"] * len(cases))
    mask = masker.fill(batch, draft, [False] * len(cases))
    assert mask.rows.tolist() == [] and mask.num_valid == [3] * len(cases)
    values = list(cases.values())
    output = SamplerOutput(
        [list(v[0].encode()) for v in values],
        [v[1] for v in values],
        [list(v[2].encode()) for v in values],
    )
    standing = masker.advance(batch, draft, mask, output)
    for index, (*_, text, num_accepted, has_diverged, needs_mask) in enumerate(values):
        assert bytes(standing.token_ids[index]).decode() == text
        assert standing.num_accepted[index] == num_accepted
        assert (index in standing.diverged) == has_diverged
        assert requests[index].needs_mask == needs_mask
        assert requests[index].stats.num_refused == has_diverged
        assert requests[index].error is None
        assert requests[index].matcher.forced(9) == b"abcde"[len(text) :]
    masker.fill(make_batch(*requests), make_draft(*[b""] * len(cases)))
    assert not any(request.needs_mask for request in requests)


def test_certain_tokens_of_a_request_without_a_mask_are_taken_with_what_is_drawn_behind_them():
    request = make_request(Regex("ab[cd]"))
    masker, batch = Masker(VOCABULARY), make_batch(request)
    draft = Draft([list(b"ab")], [None], [[True, True]], [2])
    mask = masker.fill(batch, draft, [False])
    masker.take_back(batch, draft, [False])  # nothing was moved
    output = masker.advance(batch, draft, mask, SamplerOutput([list(b"x")], [0], [list(b"d")]))
    assert output.token_ids == [list(b"d")] and output.diverged == {0}
    assert request.matcher is not None and request.matcher.accept(STOP)


@pytest.mark.parametrize(("text", "expected"), [(b"d", [b"d"]), (b"x", [])])
def test_a_certain_token_that_a_look_refuses_is_left_to_the_matcher_that_named_it(
    text, expected, monkeypatch
):
    request = make_request(Regex("ab[cd]"))
    made_by = type(request.compiled.result().backend)
    monkeypatch.setattr(made_by, "take_unseen", lambda self, moves: [0 for _ in moves])
    masker, batch = Masker(VOCABULARY), make_batch(request)
    draft = Draft([list(b"ab")], [None], [[True, True]], [2])
    mask = masker.fill(batch, draft, [False])
    output = masker.advance(batch, draft, mask, SamplerOutput([list(text)], [0]))
    assert request.error is None
    assert output.token_ids == [list(b"".join(expected))]
    assert request.needs_mask == (not expected)


def test_what_a_stale_share_of_a_step_brought_moves_nothing():
    request = make_request(Regex("abc"))
    masker, batch, draft = Masker(VOCABULARY), make_batch(request), make_draft(b"")
    request.num_divergences += 1
    mask = masker.fill(batch, draft)
    assert mask.rows.tolist() == []
    output = SamplerOutput([list(b"x")], [0])
    assert masker.advance(batch, draft, mask, output) is output
    assert request.error is None and request.matcher.forced(9) == b"abc"


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
def test_tokens_of_filled_rows_move_matchers_and_others_fail_their_own_request(library):
    requests = [make_request(Regex(text), library) for text in ("ab", "cd", "ef")] + [
        make_request()
    ]
    masker, batch = Masker(VOCABULARY), make_batch(*requests)
    draft = make_draft(b"", b"", b"f", b"")
    mask = masker.fill(batch, draft)
    output = SamplerOutput([list(b"a"), list(b"x"), list(b"ef"), [5]], [0, 0, 1, 0])
    masker.advance(batch, draft, mask, output)
    assert [request.error is None for request in requests] == [True, False, True, True]
    draft = make_draft(b"", b"", b"", b"")
    mask = masker.fill(batch, draft)
    assert [allowed(row) for row in mask.bitmask] == [[ord("b")], [STOP]]
    masker.advance(batch, draft, mask, SamplerOutput([list(b"b"), [], [STOP], [5]], [0, 0, 0, 0]))
    mask = masker.fill(batch, make_draft(b"", b"", b"", b""))
    assert [allowed(row) for row in mask.bitmask] == [[STOP], [STOP]]
    assert mask.rows.tolist() == [0, 2]


class Broken:
    """A matcher whose library has given up."""

    def __getattr__(self, name):
        raise MatcherFailed("too many items")


@pytest.mark.parametrize(
    ("library", "place"), [("llguidance", "_library"), ("xgrammar", "library")]
)
def test_a_matcher_that_fails_takes_no_other_request_with_it(library, place):
    broken, fine = make_request(Regex("ab"), library), make_request(Regex("cd"), library)
    assert broken.matcher is not None
    setattr(broken.matcher, place, Broken())
    masker, batch = Masker(VOCABULARY), make_batch(broken, fine)
    draft = make_draft(b"a", b"c")
    mask = masker.fill(batch, draft)
    assert isinstance(broken.error, EngineError)
    assert fine.error is None
    assert mask.num_valid == [0, 1]
    # never everything: the row can be sampled from, and the request is dropped
    assert [allowed(row) for row in mask.bitmask] == [[STOP], [STOP], [ord("c")], [ord("d")]]
    masker.advance(batch, draft, mask, SamplerOutput([[STOP], list(b"cd")], [0, 1]))
    assert fine.error is None
