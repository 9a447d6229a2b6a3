"""What the masks of a step cost the engine's thread: 8, 32 and 128 requests, no drafts.

python -m tests.bench.bench_masks_at_scale [TOKENIZER_JSON ...] [--only TEST] [--way WAY ...]

Microseconds, medians over steps; requests stand at different places of texts that prefer words.
  start     all requests get their matcher at once, their grammar just compiled
  fill      `Masker.fill`
  advance   `Masker.advance`
  alone     fill and advance by a loop over matchers, on other steps of the same run
  look      `Backend.take_unseen` of a token each: moved without a row, where it is allowed
  accept    the same by a loop over other matchers, which stand at the same places

Ways: `shared` lets at most one original of a grammar be copied for each thread, `many` four, and
`followers` gives each request a matcher of its own that threads of ours fill rows by.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from structspec.bench.engine_workload import Workload, make_jobs, read_workload
from structspec.bench.vocabularies import SMOLLM2, load_vocabulary
from structspec.bitmask import unpack_row
from structspec.constraint import Constraint, JsonSchema, Regex
from structspec.engine.batch import Batch, SamplerOutput, ScheduledRequest, no_draft
from structspec.grammars.base import Matcher
from structspec.grammars.drafts import take_allowed
from structspec.grammars.llguidance import LLGuidanceBackend, LLGuidanceGrammar
from structspec.grammars.llguidance_batch import inner_of
from structspec.masking import Masker
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary
from tests.bench.timing import print_table

WORKLOAD = Path(__file__).parents[1] / "data" / "structured-workload.json"
TESTS = ("plain", "same", "pool", "regex")
SIZES = (8, 32, 128)
MAX_DEPTH = 48
WAYS = ("shared", "many", "followers")
NUM_STEPS = 10
NUM_TRIED = 64  # allowed tokens that one is chosen from


def constraints_of(workload: Workload, test: str) -> list[Constraint | None]:
    """One for each of the most requests there are; the same object for equal ones."""
    known: dict[str, Constraint] = {}
    found: list[Constraint | None] = []
    for _, options in make_jobs(workload, test, max(SIZES), 256):
        if "regex" in options:
            found.append(known.setdefault(options["regex"], Regex(options["regex"])))
        elif "schema" in options:
            found.append(known.setdefault(str(options["schema"]), JsonSchema(options["schema"])))
        else:
            found.append(None)
    return found


class Stand:
    """Requests of one test, and a writer that prefers words."""

    def __init__(
        self, backend: LLGuidanceBackend, constraints: Sequence[Constraint | None]
    ) -> None:
        self._random = random.Random(0)
        self._vocabulary = backend.vocabulary
        self._backend = backend
        self._twins: dict[int, Matcher] = {}
        self._masker = Masker(backend.vocabulary)
        compiled: dict[int, Future] = {}
        for constraint in constraints:
            if constraint is not None and id(constraint) not in compiled:
                future = compiled[id(constraint)] = Future()
                future.set_result(backend.compile(constraint))
        futures = [compiled.get(id(constraint)) for constraint in constraints]
        self.requests = [Request(i, [1], SamplingParams(), 10**6, f) for i, f in enumerate(futures)]

    def start_us(self) -> float:
        """All requests are handed in, and then want their matchers."""
        constrained = [(r, r.compiled.result()) for r in self.requests if r.compiled is not None]
        for _, compiled in constrained:
            compiled.expect()
        start = time.perf_counter()
        for request, compiled in constrained:
            request.start_matching(compiled)
        return (time.perf_counter() - start) * 1e6

    def step(self, requests: Sequence[Request]) -> tuple[float, float]:
        """Microseconds of fill and advance."""
        batch = Batch([ScheduledRequest(request, 1, 0, True) for request in requests])
        start = time.perf_counter()
        draft = no_draft(len(requests))
        mask = self._masker.fill(batch, draft)
        filled = time.perf_counter()
        rows = mask.bitmask.numpy()
        tokens = [self._choose(row) for row in rows] or [0] * len(requests)
        output = SamplerOutput([[token_id] for token_id in tokens], [0] * len(requests))
        sampled = time.perf_counter()
        self._masker.advance(batch, draft, mask, output)
        end = time.perf_counter()
        assert all(request.error is None for request in requests)
        return (filled - start) * 1e6, (end - sampled) * 1e6

    def step_alone(self, requests: Sequence[Request]) -> float:
        """Microseconds of both, one matcher after the other."""
        matchers = [request.matcher for request in requests if request.matcher is not None]
        rows = np.zeros((len(matchers), self._vocabulary.num_words), np.int32)
        start = time.perf_counter()
        for index, matcher in enumerate(matchers):
            matcher.fill(rows, index)
        filled = time.perf_counter()
        tokens = [self._choose(row) for row in rows]
        sampled = time.perf_counter()
        assert all(m.accept(token_id) for m, token_id in zip(matchers, tokens, strict=True))
        return (time.perf_counter() - sampled + filled - start) * 1e6

    def step_unseen(self, requests: Sequence[Request]) -> tuple[float, float]:
        """Microseconds of moves by tokens that no row was filled for: at once, and by a loop."""
        matchers = [request.matcher for request in requests if request.matcher is not None]
        twins = [self._twin(request) for request in requests if request.matcher is not None]
        rows = np.zeros((len(twins), self._vocabulary.num_words), np.int32)
        for index, twin in enumerate(twins):
            twin.fill(rows, index)
        tokens = [[self._choose(row)] for row in rows]
        start = time.perf_counter()
        counts = self._backend.take_unseen([*zip(matchers, tokens, strict=True)])
        looked = time.perf_counter()
        assert take_allowed([*zip(twins, tokens, strict=True)]) == counts == [1] * len(twins)
        return (looked - start) * 1e6, (time.perf_counter() - looked) * 1e6

    def _twin(self, request: Request) -> Matcher:
        """Another matcher of its grammar where it stands."""
        twin = self._twins.get(request.request_id)
        if twin is None:
            assert request.compiled is not None
            twin = self._twins[request.request_id] = request.compiled.result().matcher()
        assert request.matcher is not None
        token_ids = inner_of(request.matcher).token_ids[len(inner_of(twin).token_ids) :]
        assert all(map(twin.accept, token_ids))
        return twin

    def spread(self) -> None:
        """Move the requests to different places."""
        depths = [self._random.randrange(MAX_DEPTH) for _ in self.requests]
        for depth in range(MAX_DEPTH):
            late = [r for r, last in zip(self.requests, depths, strict=True) if last > depth]
            if late:
                self.step(late)

    def wait_for_followers(self) -> None:
        """Until each request has one, where it is to have one."""
        for _ in range(2):  # to ask for them; to have them
            self.step(self.requests)
            for request in self.requests:
                grammar = None if request.compiled is None else request.compiled.result()
                if isinstance(grammar, LLGuidanceGrammar) and grammar.followers is not None:
                    grammar.followers.wait()

    def _choose(self, row: np.ndarray) -> int:
        allowed = np.flatnonzero(unpack_row(row, self._vocabulary.vocab_size)).tolist()
        tried = self._random.sample(allowed, min(len(allowed), NUM_TRIED))
        text = self._vocabulary.token_bytes
        words = [i for i in tried if (text[i] or b"").strip(b" ").isalpha()]
        return self._random.choice(words or tried)


def backend_of(vocabulary: Vocabulary, way: str) -> LLGuidanceBackend:
    """One that fills in this way."""
    num_cores = os.cpu_count() or 1
    max_originals = 4 * num_cores if way == "many" else None
    return LLGuidanceBackend(
        vocabulary, max_originals=max_originals, has_followers=way == "followers"
    )


def measure(
    label: tuple[str, str], backend: LLGuidanceBackend, workload: Workload, test: str
) -> list[tuple]:
    """A row for each number of requests."""
    stand = Stand(backend, constraints_of(workload, test))
    start_us, rows = stand.start_us(), []
    stand.spread()
    stand.wait_for_followers()
    for size in SIZES:
        requests = stand.requests[:size]
        times, alone = [], []
        for _ in range(NUM_STEPS):
            times.append(stand.step(requests))
            if test != "plain":
                alone.append(stand.step_alone(requests))
        unseen = [stand.step_unseen(requests) for _ in range(NUM_STEPS)]
        fill, advance = (statistics.median(column) for column in zip(*times, strict=True))
        both = statistics.median(alone or [0.0])
        look, accept = (statistics.median(c) for c in zip(*unseen, strict=True))
        started = f"{start_us:,.0f}" if size == max(SIZES) else ""
        shown = (f"{us:,.0f}" for us in (fill, advance, both))
        looks = (f"{us:,.0f}" for us in (look, accept))
        ratio = f"{both / (fill + advance):.1f}"
        rows.append((*label, test, size, started, *shown, ratio, *looks))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--only", choices=TESTS)
    parser.add_argument("--way", choices=WAYS, nargs="+", default=WAYS)
    options = parser.parse_args()
    workload = read_workload(WORKLOAD)
    table = []
    for name in (SMOLLM2, *options.tokenizers):
        vocabulary = load_vocabulary(name)
        for way in options.way:
            backend = backend_of(vocabulary, way)
            label = (f"{vocabulary.vocab_size:,}", way)
            for test in TESTS if options.only is None else [options.only]:
                table += measure(label, backend, workload, test)
    print(f"{os.cpu_count()} cores")
    columns = (
        "tokens",
        "way",
        "test",
        "requests",
        "start",
        "fill",
        "advance",
        "alone",
        "alone / both",
        "look",
        "accept",
    )
    print_table(columns, table)
