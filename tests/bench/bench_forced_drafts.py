"""Tokens per target step on the extraction prompts: forced text in canonical tokens or by habit.

python -m tests.bench.bench_forced_drafts

The engine writes every output twice, greedily, one request at a time; in the second round it knows
the model's habits. Drafts change no token, so what the other drafters would have cost is found by
replaying those outputs, and the replay of the engine's own drafter must take the engine's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat

from structspec import LLM
from structspec.config import SpeculativeConfig
from structspec.drafters.base import Drafter
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch, Draft
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


class Forgetful:
    """A drafter that never learns: a new one for every step."""

    def __init__(self, make: Callable[[], Drafter]) -> None:
        self._make = make

    def propose(self, batch: Batch) -> Draft:
        return self._make().propose(batch)


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
        rounds = [run_alone(llm, PAIRS, temperature=0) for _ in range(2)]
        outputs = [request.output_token_ids for request in rounds[0]]
        assert outputs == [request.output_token_ids for request in rounds[1]]
        num_tokens = sum(map(len, outputs))
        vocabulary = llm._service.vocabulary
        makers: dict[str, Callable[[], Drafter]] = {
            "forced": lambda: ForcedDrafter(vocabulary),
            "hybrid": lambda: HybridDrafter(vocabulary, SpeculativeConfig()),
        }
        for name, make in makers.items():
            steps = replayed(llm, Forgetful(make), outputs)
            rows.append((name, "canonical", "any", *row(num_tokens, steps)))
            learning = make()
            for number, requests in enumerate(rounds, 1):
                steps = replayed(llm, learning, outputs)
                rows.append((name, "habits", number, *row(num_tokens, steps)))
                if name == "hybrid":
                    assert len(steps) == sum(one.stats.num_target_steps for one in requests)
    columns = (
        "drafter",
        "spelling",
        "round",
        "steps",
        "tokens / step",
        "forced drafts",
        "accepted",
    )
    print_table(columns, rows)


if __name__ == "__main__":
    main()
