"""The GPU's runner and sampler, on whatever device there is, against those of the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.constraint import Regex
from structspec.engine.batch import Batch, Draft, ScheduledRequest, guessed
from structspec.engine.block_tables import MAX_UPDATES, BlockTables
from structspec.engine.device_runner import DeviceRunner
from structspec.engine.device_sampler import DeviceSampled, DeviceSampler
from structspec.engine.lanes import Lanes
from structspec.engine.memory import max_num_logits_rows
from structspec.engine.model_runner import ModelRunner
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.engine.sampling_probs import compute_target_probs
from structspec.engine.staging import Field, Staging, make_layout
from structspec.masking import Masker
from structspec.models import LoadedModel, load_model
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary
from tests.engine.feeding import make_request, run_step
from tests.models.reference import TINY_VOCAB_SIZE, save_tiny_model
from tests.test_masking import make_request as constrained_request

IDS = torch.randint(TINY_VOCAB_SIZE, (200,), generator=torch.Generator().manual_seed(1)).tolist()
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama")
    return load_model(folder)


def config(**changes: int) -> EngineConfig:
    sizes = {"num_blocks": 60, "block_size": 8, "max_num_requests": 5, **changes}
    return EngineConfig(**sizes).resolved("cpu")


def device_runner(loaded: LoadedModel, **changes: int) -> DeviceRunner:
    engine = config(**changes)
    last = torch.zeros(max_num_logits_rows(engine), dtype=torch.int64)
    return DeviceRunner(loaded.network, engine, last)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.allclose(ours, theirs, atol=1e-4)


def test_any_mix_of_chunks_decodes_and_drafts_gives_the_logits_of_the_plain_runner(
    loaded: LoadedModel,
) -> None:
    ours, theirs = device_runner(loaded), ModelRunner(loaded, config())
    tables = (range(0, 16), range(25, 40), range(40, 52))
    requests = [make_request(IDS[i : i + 110], t) for i, t in enumerate(tables)]
    for index, request in enumerate(requests):
        request.request_id = index
    steps = [
        ((0, 90, 0),),
        ((0, 1, 4), (1, 40, 0)),
        ((2, 3, 2), (0, 1, 0), (1, 1, 7)),  # rows change places: tables are sent anew
        ((1, 1, 0),),
        ((0, 1, 0), (1, 1, 0), (2, 1, 0)),
    ]
    for step in steps:
        before = [request.num_computed_tokens for request in requests]
        expected = run_step(theirs, *((requests[i], n, k) for i, n, k in step))
        for request, num_computed in zip(requests, before, strict=True):
            request.num_computed_tokens = num_computed
        got = run_padded(ours, *((requests[i], n, k) for i, n, k in step))
        assert all(close(a, b) for a, b in zip(got, expected, strict=True))


def run_padded(runner: DeviceRunner, *shares: tuple[Request, int, int]) -> list[torch.Tensor]:
    class Cut:
        """Without the rows that pad a step to its size."""

        def forward(self, batch: Batch, draft: Draft) -> torch.Tensor:
            num_rows = sum(1 + len(ids) for ids in draft.token_ids)
            hidden = runner.forward(batch, draft)
            assert len(hidden) == runner.fit_logits(num_rows)
            return runner.head(hidden)[:num_rows]

    return run_step(Cut(), *shares)  # type: ignore[arg-type]


def test_a_step_that_computes_what_stands_from_the_last_one_launches_nothing(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, num_runs = device_runner(loaded), []
    body = type(loaded.network).body
    monkeypatch.setattr(
        type(loaded.network), "body", lambda *args: num_runs.append(1) or body(*args)
    )
    first, second = make_request(IDS[:21], range(6)), make_request(IDS[50:60], range(6, 12))
    second.request_id = 1
    one, two = run_padded(runner, (first, 21, 0), (second, 10, 0))

    def again(*requests: Request, num_runs_more: int) -> None:
        before = len(num_runs)
        for request in requests:
            request.num_computed_tokens = len(request.token_ids) - 1
        got = run_padded(runner, *((request, 1, 0) for request in requests))
        expected = [one if request is first else two for request in requests]
        assert all(close(a, b) for a, b in zip(got, expected, strict=True))
        assert len(num_runs) - before == num_runs_more

    again(second, first, num_runs_more=0)
    again(first, num_runs_more=0)
    again(second, num_runs_more=1)  # its row was the first's place
    again(second, num_runs_more=0)
    again(second, first, num_runs_more=1)  # more than stands
    second.num_computed_tokens = 4
    run_padded(runner, (second, 3, 0))
    again(second, num_runs_more=1)  # another position's
    second.stats.num_preemptions += 1  # its keys and values are gone
    again(second, num_runs_more=1)


def test_a_token_that_the_host_does_not_know_is_read_where_the_sampler_wrote_it(
    loaded: LoadedModel,
) -> None:
    theirs = ModelRunner(loaded, config())
    engine = config()
    last = torch.zeros(max_num_logits_rows(engine), dtype=torch.int64)
    ours = DeviceRunner(loaded.network, engine, last)
    request, other = make_request(IDS[:21], range(6)), make_request(IDS[50:60], range(6, 12))
    other.request_id = 1
    for runner in (theirs, ours):
        request.num_computed_tokens = other.num_computed_tokens = 0
        run = run_step if runner is theirs else run_padded
        run(runner, (request, 20, 0), (other, 5, 0))  # type: ignore[operator]
    request.num_computed_tokens, other.num_computed_tokens = 20, 5
    (expected,) = run_step(theirs, (request, 1, 0))
    certain = IDS[100:103]
    request.num_computed_tokens = 20
    last[1] = request.token_ids.pop()  # known to the device alone
    scheduled = ScheduledRequest(request, 1, 3, True, 20, last_index=1)
    logits = ours.head(ours.forward(Batch([scheduled]), guessed([[]]), last))
    assert close(logits[:1], expected)
    # certain drafts behind it are computed in the same step, and only the last row is sampled
    request.token_ids += [int(last[1]), *certain]
    request.num_computed_tokens = 20
    (expected,) = run_step(theirs, (request, 4, 0))
    del request.token_ids[20:]
    draft = Draft([certain], [None], [[True] * 3], [3])
    assert close(ours.head(ours.forward(Batch([scheduled]), draft, last))[:1], expected)


def test_tables_reach_the_device_however_much_changes_at_once() -> None:
    tables = BlockTables(3, 200, CPU)
    layout = make_layout(
        (Field("places", "int64", MAX_UPDATES), Field("values", "int64", MAX_UPDATES))
    )
    staging = Staging(layout.num_bytes, CPU)
    first, second = (
        Request(i, [0], SamplingParams(), 1, block_table=list(range(1000 * i, 1000 * i + n)))
        for i, n in enumerate((150, 3))
    )

    def send(*requests: Request) -> None:
        host = staging.host(layout)
        tables.update(requests, host["places"], host["values"])  # type: ignore[arg-type]
        staging.send(layout)
        arrays = staging.on_device(layout)
        tables.apply(arrays["places"], arrays["values"])
        for row, request in enumerate(requests):
            expected = torch.tensor(request.block_table)
            assert torch.equal(tables.on_device[row, : len(expected)], expected)

    send(first, second)
    second.block_table += [7, 8]
    send(first, second)
    send(second)  # the first is gone for a step, and the other moves to its row
    send(first, second)
    second.block_table[3:] = [70, 80]  # trimmed, then given other blocks
    second.num_sent_blocks = 3
    send(first, second)


def requests_of_all_kinds(vocabulary: Vocabulary) -> list[Request]:
    params = [
        SamplingParams(),
        SamplingParams(ignore_eos=True),
        SamplingParams(temperature=0.8, seed=5),
        SamplingParams(temperature=1.3, seed=2**70, ignore_eos=True),
    ]
    free = [Request(i, [1, 2], p, 10) for i, p in enumerate(params)]
    return [*free, constrained_request(Regex("[a-f]+x"))]


@pytest.mark.parametrize("num_drafts", [0, 3])
def test_greedy_tokens_are_those_of_the_plain_sampler_and_drawn_ones_hang_on_seed_and_place(
    num_drafts: int,
) -> None:
    vocabulary = Vocabulary.bytes()
    generator = torch.Generator().manual_seed(num_drafts)

    def run(order: list[int]) -> dict[int, list[int]]:
        requests = requests_of_all_kinds(vocabulary)
        chosen = [requests[i] for i in order]
        batch = Batch([ScheduledRequest(r, 1, num_drafts, True, 1) for r in chosen])
        drafts = [drafts_of[i] for i in order]
        draft = guessed(drafts)
        rows = torch.cat([logits_of[i] for i in order])
        mask = Masker(vocabulary).fill(batch, draft)
        padded = torch.cat([rows, torch.full((3, vocabulary.vocab_size), float("nan"))])
        last = torch.zeros(64, dtype=torch.int64)
        sampler = DeviceSampler(vocabulary, [64], 5, last, Lanes(CPU), lambda rows: rows)
        sampled = sampler(padded, batch, draft, mask)
        output = sampled.read()
        assert [ids[-1] for ids in output.token_ids] == last[: len(order)].tolist()
        plain = RejectionSampler(vocabulary.vocab_size, vocabulary.stop_token_ids)
        expected = plain(rows.clone(), batch, draft, mask).read()
        for place in range(len(order)):
            if chosen[place].params.temperature == 0:
                assert list(output.token_ids[place]) == list(expected.token_ids[place])
                assert output.num_accepted[place] == expected.num_accepted[place]
        return {i: list(ids) for i, ids in zip(order, output.token_ids, strict=True)}

    logits_of = [
        torch.randn(1 + num_drafts, vocabulary.vocab_size, generator=generator) for _ in range(5)
    ]
    drafts_of = [rows.argmax(-1)[:num_drafts].tolist() for rows in logits_of]
    drafts_of[4] = list(b"abx")[:num_drafts]
    together = run([0, 1, 2, 3, 4])
    for order in ([2], [3, 2], [4, 3, 0]):
        assert run(order) == {i: together[i] for i in order}


def test_limited_rows_are_part_of_the_step_and_draw_what_the_plain_sampler_allows() -> None:
    vocabulary = Vocabulary.bytes()
    limits: list[dict[str, Any]] = [
        {"top_k": 1},
        {"top_k": 2**40, "top_p": 0.2},
        {"top_p": 0.4},
        {"min_p": 0.6},
        {"top_k": 9, "top_p": 0.7, "min_p": 0.3},
        {},
    ]
    params = [
        SamplingParams(temperature=1.5, seed=seed, **limit) for limit in limits for seed in range(5)
    ] + [SamplingParams(top_k=3)]
    requests = [Request(i, [1], p, 10) for i, p in enumerate(params)]
    batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
    draft = guessed([[] for _ in requests])
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(params), vocabulary.vocab_size, generator=generator)
    sampler = DeviceSampler(
        vocabulary, [40], 0, torch.zeros(40, dtype=torch.int64), Lanes(CPU), lambda rows: rows
    )
    sampled = sampler(logits, batch, draft, Masker(vocabulary).fill(batch, draft))
    assert isinstance(sampled, DeviceSampled)
    token_ids = torch.tensor(sampled.read().token_ids)[:, 0]
    probs = compute_target_probs(logits[:-1], params[:-1])
    assert bool((probs.gather(1, token_ids[:-1, None]) > 0).all())
    best = logits.argmax(-1)
    assert torch.equal(token_ids[:5], best[:5]) and token_ids[-1] == best[-1]
    assert not torch.equal(token_ids[5:-1], best[5:-1])


@pytest.mark.parametrize("limit", [{}, {"top_k": 3}])
def test_the_smallest_temperatures_draw_the_best_token(limit: dict[str, Any]) -> None:
    vocabulary = Vocabulary.bytes()
    params = [SamplingParams(temperature=t, seed=0, **limit) for t in (1e-10, 1e-30, 1e-40, 1e-50)]
    batch = Batch(
        [ScheduledRequest(Request(i, [1], p, 10), 1, 0, True) for i, p in enumerate(params)]
    )
    logits = torch.randn(4, vocabulary.vocab_size, generator=torch.Generator().manual_seed(0)) - 50
    last = torch.zeros(8, dtype=torch.int64)
    sampler = DeviceSampler(vocabulary, [8], 0, last, Lanes(CPU), lambda rows: rows)
    draft = guessed([[]] * 4)
    sampled = sampler(logits, batch, draft, Masker(vocabulary).fill(batch, draft))
    assert [ids[0] for ids in sampled.read().token_ids] == logits.argmax(-1).tolist()


@pytest.mark.parametrize("limit", [{}, {"top_p": 0.99}])
def test_the_largest_temperatures_draw_any_allowed_token_and_no_other(
    limit: dict[str, Any],
) -> None:
    vocabulary = Vocabulary.bytes()
    requests = [constrained_request(Regex("[a-f]+x")) for _ in range(60)]
    for index, request in enumerate(requests):
        temperature = (1e20, 1e38, 1e300)[index % 3]
        request.params = SamplingParams(temperature=temperature, **limit)
        request.seed = index
    batch = Batch([ScheduledRequest(request, 1, 0, True, 1) for request in requests])
    logits = torch.randn(60, vocabulary.vocab_size, generator=torch.Generator().manual_seed(0))
    draft = guessed([[]] * 60)
    mask = Masker(vocabulary).fill(batch, draft)
    last = torch.zeros(64, dtype=torch.int64)
    sampler = DeviceSampler(vocabulary, [64], 0, last, Lanes(CPU), lambda rows: rows)
    plain = RejectionSampler(vocabulary.vocab_size, vocabulary.stop_token_ids)
    for sampled in (sampler(logits, batch, draft, mask), plain(logits, batch, draft, mask)):
        assert {bytes(ids) for ids in sampled.read().token_ids} == {
            b"a",
            b"b",
            b"c",
            b"d",
            b"e",
            b"f",
        }


def test_drafts_with_probabilities_go_through_the_plain_sampler() -> None:
    vocabulary = Vocabulary.bytes()
    request = Request(0, [1], SamplingParams(temperature=1.0, top_k=1), 10)
    batch = Batch([ScheduledRequest(request, 1, 1, True)])
    logits = torch.randn(2, vocabulary.vocab_size)
    best = logits.argmax(-1).tolist()
    last = torch.zeros(8, dtype=torch.int64)
    sampler = DeviceSampler(vocabulary, [8], 1, last, Lanes(CPU), lambda rows: rows)
    draft = guessed([best[:1]], [torch.full((1, vocabulary.vocab_size), 0.5)])
    sampled = sampler(logits.clone(), batch, draft, Masker(vocabulary).fill(batch, draft))
    assert not isinstance(sampled, DeviceSampled)
    assert list(sampled.read().token_ids[0]) == best
    assert int(sampled.last_token_ids[0]) == best[1]


def test_requests_that_are_not_sampled_get_nothing_and_take_no_place() -> None:
    vocabulary = Vocabulary.bytes()
    requests = [Request(i, [1], SamplingParams(), 10) for i in range(3)]
    batch = Batch([ScheduledRequest(r, 1, 0, i != 1) for i, r in enumerate(requests)])
    logits = torch.randn(2, vocabulary.vocab_size)
    last = torch.zeros(8, dtype=torch.int64)
    draft = guessed([[], [], []])
    mask = Masker(vocabulary).fill(batch, draft)
    sampler = DeviceSampler(vocabulary, [8], 2, last, Lanes(CPU), lambda rows: rows)
    output = sampler(logits, batch, draft, mask).read()
    best = logits.argmax(-1).tolist()
    assert [list(ids) for ids in output.token_ids] == [best[:1], [], best[1:]]
    assert last[:2].tolist() == best


def test_speculative_config_without_drafts_needs_no_room_for_them() -> None:
    engine = EngineConfig(speculative=SpeculativeConfig(num_speculative_tokens=0))
    assert max_num_logits_rows(engine.resolved("cuda")) == 512
