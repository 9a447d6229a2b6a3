"""What an engine counts, what a snapshot says of it, and how Prometheus reads it."""

import itertools
import re
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.common_subsequence import count_common
from structspec.compiler import GrammarCompiler
from structspec.constraint import Regex
from structspec.engine.batch import DraftSource
from structspec.engine.progress import record_draft
from structspec.metrics import Metrics, at_least
from structspec.metrics_recorder import MetricsRecorder, OpenHistogram
from structspec.prometheus import to_prometheus
from structspec.request import Request, RequestStats, RequestStatus, SamplingParams
from structspec.vocabulary import Vocabulary

DRAFTS = st.lists(
    st.tuples(st.sampled_from(["forced", "ngram", "suffix"]), st.integers(1, 4)), min_size=1
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_request(request_id: int = 0, num_prompt: int = 3) -> Request:
    return Request(request_id, [7] * num_prompt, SamplingParams(), 100)


@given(st.lists(st.tuples(DRAFTS, st.integers(0, 40), st.integers(0, 3)), max_size=20))
def test_sums_by_source_by_position_and_by_length_are_those_of_all(
    steps: list[tuple[list[tuple[str, int]], int, int]],
) -> None:
    stats = RequestStats()
    drafted: defaultdict[int, int] = defaultdict(int)
    accepted: defaultdict[int, int] = defaultdict(int)
    for runs, wanted, num_invalid in steps:
        num_drafted = sum(count for _, count in runs)
        num_accepted = min(wanted, num_drafted)
        record_draft(stats, [DraftSource(*run) for run in runs], num_accepted, num_invalid)
        for place in range(num_drafted):
            drafted[place] += 1
            accepted[place] += place < num_accepted
    assert stats.num_drafts == sum(stats.draft_lengths) == sum(stats.accepted_lengths) == len(steps)
    assert stats.drafted_per_position == list(drafted.values())
    held = [count for count in accepted.values() if count]
    assert stats.accepted_per_position == held
    assert stats.num_drafted == sum(drafted.values()) == sum(stats.drafted_by_source.values())
    assert stats.num_accepted == sum(held) == sum(stats.accepted_by_source.values())
    assert stats.num_invalid == sum(num_invalid for _, _, num_invalid in steps)


def test_accepted_tokens_belong_to_the_sources_in_their_order() -> None:
    stats = RequestStats()
    record_draft(stats, [DraftSource("forced", 3), DraftSource("ngram", 4)], 5, 0)
    record_draft(stats, [DraftSource("ngram", 2)], 0, 2)
    assert stats.drafted_by_source == {"forced": 3, "ngram": 6}
    assert stats.accepted_by_source == {"forced": 3, "ngram": 2}
    assert stats.mean_acceptance_length == 1 + 5 / 2


def test_at_least_counts_what_is_longer() -> None:
    assert at_least([4, 0, 2, 1]) == [3, 3, 1]
    assert at_least([]) == at_least([5]) == []


@given(st.lists(st.integers(0, 3), max_size=7), st.lists(st.integers(0, 3), max_size=7))
def test_common_tokens_are_the_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    def subsequences(tokens: list[int]) -> set[tuple[int, ...]]:
        return {
            chosen
            for length in range(len(tokens) + 1)
            for chosen in itertools.combinations(tokens, length)
        }

    assert count_common(a, b) == max(map(len, subsequences(a) & subsequences(b)))


@given(st.lists(st.floats(0, 5), max_size=30))
def test_a_histogram_counts_each_value_in_the_first_bucket_that_holds_it(
    values: list[float],
) -> None:
    bounds = (0.5, 1.0, 2.0)
    grown = OpenHistogram(bounds)
    for value in values[::2]:
        grown.observe(value)
    frozen = grown.frozen(values[1::2])
    for bound, end in zip(bounds, (1, 2, 3), strict=True):
        assert sum(frozen.counts[:end]) == sum(value <= bound for value in values)
    assert frozen.count == len(values)
    assert frozen.sum == pytest.approx(sum(values))
    assert grown.frozen().count == len(values[::2])  # what was added for once was not kept


def finish(recorder: MetricsRecorder, request: Request, reason: str = "stop") -> None:
    request.status, request.finish_reason = RequestStatus.FINISHED, reason
    recorder.finished(request)


def test_the_prompt_of_a_request_that_wrote_nothing_does_not_count() -> None:
    """Nobody knows how much of it was computed."""
    recorder, request = MetricsRecorder(Clock()), make_request()
    recorder.added(request)
    finish(recorder, request, "cancelled")
    assert recorder.snapshot().prompt_tokens == 0


def test_a_request_counts_the_same_before_and_after_it_is_finished() -> None:
    clock = Clock()
    recorder = MetricsRecorder(clock)
    request = make_request()
    recorder.added(request)
    assert recorder.snapshot().num_requests_waiting == 1
    request.status = RequestStatus.RUNNING
    request.token_ids += [1, 2, 3, 4]
    request.stats.first_token_s = 0.02
    record_draft(request.stats, [DraftSource("ngram", 3)], 2, 1)
    running = recorder.snapshot()
    assert (running.num_requests_running, running.num_requests_waiting) == (1, 0)
    finish(recorder, request)
    done = recorder.snapshot()
    assert (done.num_requests_running, done.num_requests_waiting) == (0, 0)
    for name in ("prompt_tokens", "generation_tokens", "spec_decode", "num_preemptions"):
        assert getattr(done, name) == getattr(running, name)
    assert done.time_to_first_token_seconds == running.time_to_first_token_seconds
    assert (done.prompt_tokens, done.generation_tokens) == (3, 4)
    assert done.request_success == {"stop": 1, "length": 0, "abort": 0, "error": 0}


def test_gaps_between_tokens_are_counted_by_their_length_and_first_tokens_have_none() -> None:
    recorder = MetricsRecorder(Clock())
    recorder.got_tokens(10.0, {(0.0, 1): 5, (9.5, 1): 3, (8.0, 1): 1, (9.0, 0): 7})
    histogram = recorder.snapshot().inter_token_latency_seconds
    assert (histogram.count, histogram.sum) == (4, 3 * 0.5 + 2.0)


def test_what_is_per_output_per_token_and_per_request_is_told_apart() -> None:
    """One request, in seconds: it comes at 1, begins at 1.5, and at 3 has its first two tokens,
    at 4 one more, at 6 four at once. So there are two gaps between outputs, of 1 and 2; of tokens
    five, one of 1 and four of 2 / 4; and the six tokens behind the first took (6 - 3) / 6 each.
    """
    clock, request = Clock(), make_request()
    recorder, request.arrival_time = MetricsRecorder(clock), 1.0
    recorder.added(request)
    for clock.now in (1.5, 2.0):  # preempted between the two
        recorder.begun(request)
    for clock.now, num_tokens in ((3.0, 2), (4.0, 1), (6.0, 4)):
        recorder.got_tokens(clock.now, {(request.token_time, num_tokens): 1})
        request.token_time, request.token_ids = clock.now, [*request.token_ids, *[1] * num_tokens]
        request.stats.first_token_s = request.stats.first_token_s or clock.now - 1.0
    clock.now = 7.0
    finish(recorder, request)
    metrics = recorder.snapshot()
    assert {
        name: (histogram.count, histogram.sum)
        for name in (
            "request_queue_time_seconds",
            "time_to_first_token_seconds",
            "inter_token_latency_seconds",
            "inter_token_latency_per_token_seconds",
            "request_time_per_output_token_seconds",
            "e2e_request_latency_seconds",
        )
        for histogram in (getattr(metrics, name),)
    } == {
        "request_queue_time_seconds": (1, 0.5),
        "time_to_first_token_seconds": (1, 2.0),
        "inter_token_latency_seconds": (2, 1.0 + 2.0),
        "inter_token_latency_per_token_seconds": (5, 1.0 + 4 * 0.5),
        "request_time_per_output_token_seconds": (1, 3.0 / 6),
        "e2e_request_latency_seconds": (1, 6.0),
    }


def test_one_token_alone_has_no_time_per_output_token() -> None:
    recorder, request = MetricsRecorder(Clock()), make_request()
    request.token_ids.append(1)
    request.stats.first_token_s = 1.0
    finish(recorder, request)
    assert recorder.snapshot().request_time_per_output_token_seconds.count == 0


def test_throughput_is_what_came_between_two_snapshots() -> None:
    clock = Clock()
    recorder = MetricsRecorder(clock)
    request = make_request()
    recorder.added(request)
    before = recorder.snapshot()
    request.stats.first_token_s = 1.0
    request.token_ids += [1] * 8
    record_draft(request.stats, [DraftSource("suffix", 6)], 4, 0)
    clock.now = 2.0
    rates = recorder.snapshot().since(before)
    assert (rates.prompt, rates.generation, rates.drafted, rates.accepted) == (1.5, 4, 3, 2)


SAMPLE = re.compile(r"(?P<name>structspec:\w+)(\{(?P<labels>.*)\})? (?P<value>[-+.e\d]+|inf)")


def read(text: str) -> dict[str, float]:
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            samples[line.rpartition(" ")[0]] = float(found["value"])
    return samples


def some_metrics() -> Metrics:
    recorder = MetricsRecorder(Clock())
    request = make_request()
    recorder.added(request)
    request.token_ids += [1, 2, 3]
    request.stats.first_token_s = 0.004
    record_draft(request.stats, [DraftSource("forced", 2), DraftSource("ngram", 2)], 3, 0)
    record_draft(request.stats, [DraftSource("ngram", 1)], 0, 1)
    finish(recorder, request, "cancelled")
    return recorder.snapshot()


def test_prometheus_reads_what_the_snapshot_says() -> None:
    samples = read(to_prometheus(some_metrics(), {"model_name": 'a "b"\n'}))
    label = 'model_name="a \\"b\\"\\n"'
    name = "structspec:spec_decode_num_"
    assert samples[f"{name}drafts_total{{{label}}}"] == 2
    assert samples[f"{name}draft_tokens_total{{{label}}}"] == 5
    assert samples[f"{name}accepted_tokens_total{{{label}}}"] == 3
    assert samples[f"{name}invalid_tokens_total{{{label}}}"] == 1
    per_pos = [
        samples[f'{name}accepted_tokens_per_pos_total{{{label},position="{place}"}}']
        for place in range(3)
    ]
    assert per_pos == [1, 1, 1]
    assert samples[f'{name}accepted_tokens_by_source_total{{{label},source="ngram"}}'] == 1
    assert samples[f'structspec:request_success_total{{{label},finished_reason="abort"}}'] == 1
    assert samples[f"structspec:generation_tokens_total{{{label}}}"] == 3


def test_every_family_has_one_head_and_histograms_add_up() -> None:
    text = to_prometheus(some_metrics())
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    assert len(dict(families)) == len(families) > 15
    samples = read(text)
    for name, kind in families:
        assert f"# HELP {name} " in text
        if kind == "histogram":
            buckets = [v for key, v in samples.items() if key.startswith(f"{name}_bucket")]
            assert buckets == sorted(buckets)
            assert samples[f'{name}_bucket{{le="+Inf"}}'] == samples[f"{name}_count"] == buckets[-1]
        elif kind == "counter":
            assert name.endswith("_total")


def test_a_compiler_counts_what_was_asked_and_what_came_of_it() -> None:
    with GrammarCompiler(Vocabulary.bytes()) as compiler:
        for pattern in ("[ab]+", "[ab]+", "[c]+"):
            compiler.submit(Regex(pattern)).result()
        assert compiler.submit(Regex("(")).exception() is not None
        counts = compiler.counts.snapshot()
    assert (counts.num_grammar_total, counts.num_grammar_cache_hit_total) == (4, 1)
    assert (counts.num_grammar_aborted_total, counts.num_grammar_timeout_total) == (1, 0)
    assert counts.grammar_compilation_time_seconds.count == 2
