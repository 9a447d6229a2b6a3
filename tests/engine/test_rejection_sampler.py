"""RejectionSampler: batches of requests with parameters, masks and drafts of their own."""

import os

import pytest
import torch

from structspec.engine import verifiers
from structspec.engine.batch import Batch, Mask, ScheduledRequest, guessed
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.request import Request, SamplingParams

VOCAB_SIZE = 5
STOP = 4


def make_request(is_constrained=False, **params):
    request = Request(0, [0], SamplingParams(**params), 16)
    if is_constrained:
        request.compiled = object()
    return request


def one_hot_logits(*token_ids):
    """Rows that want these tokens, the next higher token being the second choice."""
    rows = torch.zeros(len(token_ids), VOCAB_SIZE)
    for row, token_id in zip(rows, token_ids, strict=True):
        row[token_id] = 9
        row[(token_id + 1) % VOCAB_SIZE] = 5
    return rows


def make_mask(allowed, num_valid):
    """`allowed`: logits row to allowed tokens."""
    words = [[sum(1 << t for t in tokens)] for tokens in allowed.values()]
    return Mask(
        torch.tensor(words, dtype=torch.int32).view(-1, 1),
        torch.tensor(list(allowed), dtype=torch.int64),
        torch.arange(len(allowed)),
        num_valid,
    )


def run(logits, requests, drafts, *, allowed=None, num_valid=None, probs=None, sampled=None):
    sampled = sampled or [True] * len(requests)
    batch = Batch(
        [
            ScheduledRequest(r, 1, len(d), s, r.num_known_tokens - 1)
            for r, d, s in zip(requests, drafts, sampled, strict=True)
        ]
    )
    draft = guessed(drafts, probs)
    mask = make_mask(allowed or {}, num_valid or [len(d) for d in drafts])
    return RejectionSampler(VOCAB_SIZE, (STOP,))(logits, batch, draft, mask).read()


def test_greedy_takes_drafts_while_they_are_the_best_token():
    output = run(one_hot_logits(1, 2, 3), [make_request()], [[1, 2]])
    assert (output.token_ids, output.num_accepted) == ([[1, 2, 3]], [2])
    output = run(one_hot_logits(1, 2, 3), [make_request()], [[1, 3]])
    assert (output.token_ids, output.num_accepted) == ([[1, 2]], [1])


def test_greedy_respects_the_bitmask_and_the_forbidden_draft():
    output = run(
        one_hot_logits(1, 2, 3),
        [make_request(is_constrained=True)],
        [[1, 2]],
        allowed={0: [1], 1: [3, 4], 2: []},
        num_valid=[1],
    )
    assert (output.token_ids, output.num_accepted) == ([[1, 3]], [1])


def test_greedy_makes_no_probabilities(monkeypatch):
    monkeypatch.delattr(verifiers, "compute_target_probs")
    output = run(one_hot_logits(1, 2), [make_request(), make_request()], [[], []])
    assert output.token_ids == [[1], [2]]


def test_requests_that_are_not_sampled_have_no_rows_and_get_nothing():
    requests = [make_request(), make_request(), make_request()]
    output = run(one_hot_logits(1, 2, 3), requests, [[1], [], []], sampled=[True, False, True])
    assert output.token_ids == [[1, 2], (), [3]]
    assert output.num_accepted == [1, 0, 0]


def test_a_step_without_any_sampled_request_is_fine():
    output = run(torch.zeros(0, VOCAB_SIZE), [make_request()], [[]], sampled=[False])
    assert output.token_ids == [()]


def test_greedy_and_sampled_requests_share_a_batch():
    sure = {"temperature": 1.0, "top_k": 1}
    requests = [make_request(**sure), make_request(), make_request(**sure), make_request()]
    output = run(one_hot_logits(0, 1, 2, 3, 0, 1, 2), requests, [[0], [2], [0], []])
    assert output.token_ids == [[0, 1], [2, 3], [0, 1], [2]]
    assert output.num_accepted == [1, 1, 1, 0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ignore_eos_forbids_stop_tokens_unless_a_constraint_decides(temperature):
    params = {"temperature": temperature, "top_k": 1}
    requests = [
        make_request(ignore_eos=True, **params),
        make_request(**params),
        make_request(ignore_eos=True, is_constrained=True, **params),
    ]
    # Every row wants the stop token; token 0 is the second choice.
    output = run(one_hot_logits(*[STOP] * 4), requests, [[STOP], [], []], allowed={3: [STOP]})
    assert output.token_ids == [[0], [STOP], [STOP]]


def test_a_seed_gives_the_same_tokens_whatever_is_drafted_and_whoever_is_beside():
    generator = torch.Generator().manual_seed(7)
    rows = torch.randn(40, VOCAB_SIZE, generator=generator)  # a row per position, not per prefix

    def write(drafter, num_neighbours):
        request = make_request(temperature=1.0, seed=11)
        tokens = []
        while len(tokens) < 30:
            draft = drafter(tokens)
            logits = [rows[len(tokens) : len(tokens) + len(draft) + 1].clone()]
            others = [make_request(temperature=1.0) for _ in range(num_neighbours)]
            logits += [torch.randn(1, VOCAB_SIZE) for _ in others]
            output = run(torch.cat(logits), [request, *others], [draft, *([] for _ in others)])
            tokens += output.token_ids[0]
            request.token_ids += output.token_ids[0]
        return tokens[:30]

    alone = write(lambda tokens: [], 0)
    assert len(set(alone)) > 1
    assert write(lambda tokens: [3, 1, 2], 2) == alone
    assert write(lambda tokens: alone[len(tokens) : len(tokens) + 4], 1) == alone


def test_requests_with_different_seeds_differ():
    flat = torch.zeros(1, VOCAB_SIZE)

    def write(seed):
        request = make_request(temperature=1.0, seed=seed)
        for _ in range(30):
            request.token_ids += run(flat.clone(), [request], [[]]).token_ids[0]
        return request.output_token_ids

    assert write(1) == write(1)
    assert write(1) != write(2)
    assert write(None) != write(None)  # equal once in 5 ** 30 runs


def test_one_hot_and_probabilistic_drafts_in_one_batch_both_follow_the_masked_target():
    # Unmasked .4 .2 .1 .3 (as logits), the grammar forbids token 3, and q likes it.
    p, q = torch.tensor([0.4, 0.2, 0.1, 0.3, 0.0]), torch.tensor([0.1, 0.3, 0.1, 0.5, 0.0])
    expected = torch.tensor([4 / 7, 2 / 7, 1 / 7, 0, 0], dtype=torch.float64)
    num_pairs = 4000
    drawn = torch.multinomial(
        q, num_pairs, replacement=True, generator=torch.Generator().manual_seed(3)
    )
    requests, drafts, probs, num_valid = [], [], [], []
    for seed, token_id in enumerate(drawn.tolist()):
        for draft, draft_probs in (([1], None), ([token_id], q[None])):
            requests.append(make_request(is_constrained=True, temperature=1.0, seed=seed))
            drafts.append(draft)
            probs.append(draft_probs)
            num_valid.append(0 if draft == [3] else 1)
    rows = range(2 * len(requests))
    output = run(
        p.log().repeat(len(rows), 1),
        requests,
        drafts,
        allowed={row: [0, 1, 2] for row in rows},
        num_valid=num_valid,
        probs=probs,
    )
    for kind in (0, 1):
        firsts = torch.tensor([token_ids[0] for token_ids in output.token_ids[kind::2]])
        frequency = firsts.bincount(minlength=VOCAB_SIZE) / num_pairs
        # Five standard deviations of a binomial frequency: missed once in a million seeds.
        bound = 5 * (expected * (1 - expected) / num_pairs).sqrt()
        assert bool(((frequency - expected).abs() <= bound).all())


def test_requests_without_a_seed_get_others_in_a_forked_child():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(make_request().seed).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader, 100)) != make_request().seed
    os.close(reader)
    os.close(writer)
