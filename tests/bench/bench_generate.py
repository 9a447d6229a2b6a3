"""How fast the main job is, as ratios within one run: ours against transformers, structured against
free text. Run it with `make bench`; the figures of a quiet machine are in docs/benchmarks.md.

Everything uses the same weights (SmolLM2-135M, float32), threads, token ids and greedy decoding.
Both run on one thread, the engine's: a second thread's OpenMP pool would slow down either.
Runs alternate, each ratio is taken pair by pair, and the median of the ratios is printed with its
range, so that a machine that changes speed under the run changes little.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import torch
from pydantic import BaseModel, Field
from rich.console import Console
from rich.table import Table
from transformers import GenerationConfig, LlamaForCausalLM

from structspec import LLM, EngineConfig, SpeculativeConfig
from structspec.request import Request
from tests.models.reference import reference_model
from tests.real_requests import Pair, run_together

T = TypeVar("T")
_ENDLESS = {"ignore_eos": True}


class Person(BaseModel):
    name: str
    age: int
    city: str
    occupation: str


class Flight(BaseModel):
    flight_number: str
    departure_city: str
    arrival_city: str
    seat: str


class Line(BaseModel):
    product: str
    quantity: int
    unit_price: float


class Order(BaseModel):
    customer: str
    lines: list[Line] = Field(max_length=2)
    is_paid: bool


class Meeting(BaseModel):
    date: str
    start_time: str
    location: str
    attendees: list[str] = Field(max_length=3)


EXTRACTION: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Ada Lovelace is 36 years old, works as a mathematician and lives in London.", Person),
    ("My name is Otto Fischer, I am 52, a baker from Hamburg.", Person),
    ("Flight LH 1234 takes you from Munich to Oslo, your seat is 14C.", Flight),
    ("Your ticket: seat 3A on flight BA 77 from London to Lima.", Flight),
    ("Nora Diaz ordered 3 lamps at 24.50 each and 2 chairs at 119.00 each. It is paid.", Order),
    ("An order of Ben Patel, not paid yet: 1 desk at 250.00 and 4 shelves at 30.25 each.", Order),
    ("Meet Ben Patel, Hana Huang and Gus Lopez on 2026-03-14 at 10:30 in room Aurora.", Meeting),
    ("On 2026-05-02 at 14:00, Ida Berg and Tom Reed meet in the library.", Meeting),
)


@dataclass(frozen=True)
class Run:
    """One timed run."""

    seconds: float
    num_tokens: int
    num_steps: int = 0

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


def timed(run: Callable[[], Sequence[Request]]) -> Run:
    start = time.perf_counter()
    requests = run()
    seconds = time.perf_counter() - start
    # A model that loops inside a list until max_tokens is easy to draft for: that would be no win.
    assert not any(request.compiled and request.finish_reason == "length" for request in requests)
    return Run(
        seconds,
        sum(request.num_output_tokens for request in requests),
        sum(request.stats.num_target_steps for request in requests),
    )


def on_engine_thread(llm: LLM, work: Callable[[], T]) -> T:
    """The result of `work`, done on the thread that computes for `llm`."""
    done: Future[T] = Future()
    llm._service._engine_loop._post(lambda: done.set_result(work()))
    return done.result()


def run_transformers(model: LlamaForCausalLM, llm: LLM, prompt: str, num_tokens: int) -> Run:
    """Greedy `generate` of exactly `num_tokens` on the token ids that our engine gets."""
    service = llm._service
    text = service.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    token_ids = torch.tensor([service.tokenizer.encode(text, parse_special=True)])
    config = GenerationConfig(
        max_new_tokens=num_tokens, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    start = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(
            token_ids, attention_mask=torch.ones_like(token_ids), generation_config=config
        )
    assert output.shape[1] == token_ids.shape[1] + num_tokens
    return Run(time.perf_counter() - start, num_tokens)


def ratio(numerators: Sequence[Run], denominators: Sequence[Run]) -> str:
    ratios = [
        a.tokens_per_second / b.tokens_per_second
        for a, b in zip(numerators, denominators, strict=True)
    ]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a free-text run")
    arguments = parser.parse_args()
    console = Console(width=100)
    plain_prompt = "Explain in a few paragraphs how a lighthouse works."

    # the same prompts come round after round: nothing is to be known of them from the last
    config = EngineConfig(
        enable_prefix_caching=False,
        speculative=SpeculativeConfig(method="hybrid", suffix_decoding_max_cached_requests=0),
    )
    with LLM("smollm2-135m", config=config) as llm:
        reference = on_engine_thread(llm, reference_model)
        extraction: list[Pair] = [
            (f"Extract the data from this text: {text}", {"schema": schema})
            for text, schema in EXTRACTION
        ]
        # Free text is told the keys in words: shown a schema, this model copies it.
        free: list[Pair] = [
            (f"{prompt}\nAnswer in JSON with keys {', '.join(schema.model_fields)}.", _ENDLESS)
            for (prompt, _), (_, schema) in zip(extraction, EXTRACTION, strict=True)
        ]

        def ours(pairs: Sequence[Pair], **options: object) -> list[Request]:
            return [run_together(llm, [pair], temperature=0, **options)[0] for pair in pairs]

        num_tokens = arguments.tokens
        kinds: dict[str, Callable[[], Run]] = {
            "transformers generate": lambda: on_engine_thread(
                llm, lambda: run_transformers(reference, llm, plain_prompt, num_tokens)
            ),
            "ours, free text, no drafts": lambda: timed(
                lambda: ours([(plain_prompt, _ENDLESS)], max_tokens=num_tokens, speculative=False)
            ),
            "extraction, free text, no drafts": lambda: timed(
                lambda: ours(free, max_tokens=48, speculative=False)
            ),
            "extraction, free text, n-gram drafts": lambda: timed(
                lambda: ours(free, max_tokens=48)
            ),
            "extraction, structured, no drafts": lambda: timed(
                lambda: ours(extraction, max_tokens=256, speculative=False)
            ),
            "extraction, structured, forced + n-gram": lambda: timed(
                lambda: ours(extraction, max_tokens=256)
            ),
            "extraction, structured, 8 at once": lambda: timed(
                lambda: run_together(llm, extraction, temperature=0, max_tokens=256)
            ),
        }
        runs: dict[str, list[Run]] = {name: [] for name in kinds}
        for round_index in range(arguments.rounds + 1):
            for name, run in kinds.items():
                with console.status(f"round {round_index}: {name}"):
                    result = run()
                if round_index > 0:  # the first round warms up
                    runs[name].append(result)

    table = Table(title=f"SmolLM2-135M float32, {torch.get_num_threads()} threads, batch 1")
    for column in ("run", "tokens/s", "tokens", "target steps", "tokens per step"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, results in runs.items():
        last = results[-1]
        table.add_row(
            name,
            f"{statistics.median(run.tokens_per_second for run in results):.1f}",
            str(last.num_tokens),
            str(last.num_steps or last.num_tokens),
            f"{last.num_tokens / last.num_steps:.2f}" if last.num_steps else "1.00",
        )
    console.print(table)
    for title, numerator, denominator in (
        ("ours / transformers, free text", "ours, free text, no drafts", "transformers generate"),
        (
            "structured / free text without drafts",
            "extraction, structured, forced + n-gram",
            "extraction, free text, no drafts",
        ),
        (
            "structured / free text with n-gram drafts",
            "extraction, structured, forced + n-gram",
            "extraction, free text, n-gram drafts",
        ),
        (
            "structured with / without drafts",
            "extraction, structured, forced + n-gram",
            "extraction, structured, no drafts",
        ),
    ):
        console.print(f"{title}: {ratio(runs[numerator], runs[denominator])}")


if __name__ == "__main__":
    main()
