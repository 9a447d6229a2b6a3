"""What our matcher costs a fill, and what filling many requests at once saves.

python -m tests.bench.bench_grammar_fill [DATA] [--vocab smollm2] [--vocab path/of/tokenizer.json]
    [--threads N]

One fill, on the texts of valid instances, token by token, the ways taking turns on every token:
  library   llguidance's own matcher on our grammar
  matcher   ours around it: the laws of `Matcher`
  bare      llguidance's own matcher on its own reading of the schema
Many requests: 128 matchers at different places with 4 drafts each, 640 rows a step:
  serial    a Python loop of fill, accept, rollback
  batch     `fill_drafts`
  dearest   the request that takes longest in the loop: its rows follow each other, so no number
            of threads is quicker
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import fill_next_token_bitmask

from structspec.bench.cases import Case, read_cases
from structspec.bench.vocabularies import load_vocabulary
from structspec.constraint import Constraint, JsonSchema, Regex
from structspec.errors import GrammarError
from structspec.grammars.base import FillJob
from structspec.grammars.drafts import fill_job
from structspec.grammars.llguidance import LIMITS, LLGuidanceBackend
from structspec.grammars.llguidance_lowering import lower
from structspec.grammars.unique_keys import GuardedMatcher
from structspec.vocabulary import Vocabulary
from tests.bench.timing import print_table

SAMPLE = Path(__file__).parents[1] / "data" / "jsonschemabench" / "sample.jsonl.gz"
NUM_REQUESTS = 128
NUM_DRAFTS = 4
NUM_STEPS = 15
MAX_TOKENS = 300  # of each text: the longest would speak for all
LONG_REGEX = Regex("[a-z ]{1200,2000}")  # counted characters: the dearest rows there are

Text = tuple[Constraint, list[int]]


def texts_of(cases: Sequence[Case], vocabulary: Vocabulary) -> list[Text]:
    """Constraints with the tokens of a text each."""
    return [
        (
            JsonSchema(case.body, closed=False),
            vocabulary.encode_text(json.dumps(instance.data))[:MAX_TOKENS],
        )
        for case in cases
        for instance in case.instances[:1]
        if instance.is_valid
    ]


def fill_times(backend: LLGuidanceBackend, constraint: Constraint, ids: list[int]) -> list[list]:
    """Seconds of each fill by each way, until one of them refuses a token."""
    bitmask = np.zeros((1, backend.vocabulary.num_words), np.int32)
    ours = backend.compile(constraint).matcher()
    library = LLMatcher(backend.tokenizer, lower(constraint).grammar, log_level=0, limits=LIMITS)
    own_reading = LLMatcher.grammar_from_json_schema(constraint.text)
    bare = LLMatcher(backend.tokenizer, own_reading, log_level=0)
    fills = [
        lambda: fill_next_token_bitmask(library, bitmask),
        lambda: ours.fill(bitmask, 0),
        lambda: fill_next_token_bitmask(bare, bitmask),
    ]
    times: list[list[float]] = [[], [], []]
    for position, token_id in enumerate(ids):
        for way in islice(cycle(range(3)), position % 3, position % 3 + 3):
            start = time.perf_counter()
            fills[way]()
            times[way].append(time.perf_counter() - start)
        is_taken = library.try_consume_tokens([token_id]) == 1 and ours.accept(token_id)
        if not is_taken or bare.try_consume_tokens([token_id]) != 1:
            break
    return times


def measure_fill(label: str, backend: LLGuidanceBackend, texts: Sequence[Text]) -> tuple:
    """The medians over all fills of all texts."""
    merged: list[list[float]] = [[], [], []]
    for constraint, ids in texts:
        for whole, part in zip(merged, fill_times(backend, constraint, ids), strict=True):
            whole += part
    library, ours, bare = (statistics.median(way) * 1e6 for way in merged)
    return (
        *(label, len(merged[0]), f"{library:.1f}", f"{ours:.1f}", f"{bare:.1f}"),
        *(f"{ours / library:.2f}", f"{ours / bare:.2f}"),
    )


def jobs_of(backend: LLGuidanceBackend, texts: Sequence[Text]) -> list[FillJob]:
    """Requests in the middle of their texts, with the next tokens as drafts."""
    rng = random.Random(0)
    grammars = [(backend.compile(constraint), ids) for constraint, ids in texts]
    jobs = []
    for number, (grammar, ids) in enumerate(islice(cycle(grammars), NUM_REQUESTS)):
        matcher = grammar.matcher()
        depth = rng.randrange(max(1, len(ids) - NUM_DRAFTS))
        if all(map(matcher.accept, ids[:depth])):
            drafts = ids[depth : depth + NUM_DRAFTS]
            jobs.append(FillJob(matcher, number * (1 + NUM_DRAFTS), drafts))
    return jobs


def measure_batch(label: str, backend: LLGuidanceBackend, texts: Sequence[Text]) -> tuple:
    """Medians of whole steps, serial and batch taking turns."""
    jobs = jobs_of(backend, texts)
    bitmask = np.zeros((NUM_REQUESTS * (1 + NUM_DRAFTS), backend.vocabulary.num_words), np.int32)
    serial, batch = [], []  # [step][job] and [step]
    for _ in range(NUM_STEPS + 3):  # the first few steps tell the backend what a row takes
        ends = [time.perf_counter()]
        for job in jobs:
            fill_job(job, bitmask)
            ends.append(time.perf_counter())
        backend.fill_drafts(jobs, bitmask)
        serial.append(np.diff(ends) * 1e3)
        batch.append((time.perf_counter() - ends[-1]) * 1e3)
    by_job = np.median(serial[3:], axis=0)
    serial_ms = statistics.median(float(step.sum()) for step in serial[3:])
    batch_ms = statistics.median(batch[3:])
    num_guarded = sum(isinstance(job.matcher, GuardedMatcher) for job in jobs)
    times = (f"{ms:.2f}" for ms in (serial_ms, float(by_job.max()), batch_ms))
    return label, len(jobs), num_guarded, *times, f"{serial_ms / batch_ms:.2f}"


def usable(backend: LLGuidanceBackend, texts: Sequence[Text]) -> list[Text]:
    """Those that every way compiles."""
    found = []
    for constraint, ids in texts:
        try:
            backend.compile(constraint)
        except GrammarError:
            continue
        own_reading = LLMatcher.grammar_from_json_schema(constraint.text)
        if not LLMatcher(backend.tokenizer, own_reading, log_level=0).is_error():
            found.append((constraint, ids))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=SAMPLE)
    parser.add_argument("--vocab", action="append")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    cases = read_cases(options.data, options.sample)
    fills, batches = [], []
    for name in options.vocab or ["smollm2"]:
        vocabulary = load_vocabulary(name)
        backend = LLGuidanceBackend(vocabulary, num_threads=options.threads)
        texts = usable(backend, texts_of(cases, vocabulary))
        label = f"{vocabulary.vocab_size:,} tokens"
        fills.append(measure_fill(label, backend, texts))
        regex = [(LONG_REGEX, vocabulary.encode_text("a few words " * 150)[:MAX_TOKENS])]
        batches.append(measure_batch(f"{label}, schemas", backend, texts))
        batches.append(measure_batch(f"{label}, long regex", backend, regex))
    ratios = ("matcher / library", "matcher / bare")
    print_table(("", "fills", "library us", "matcher us", "bare us", *ratios), fills)
    where = f"{options.threads} threads, {os.cpu_count()} cores"
    print(f"{NUM_REQUESTS} requests, {NUM_DRAFTS} drafts each, {where}")
    times = ("serial ms", "dearest ms", "batch ms", "serial / batch")
    print_table(("", "requests", "guarded", *times), batches)
