"""What is told of each token: where it came from, and how likely it was with and without a mask."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch, DraftSource, SamplerOutput, ScheduledRequest, guessed
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.engine.pace import Pace
from structspec.engine.progress import tell_logprobs
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from structspec.speculative_config import SpeculativeConfig
from structspec.token_logprob import TokenLogprob
from tests.engine.coupled import FicklePace
from tests.engine.test_logprobs import DRAWS, PROMPT, TEXTS, by_hand, check, make_config
from tests.engine.toy import VOCABULARY, ToyEngine
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar, ready


def origins(request: Request) -> list[str]:
    return [one.origin for one in request.token_details]


def test_each_token_of_a_step_has_the_origin_that_a_reader_would_give_it() -> None:
    """Drafted a b by the grammar and c a by lookup; three hold, and b is drawn for the last."""
    request = Request(0, PROMPT, SamplingParams(token_details=0), max_tokens=9)
    told = [(TokenLogprob(t, -2.0), TokenLogprob(t, -1.0)) for t in (0, 1, 2, 1)]
    output = SamplerOutput([[0, 1, 2, 1]], [3], raw_and_processed={0: told})
    sources = [DraftSource("forced", 2), DraftSource("ngram", 2)]
    tell_logprobs(request, output, 0, 4, sources)
    assert [(one.token_id, one.origin, one.drafter) for one in request.token_details] == [
        (0, "forced", None),
        (1, "forced", None),
        (2, "drafted", "ngram"),
        (1, "recovered", None),
    ]
    assert {(one.logprob, one.masked_logprob) for one in request.token_details} == {(-2.0, -1.0)}


@pytest.mark.parametrize("way", ["plain", "ahead", "ahead-and-fickle"])
def test_they_are_what_the_statistics_count_however_steps_are_taken(way: str) -> None:
    for seed in range(5):
        toy = ToyEngine(
            make_config(),
            RestlessDrafter(seed),
            masker=Masker(VOCABULARY),
            runs_ahead=way != "plain",
            pace=FicklePace(0.25, seed) if way == "ahead-and-fickle" else Pace(1.0),
        )
        silent = toy.add(PROMPT, max_tokens=9, compiled=ready(ToyGrammar(TEXTS)))
        requests = [
            toy.add(
                PROMPT,
                max_tokens=9,
                compiled=ready(ToyGrammar(TEXTS)),
                token_details=2,
                **params,
            )
            for params in DRAWS.values()
        ]
        toy.run([silent, *requests])
        assert silent.token_details == []
        for request in requests:
            written, stats, counts = request.output_token_ids, request.stats, Counter()
            counts.update(origins(request))
            assert [one.token_id for one in request.token_details] == written
            assert counts["forced"] + counts["drafted"] == stats.num_accepted
            # each forward pass ends in a token of the model's own, but where its drafts end it all
            assert counts["recovered"] + counts["sampled"] in (
                stats.num_target_steps,
                stats.num_target_steps - 1,
            )
            masked = [
                TokenLogprob(one.token_id, one.masked_logprob, one.top)
                for one in request.token_details
            ]
            params = dataclasses.replace(request.params, logprobs_mode="processed")
            check(masked, by_hand(params, TEXTS, written), written, 2)
            params = dataclasses.replace(request.params, logprobs_mode="raw")
            raw = [TokenLogprob(one.token_id, one.logprob) for one in request.token_details]
            check(raw, by_hand(params, TEXTS, written), written, 0)


def test_text_of_a_grammar_is_forced_and_without_speculation_everything_is_sampled() -> None:
    for is_on, expected in ((True, ["forced"] * 3), (False, ["sampled"] * 3)):
        toy = ToyEngine(
            make_config(num_blocks=60),
            HybridDrafter(VOCABULARY, SpeculativeConfig()),
            masker=Masker(VOCABULARY),
        )
        compiled = ready(ToyGrammar(("cbc",)))
        request = toy.add(
            PROMPT, max_tokens=9, compiled=compiled, token_details=5, speculative=is_on
        )
        toy.run([request])
        assert origins(request)[:3] == expected
        assert all(one.masked_logprob == 0 > one.logprob for one in request.token_details)
        assert [one.top for one in request.token_details] == [
            ((t, 0.0),) for t in request.output_token_ids
        ]


def test_logprobs_may_be_asked_for_beside_them() -> None:
    toy = ToyEngine(make_config(), RestlessDrafter(1), masker=Masker(VOCABULARY))
    request = toy.add(
        PROMPT, max_tokens=9, compiled=ready(ToyGrammar(TEXTS)), token_details=1, logprobs=3
    )
    toy.run([request])
    written = request.output_token_ids
    check(request.logprobs, by_hand(request.params, TEXTS, written), written, 3)
    assert [one.logprob for one in request.token_details] == pytest.approx(
        [one.logprob for one in request.logprobs]
    )


def test_a_device_tells_what_the_plain_sampler_tells() -> None:
    """Of a free request and one with a grammar whose second draft is forbidden."""
    asks = [SamplingParams(token_details=3), SamplingParams(), SamplingParams(token_details=1)]
    requests = [Request(i, PROMPT, params, 9) for i, params in enumerate(asks)]
    requests[2].compiled = ready(ToyGrammar(("acb",)))
    requests[2].start_matching(requests[2].compiled.result())
    batch = Batch([ScheduledRequest(request, 1, 2, True, 1) for request in requests])
    draft = guessed([[1, 2], [], [0, 1]])
    mask = Masker(VOCABULARY).fill(batch, draft)
    logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    last = torch.zeros(8, dtype=torch.int64)
    sampler = DeviceSampler(VOCABULARY, [7], 2, last, Lanes(last.device), lambda rows: rows)
    ours = sampler(logits.clone(), batch, draft, mask).read().raw_and_processed
    plain = RejectionSampler(VOCABULARY.vocab_size, VOCABULARY.stop_token_ids)
    theirs = plain(logits.clone(), batch, draft, mask).read().raw_and_processed
    assert set(ours) == set(theirs) == {0, 2}
    for index in ours:
        for one, other in zip(ours[index], theirs[index], strict=True):
            for a, b in zip(one, other, strict=True):
                assert a.token_id == b.token_id
                assert a.logprob == pytest.approx(b.logprob, abs=1e-5)
                assert dict(a.top) == pytest.approx(dict(b.top), abs=1e-5)
    assert [one.top for _, one in ours[2]] == [((0, 0.0),), ((2, 0.0),)]
