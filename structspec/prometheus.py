"""An engine's metrics in Prometheus' text format, for a server to show under `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import attrgetter

from structspec.metrics import Histogram, Metrics, SpecDecodeMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "structspec:"
_Labels = Mapping[str, str]

_GAUGES = {  # by the name of a Metrics' field, which is theirs too
    "num_requests_running": "Requests with KV blocks.",
    "num_requests_waiting": "Requests without KV blocks.",
    "num_grammar_queue_reqs": "Requests whose grammar is being compiled.",
    "kv_cache_usage_perc": "KV blocks in use; 1 is all.",
}
_COUNTERS = {
    "prompt_tokens": "Prompt tokens read.",
    "prefix_cache_hits": "Of them, found in the KV cache.",
    "generation_tokens": "Tokens written.",
    "num_preemptions": "Requests that lost their KV blocks.",
    "num_refused_tokens": "Tokens drawn without a mask that a grammar then refused.",
}
_SPEC_DECODE_COUNTERS = {  # of a SpecDecodeMetrics, behind `spec_decode_`
    "num_drafts": "Drafts: of one request in one step.",
    "num_draft_tokens": "Tokens of drafts.",
    "num_accepted_tokens": "Of them, accepted.",
    "num_invalid_tokens": "Of them, from the first on that a grammar forbids.",
    "num_drafter_faults": "Of drafters; each cost a step, or one request of it, its drafts.",
}
_GRAMMAR_COUNTERS = {  # of a GrammarMetrics, which ends them in `_total`
    "num_grammar": "Grammars asked for.",
    "num_grammar_cache_hit": "Of them, at hand or being compiled.",
    "num_grammar_aborted": "Of them, not compiled.",
    "num_grammar_timeout": "Of these, out of time.",
}
_HISTOGRAMS = {
    "request_queue_time_seconds": "From a request's arrival until it had KV blocks.",
    "time_to_first_token_seconds": "From a request's arrival on.",
    "inter_token_latency_seconds": "Per output: between two steps that brought a request tokens.",
    "inter_token_latency_per_token_seconds": "The same, shared by the tokens of the later step.",
    "request_time_per_output_token_seconds": "A request's mean, its first token not counted.",
    "e2e_request_latency_seconds": "From a request's arrival to its end.",
    "grammar.grammar_compilation_time_seconds": "Of grammars that were compiled.",
}


def to_prometheus(metrics: Metrics, labels: _Labels | None = None) -> str:
    """All of it, each sample with these labels."""
    return "".join(f"{line}\n" for line in _lines(metrics, dict(labels or {})))


def _lines(metrics: Metrics, labels: _Labels) -> Iterator[str]:
    for name, text in _GAUGES.items():
        yield from _head(name, "gauge", text)
        yield _sample(name, labels, getattr(metrics, name))
    for name, text in _COUNTERS.items():
        yield from _counter(name, text, labels, getattr(metrics, name))
    for name, text in _SPEC_DECODE_COUNTERS.items():
        yield from _counter(f"spec_decode_{name}", text, labels, getattr(metrics.spec_decode, name))
    for name, text in _GRAMMAR_COUNTERS.items():
        yield from _counter(name, text, labels, getattr(metrics.grammar, f"{name}_total"))
    reasons = metrics.request_success
    yield from _by_label("request_success", "Finished.", labels, "finished_reason", reasons)
    yield from _spec_decode_by_label(metrics.spec_decode, labels)
    for path, text in _HISTOGRAMS.items():
        yield from _histogram(path.rpartition(".")[2], text, labels, attrgetter(path)(metrics))


def _spec_decode_by_label(spec: SpecDecodeMetrics, labels: _Labels) -> Iterator[str]:
    for kind in ("draft", "accepted"):
        by_source = getattr(spec, f"{kind}_tokens_by_source")
        name = f"spec_decode_num_{kind}_tokens_by_source"
        yield from _by_label(name, "By what has drafted them.", labels, "source", by_source)
    per_pos = {str(place): n for place, n in enumerate(spec.num_accepted_tokens_per_pos)}
    name = "spec_decode_num_accepted_tokens_per_pos"
    yield from _by_label(name, "By their place in the draft.", labels, "position", per_pos)
    lengths = spec.accepted_lengths
    histogram = Histogram(range(len(lengths)), [*lengths, 0], spec.num_accepted_tokens)
    yield from _histogram(
        "spec_decode_accepted_length", "Accepted tokens of a draft.", labels, histogram
    )


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {text}"
    yield f"# TYPE {_PREFIX}{name} {kind}"


def _counter(name: str, text: str, labels: _Labels, value: float) -> Iterator[str]:
    yield from _head(f"{name}_total", "counter", text)
    yield _sample(f"{name}_total", labels, value)


def _by_label(
    name: str, text: str, labels: _Labels, label: str, values: Mapping[str, int]
) -> Iterator[str]:
    yield from _head(f"{name}_total", "counter", text)
    for key, value in values.items():
        yield _sample(f"{name}_total", {**labels, label: key}, value)


def _histogram(name: str, text: str, labels: _Labels, histogram: Histogram) -> Iterator[str]:
    yield from _head(name, "histogram", text)
    bounds = [*(f"{float(bound):g}" for bound in histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _sample(f"{name}_sum", labels, histogram.sum)
    yield _sample(f"{name}_count", labels, histogram.count)


def _sample(name: str, labels: _Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{_PREFIX}{name}{{{pairs}}} {value!r}" if pairs else f"{_PREFIX}{name} {value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
