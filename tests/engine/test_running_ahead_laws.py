"""Whatever happens while steps run ahead, every request writes what the model alone would write."""

from __future__ import annotations

from concurrent.futures import Future

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.pace import Pace
from structspec.errors import Cancelled, GrammarError
from structspec.request import RequestStatus
from tests.engine.coupled import CoupledSampler, FickleOutlook, FicklePace, HopefulPace
from tests.engine.toy import VOCABULARY, RandomDrafter
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar
from tests.engine.watched import Ask, Watched, make_config

WORDS = st.text("abc", min_size=1, max_size=4)
TEXTS = st.builds(
    lambda head, middles, tail: tuple(head + middle + tail for middle in middles),
    st.text("bc", max_size=6),
    st.lists(WORDS, min_size=1, max_size=3),
    st.text("bc", max_size=6),
)
ASKS = st.builds(
    Ask,
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    texts=st.none() | TEXTS,
    max_tokens=st.integers(1, 12),
    stop=st.lists(WORDS, max_size=2).map(tuple),
    ignore_eos=st.booleans(),
    speculative=st.sampled_from([True, True, True, False]),
    temperature=st.sampled_from([0.0, 0.0, 1.0]),
    seed=st.integers(0, 9),
)
DRAFTERS = {
    "restless": RestlessDrafter,
    "random": RandomDrafter,
    "forced": lambda seed: ForcedDrafter(VOCABULARY),
    "hybrid": lambda seed: HybridDrafter(VOCABULARY, SpeculativeConfig()),
}
MOMENTS = st.lists(st.integers(0, 12), min_size=1, max_size=6)
EVENTS = st.lists(
    st.tuples(st.integers(1, 25), st.sampled_from(["preempt", "cancel"]), st.integers(0, 5)),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=6),
    arrivals=MOMENTS,
    compiled_at=MOMENTS,
    events=EVENTS,
    block_size=st.integers(1, 4),
    num_tokens=st.integers(26, 60),
    budget=st.integers(1, 24),
    max_num_requests=st.integers(1, 6),
    keeps_prefixes=st.booleans(),
    max_share_aside=st.sampled_from([0.0, 0.25, 1.0]),
    kind=st.sampled_from(sorted(DRAFTERS)),
    num_runners_up=st.none() | st.integers(0, 3),
    has_outlook=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_request_writes_what_it_would_write_alone(
    asks,
    arrivals,
    compiled_at,
    events,
    block_size,
    num_tokens,
    budget,
    max_num_requests,
    keeps_prefixes,
    max_share_aside,
    kind,
    num_runners_up,
    has_outlook,
    seed,
):
    """With `num_runners_up` masks come before or after, as it happens."""
    is_coupled = num_runners_up is not None
    config = make_config(
        enable_prefix_caching=keeps_prefixes,
        block_size=block_size,
        num_blocks=-(-num_tokens // block_size),
        max_num_batched_tokens=budget,
        max_num_requests=max_num_requests,
    )
    pace = FicklePace(max_share_aside, seed) if is_coupled else Pace(max_share_aside)
    sampler = CoupledSampler(num_runners_up) if is_coupled else None
    watched = Watched(
        config,
        DRAFTERS[kind](seed),
        pace=pace,
        outlook=FickleOutlook(seed) if has_outlook else None,
        sampler=sampler,
        draws_early=is_coupled,
    )
    started, cancelled = {}, set()
    for moment in range(40):
        for index, ask in enumerate(asks):
            arrives = arrivals[index % len(arrivals)]
            if moment == arrives:
                started[index] = watched.start(ask, Future() if ask.texts is not None else None)
            if moment == arrives + compiled_at[index % len(compiled_at)] and ask.texts is not None:
                started[index].compiled.set_result(ToyGrammar(ask.texts))
        for when, what, index in events:
            request = started.get(index)
            if when != moment or request is None:
                continue
            if what == "cancel":
                watched.toy.scheduler.fail(request, Cancelled("enough"))
                cancelled.add(request)
            elif request.status is RequestStatus.RUNNING:
                watched.toy.scheduler.preempt(request)
        watched.step()
    watched.run()
    again = [Ask((*request.token_ids, 0), max_tokens=3) for request in watched.requests]
    longer = [watched.start(ask) for ask in again]  # what the cache has of them must be true
    watched.run()
    assert watched.toy.block_manager.num_free_blocks == config.num_blocks
    for ask, request in zip(again, longer, strict=True):
        ask.check(request)
    for index, request in started.items():
        if request in cancelled and request.finish_reason == "cancelled":
            alone = asks[index].written_alone(is_coupled=is_coupled)
            assert request.output_token_ids == alone[: request.num_output_tokens]
        else:
            asks[index].check(request, is_coupled=is_coupled)


@settings(max_examples=60, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=6),
    share=st.sampled_from([0.0, 0.25, 1.0]),
    num_runners_up=st.integers(0, 3),
)
def test_drawing_without_masks_changes_no_token(asks, share, num_runners_up):
    for parts in ({"runs_ahead": False}, {"runs_ahead": True}):
        sampler = CoupledSampler(num_runners_up)
        watched = Watched(
            drafter=RestlessDrafter(len(asks)), pace=HopefulPace(share), sampler=sampler, **parts
        )
        requests = [watched.start(ask) for ask in asks]
        watched.run()
        for ask, request in zip(asks, requests, strict=True):
            ask.check(request, is_coupled=True)


@settings(max_examples=60, deadline=None)
@given(asks=st.lists(ASKS, min_size=1, max_size=6), share=st.sampled_from([0.0, 0.25, 1.0]))
def test_running_ahead_changes_no_token(asks, share):
    written = []
    for parts in ({"runs_ahead": False}, {"pace": Pace(share)}):
        watched = Watched(drafter=RestlessDrafter(len(asks)), **parts)
        requests = [watched.start(ask) for ask in asks]
        watched.run()
        written.append([request.token_ids for request in requests])
    assert written[0] == written[1]


def test_a_grammar_that_fails_while_its_prompt_is_computed_fails_that_request_alone():
    for moment in range(1, 6):
        watched = Watched(make_config(max_num_batched_tokens=4))
        bad = watched.start(Ask([0] * 9, ("c",)), Future())
        good = watched.start(Ask([1] * 9, ("cb",)))
        for _ in range(moment):
            watched.step()
        bad.compiled.set_exception(GrammarError("no"))
        watched.run()
        assert isinstance(bad.error, GrammarError)
        assert bad.num_output_tokens == 0
        Ask([1] * 9, ("cb",)).check(good)
