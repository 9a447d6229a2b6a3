"""Tokens per target step on the extraction prompts: what is forced alone, and with guesses.

python -m tests.bench.bench_forced_drafts

The engine writes every output, greedily, one request at a time. Drafts change no token, so what
another drafter would have cost is found by replaying those outputs, and the replay of the engine's
own drafter must take the engine's steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat

from structspec import LLM
from structspec.config import SpeculativeConfig
from structspec.drafters.base import Drafter
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.options import resolve_options
from structspec.request import Request
from tests.bench.bench_generate import EXTRACTION
from tests.bench.timing import print_table
from tests.drafters.replay import Step, replay
from tests.real_requests import Pair, run_alone

PAIRS: Sequence[Pair] = [
    (f"Extract the data from this text: {text}", {"schema": schema, "max_tokens": 256})
    for text, schema in EXTRACTION
]


def fresh_request(llm: LLM, pair: Pair) -> Request:
    request = llm._service.prepare(pair[0], resolve_options(pair[1])).request
    assert request.compiled is not None
    request.start_matching(request.compiled.result())
    return request


def replayed(llm: LLM, drafter: Drafter, outputs: Sequence[list[int]]) -> list[Step]:
    """The steps that this drafter would have taken to these outputs, one request at a time."""
    requests = [fresh_request(llm, pair) for pair in PAIRS]
    return list(chain.from_iterable(map(replay, repeat(drafter), requests, outputs)))


def row(num_tokens: int, steps: Sequence[Step]) -> tuple[object, ...]:
    num_forced = sum(sum(step.is_forced) for step in steps)
    num_accepted = sum(sum(step.is_forced[: step.num_accepted]) for step in steps)
    tokens_per_step = f"{num_tokens / len(steps):.2f}"
    return len(steps), tokens_per_step, num_forced, f"{num_accepted / num_forced:.0%}"


def main() -> None:
    rows: list[tuple[object, ...]] = []
    with LLM("smollm2-135m") as llm:
        requests = run_alone(llm, PAIRS, temperature=0)
        outputs = [request.output_token_ids for request in requests]
        vocabulary = llm._service.vocabulary
        drafters: dict[str, Drafter] = {
            "forced": ForcedDrafter(vocabulary),
            "hybrid": HybridDrafter(vocabulary, SpeculativeConfig()),
        }
        for name, drafter in drafters.items():
            steps = replayed(llm, drafter, outputs)
            rows.append((name, *row(sum(map(len, outputs)), steps)))
        assert len(steps) == sum(one.stats.num_target_steps for one in requests)
    print_table(("drafter", "steps", "tokens / step", "forced drafts", "accepted"), rows)


if __name__ == "__main__":
    main()
