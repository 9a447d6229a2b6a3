"""Drafters that look at tokens alone: microseconds per added token and per draft.

python -m tests.bench.bench_drafting_costs
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter

import numpy as np

from structspec.config import SpeculativeConfig
from structspec.drafters.base import Drafter
from structspec.drafters.ngram import NgramDrafter
from structspec.drafters.prediction import PredictionDrafter
from structspec.drafters.suffix import SuffixDrafter
from structspec.drafters.suffix_responses import ResponseMemory
from structspec.drafters.suffix_tree import SuffixSettings, SuffixTree
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.request import Request, SamplingParams
from tests.bench.timing import measure_us, print_table

CONTEXTS = (512, 8_192, 32_768)
NUMS_REQUESTS = (1, 128)
NUM_SLOTS = 15
NUM_NEW = 4  # tokens that each step brings a request
NUM_RESPONSES, RESPONSE_LENGTH = 1_000, 512
PREDICTION_LENGTH = 2_048


def words(num_tokens: int, seed: int = 0) -> list[int]:
    """Few tokens are frequent and many rare, as in prose, and pieces of 30 come again."""
    random = np.random.default_rng(seed)
    num_pieces = num_tokens // 30 + 1
    pieces = np.minimum(random.zipf(1.2, (num_pieces, 30)), 50_000)
    order = random.integers(0, num_pieces, num_pieces)
    found: list[int] = pieces[order].reshape(-1)[:num_tokens].tolist()
    return found


def one_token(num_tokens: int) -> list[int]:
    """The most to count: every token ends runs of all lengths."""
    return [1] * num_tokens


def no_repeat(num_tokens: int) -> list[int]:
    """No token comes twice, so that all of them follow the root."""
    return list(range(num_tokens))


def measure_tree(text: Callable[[int], list[int]], num_tokens: int) -> tuple[object, ...]:
    """A tree by itself: built in one go, then asked."""
    token_ids = text(num_tokens)

    def build() -> SuffixTree:
        tree = SuffixTree(SuffixSettings(), num_tokens)
        tree.extend(token_ids)
        return tree

    tree = build()
    added = measure_us(build, 5) / num_tokens
    drafted = measure_us(lambda: tree.draft((), NUM_SLOTS), 500)
    num_bytes = tree.num_bytes / num_tokens
    return text.__name__, num_tokens, f"{added:.2f}", f"{drafted:.1f}", f"{num_bytes:.0f}"


def measure_memory() -> tuple[object, ...]:
    """The memory of responses as it fills, then asked."""
    memory = ResponseMemory(SuffixSettings())
    responses = [words(RESPONSE_LENGTH, seed) for seed in range(NUM_RESPONSES)]
    memory.add(responses[0])  # compiles
    start = perf_counter()
    for response in responses:
        memory.add(response)
    added = (perf_counter() - start) * 1e6 / NUM_RESPONSES / RESPONSE_LENGTH
    drafted = measure_us(lambda: memory.draft(responses[7][99:122], NUM_SLOTS), 500)
    return f"{NUM_RESPONSES} x {RESPONSE_LENGTH}", f"{added:.2f}", f"{drafted:.1f}"


def suffix_with_memory() -> Drafter:
    """The drafter behind which many responses lie already."""
    drafter = SuffixDrafter()
    assert drafter._memory is not None
    for seed in range(NUM_RESPONSES):
        drafter._memory.add(words(RESPONSE_LENGTH, 10_000 + seed))
    return drafter


@cache
def predicted(seed: int) -> list[int]:
    """What a request will write, and is expected to."""
    return words(PREDICTION_LENGTH, seed)


DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "ngram": lambda: NgramDrafter(SpeculativeConfig()),
    "suffix, own text": lambda: SuffixDrafter(max_cached_requests=0),
    "suffix": suffix_with_memory,
    "prediction": lambda: PredictionDrafter(lambda request: predicted(request.request_id)),
}


def measure_steps(name: str, num_tokens: int, num_requests: int) -> tuple[object, ...]:
    """One request's share of a step, new tokens included; they come from its prediction."""
    requests = [
        Request(i, words(num_tokens, 1_000 + i), SamplingParams(), 9_999)
        for i in range(num_requests)
    ]
    output = [predicted(i) for i in range(num_requests)]
    batch = Batch([ScheduledRequest(request, 1, NUM_SLOTS, True) for request in requests])
    drafter = DRAFTERS[name]()

    def step() -> None:
        for request, token_ids in zip(requests, output, strict=True):
            place = request.num_output_tokens
            request.token_ids += token_ids[place : place + NUM_NEW]
        drafter.propose(batch)

    start = perf_counter()
    step()
    first = (perf_counter() - start) * 1e6
    later = measure_us(step, 20)
    return (
        name,
        num_tokens,
        num_requests,
        f"{first / num_requests:.0f}",
        f"{later / num_requests:.1f}",
    )


def main() -> None:
    """Print all tables."""
    for name in DRAFTERS:  # what is compiled at the first draft
        measure_steps(name, 64, 1)
    print_table(
        ("text", "tokens", "us per token added", "us per draft", "bytes per token"),
        [measure_tree(text, n) for text in (words, one_token, no_repeat) for n in CONTEXTS],
    )
    print_table(("responses", "us per token added", "us per draft"), [measure_memory()])
    print_table(
        ("drafter", "context", "requests", "us per request, first step", "later"),
        [measure_steps(name, n, m) for name in DRAFTERS for n in CONTEXTS for m in NUMS_REQUESTS],
    )


if __name__ == "__main__":
    main()
