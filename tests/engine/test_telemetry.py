"""What the parts of an engine count: invalid drafts, times, log lines."""

import logging
from dataclasses import replace

import pytest

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, SamplerOutput, ScheduledRequest, guessed
from structspec.engine.engine import _count_valid
from structspec.engine.log_line import LogLine, describe
from structspec.metrics import Metrics
from structspec.metrics_recorder import MetricsRecorder
from structspec.request import RequestStatus
from tests.engine.toy import RandomDrafter, ToyEngine


def run_toy(num_requests: int = 3) -> tuple[ToyEngine, Metrics]:
    toy = ToyEngine(EngineConfig(num_blocks=40, block_size=4), RandomDrafter(0))
    requests = [toy.add([0, 1, index], max_tokens=12) for index in range(num_requests)]
    toy.run(requests)
    assert sum(r.stats.num_drafted for r in requests) > 0
    return toy, toy.scheduler.recorder.snapshot()


def test_a_snapshot_sums_what_the_requests_say() -> None:
    toy = ToyEngine(EngineConfig(num_blocks=40, block_size=4), RandomDrafter(0))
    requests = [toy.add([0, 1, index], max_tokens=12) for index in range(3)]
    toy.run(requests[:1])
    for _ in range(2):  # once with requests that run, once without
        metrics, stats = toy.scheduler.recorder.snapshot(), [r.stats for r in requests]
        spec = metrics.spec_decode
        assert spec.num_drafts == sum(one.num_drafts for one in stats) == sum(spec.draft_lengths)
        assert spec.num_draft_tokens == sum(one.num_drafted for one in stats)
        assert spec.num_accepted_tokens == sum(one.num_accepted for one in stats)
        assert sum(spec.num_accepted_tokens_per_pos) == spec.num_accepted_tokens
        assert spec.draft_tokens_by_source == {"hybrid": spec.num_draft_tokens}
        assert metrics.generation_tokens == sum(r.num_output_tokens for r in requests)
        assert metrics.time_to_first_token_seconds.count == 3
        # a gap between any two steps that brought a request tokens
        num_steps = sum(one.num_target_steps for one in stats)
        assert metrics.inter_token_latency_seconds.count == num_steps - 3
        # the tokens of those steps share the same times; what came with a first token has none
        per_output = metrics.inter_token_latency_seconds
        per_token = metrics.inter_token_latency_per_token_seconds
        assert per_output.count <= per_token.count <= metrics.generation_tokens - 3
        assert per_token.sum == pytest.approx(per_output.sum)
        assert metrics.request_queue_time_seconds.count == 3
        toy.run(requests)
    assert metrics.prompt_tokens == 9
    assert metrics.request_time_per_output_token_seconds.count == 3
    assert sum(metrics.request_success.values()) == 3


def test_waiting_and_running_requests_are_told_apart() -> None:
    config = EngineConfig(num_blocks=40, block_size=4, max_num_requests=2)
    toy = ToyEngine(config, RandomDrafter(0))
    requests = [toy.add([0, 1], max_tokens=8) for _ in range(3)]
    toy.engine.step()
    metrics = toy.scheduler.recorder.snapshot()
    running = sum(r.status is RequestStatus.RUNNING for r in requests)
    assert metrics.num_requests_running == running > 0
    assert metrics.num_requests_running + metrics.num_requests_waiting == sum(
        not r.is_finished for r in requests
    )


def test_drafts_beyond_those_that_the_grammar_takes_are_invalid() -> None:
    toy = ToyEngine(EngineConfig(num_blocks=40, block_size=4), RandomDrafter(0))
    request = toy.add([0, 1], max_tokens=12)
    (share,) = toy.scheduler.schedule().requests
    draft = guessed([[2, 3, 3]])
    batch = Batch([ScheduledRequest(request, 2, share.num_draft_slots, True)])
    toy.scheduler.launched(batch, draft)
    toy.scheduler.update(batch, draft, SamplerOutput([[2, 1]], [1]), [1])
    assert (request.stats.num_accepted, request.stats.num_invalid) == (1, 2)


def test_a_guess_that_was_drawn_without_a_mask_and_then_refused_is_invalid() -> None:
    drawn = SamplerOutput([[5, 6, 7], [5, 6], [1]], [2, 1, 0])
    stands = replace(drawn, num_accepted=[1, 1, 0], diverged=frozenset([0, 1]))
    # the first's second guess was refused; of the second what was drawn behind its guess
    assert _count_valid([2, 1, 0], drawn, stands) == [1, 1, 0]
    assert _count_valid([2, 1, 0], drawn, drawn) == [2, 1, 0]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_is_logged_once_an_interval_while_there_is_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    line = LogLine(MetricsRecorder(clock).snapshot, 10.0, clock)
    with caplog.at_level(logging.INFO, "structspec"):
        for _ in range(250):
            clock.now += 0.1
            line.tick()
    assert len(caplog.records) == 2


def test_a_rest_ends_an_interval_without_a_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    line = LogLine(MetricsRecorder(clock).snapshot, 10.0, clock)
    with caplog.at_level(logging.INFO, "structspec"):
        for _ in range(5):
            clock.now += 1000
            line.tick()
            clock.now += 5
            line.tick()
    assert caplog.records == []


@pytest.mark.parametrize(("interval_s", "level"), [(0.0, "INFO"), (10.0, "WARNING")])
def test_nothing_is_counted_for_a_line_that_nobody_wants(
    interval_s: float, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    def snapshot() -> Metrics:
        raise AssertionError("not to be asked")

    clock = Clock()
    line = LogLine(snapshot, interval_s, clock)
    with caplog.at_level(level, "structspec"):
        for _ in range(50):
            clock.now += 1
            line.tick()


def test_the_line_says_what_happened_between_two_snapshots() -> None:
    _, metrics = run_toy()
    spec = metrics.spec_decode
    doubled = replace(
        spec,
        num_drafts=2 * spec.num_drafts,
        num_draft_tokens=spec.num_draft_tokens + 40,
        num_accepted_tokens=spec.num_accepted_tokens + 10,
        draft_lengths=[2 * n for n in spec.draft_lengths],
        accepted_lengths=[2 * n for n in spec.accepted_lengths],
    )
    later = replace(
        metrics,
        seconds=metrics.seconds + 4,
        generation_tokens=metrics.generation_tokens + 80,
        num_requests_running=2,
        spec_decode=doubled,
    )
    text = describe(metrics, later)
    assert "0.0 prompt and 20.0 generated tokens/s" in text
    assert "2 running, 0 waiting" in text
    assert "2.5 of 10.0 tokens/s accepted (25.0%)" in text
    assert f"mean acceptance length {1 + 10 / spec.num_drafts:.2f}" in text
    assert "drafts" not in describe(metrics, replace(later, spec_decode=spec))
