"""An agent's loop of ten calls: ours, against the same engine free and without drafts.

python -m tests.bench.bench_agent [--rounds 6] [--json FILE]

Each round is one conversation: ten orders, each told by the result of the call before it, each to
be entered by a call of a tool. Both engines read the same prompts: what is told of a call that was
made is the right call, whatever an engine wrote. Ours is held to the tools and drafts with its
defaults. The other writes what it likes, a token a step, until a lenient parser finds a call in its
text, the model ends, or it has written twice as many tokens as the right call has; it keeps
prefixes as ours does. The engines take turns conversation by conversation, and in the next round
the other one is first. Every round has orders of its own, so what an engine remembers is the form.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from structspec import LLM, EngineConfig, SpeculativeConfig, Tools
from structspec.engine.loop import News
from structspec.options import resolve_options
from structspec.tool_prompt import tell_tools
from tests.bench.timing import print_table

NUM_STEPS = 10
ENGINES = ("free", "ours")
COLUMNS = ("engine", "rounds", "right calls", "tokens", "tokens / step", "s / loop", "ms / token")
_CUSTOMERS = [
    "Nora Diaz",
    "Ben Patel",
    "Ida Berg",
    "Otto Fischer",
    "Hana Huang",
    "Tom Reed",
    "Gus Lopez",
]
_PRODUCTS = [
    "desk lamp",
    "oak chair",
    "teapot",
    "bookshelf",
    "blue rug",
    "wall clock",
    "camp bed",
    "mirror",
]
_CITIES = ["Oslo", "Lima", "Cairo", "Hamburg", "Osaka", "Porto", "Denver", "Lyon"]


def _tool(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "parameters": parameters}


_TEXT = {"type": "string", "maxLength": 30}
TOOLS = (
    _tool(
        "place_order",
        "Enter an order",
        customer=_TEXT,
        product=_TEXT,
        quantity={"type": "integer", "minimum": 1, "maximum": 99},
        city=_TEXT,
        shipping={"type": "string", "enum": ["standard", "express"]},
    ),
    _tool("cancel_order", "Take an order back", order_id={"type": "integer", "minimum": 1}),
)
SYSTEM = "You enter orders. Answer every order with one call of place_order and nothing else."


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a conversation: what is read before it, and what should be written."""

    messages: list[dict[str, Any]]
    call: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """What an engine wrote in one step, and what it took."""

    is_right: bool
    num_tokens: int
    num_target_steps: int
    seconds: float  # from the messages to the parsed call


def conversation(seed: int) -> list[Step]:
    """The steps of a round."""
    draw = random.Random(seed)
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    steps = []
    for index in range(NUM_STEPS):
        order = {
            "customer": draw.choice(_CUSTOMERS),
            "product": draw.choice(_PRODUCTS),
            "quantity": draw.randint(1, 60),
            "city": draw.choice(_CITIES),
            "shipping": draw.choice(("standard", "express")),
        }
        asked = (
            f"{order['customer']} from {order['city']} orders {order['quantity']} x"
            f" {order['product']}, {order['shipping']} shipping."
        )
        if index == 0:
            messages = [*messages, {"role": "user", "content": asked}]
        else:
            told = {"order_id": draw.randint(1000, 9999), "next": asked}
            messages = [*messages, {"role": "tool", "content": json.dumps(told)}]
        call = {"name": "place_order", "arguments": order}
        steps.append(Step(messages, call))
        messages = [*messages, {"role": "assistant", "tool_calls": [{"function": call}]}]
    return steps


def find_call(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text that has a name and arguments, whatever is around it."""
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            found, _ = decoder.raw_decode(text, start)
        except ValueError:
            found = None
        if isinstance(found, dict) and "name" in found and isinstance(found.get("arguments"), dict):
            return {"name": found["name"], "arguments": found["arguments"]}
        start = text.find("{", start + 1)
    return None


def write(llm: LLM, step: Step, options: dict[str, Any], *, is_free: bool) -> Written:
    """One step of a conversation; a free engine is stopped once there is a call in its text."""
    start = time.perf_counter()
    service, text = llm._service, ""
    messages = tell_tools(step.messages, TOOLS, "json")
    prepared = service.prepare(messages, resolve_options({"temperature": 0, **options}))
    is_done = threading.Event()

    def listen(news: News) -> None:
        nonlocal text
        text += news.text
        if is_free and "}" in news.text and find_call(text) is not None:
            service.cancel(prepared)
            is_done.set()
        if news.finished is not None:
            is_done.set()

    service.start(prepared, listen, is_streamed=is_free)
    is_done.wait()
    call = find_call(text)
    seconds = time.perf_counter() - start
    request = prepared.request
    num_tokens, num_steps = request.num_output_tokens, request.stats.num_target_steps
    return Written(call == step.call, num_tokens, num_steps, seconds)


def run_free(llm: LLM, step: Step) -> Written:
    """Nothing is held and nothing drafted."""
    most = 2 * len(llm._service.tokenizer.encode(json.dumps(step.call)))
    return write(llm, step, {"max_tokens": most}, is_free=True)


def run_ours(llm: LLM, step: Step) -> Written:
    """Held to the tools; with drafts."""
    tools = Tools(TOOLS, envelope="json", choice="required", parallel=False)
    return write(llm, step, {"grammar": tools, "max_tokens": 256}, is_free=False)


RUNS: dict[str, Callable[[LLM, Step], Written]] = {"free": run_free, "ours": run_ours}


def measure(engines: dict[str, LLM], num_rounds: int) -> list[dict[str, list[Written]]]:
    """What each engine wrote in each round, the first of them included."""
    rounds = []
    for index in range(num_rounds):
        steps = conversation(index)
        order = ENGINES if index % 2 else ENGINES[::-1]
        loops = {name: [RUNS[name](engines[name], one) for one in steps] for name in order}
        print(f"round {index}, free / ours: {ratios([loops])}", flush=True)
        rounds.append(loops)
    return rounds


def row(name: str, which: str, loops: Sequence[Sequence[Written]]) -> tuple[object, ...]:
    """Of the table: an engine in some of the rounds."""
    written = [one for loop in loops for one in loop]
    num_tokens = sum(one.num_tokens for one in written)
    seconds = sum(one.seconds for one in written)
    return (
        name,
        which,
        f"{sum(one.is_right for one in written)} of {len(written)}",
        num_tokens,
        f"{num_tokens / sum(one.num_target_steps for one in written):.2f}",
        f"{seconds / len(loops):.2f}",
        f"{1000 * seconds / num_tokens:.1f}",
    )


def ratios(rounds: Sequence[dict[str, list[Written]]]) -> str:
    """How many times faster ours is, loop by loop: the median and the range."""
    seconds = [
        {name: sum(one.seconds for one in loop[name]) for name in ENGINES} for loop in rounds
    ]
    found = [one["free"] / one["ours"] for one in seconds]
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def main() -> None:
    """Print the table, and how many times faster a loop is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path, help="write every step's figures there")
    options = parser.parse_args()
    plain = EngineConfig(speculative=SpeculativeConfig(method="none"))
    with ExitStack() as stack:
        engines = {
            "free": stack.enter_context(LLM("smollm2-135m", config=plain)),
            "ours": stack.enter_context(LLM("smollm2-135m")),
        }
        for llm in engines.values():
            llm.generate("Hello", max_tokens=4)
        rounds = measure(engines, options.rounds)
    rows = []
    for which, some in (("first", rounds[:1]), ("later", rounds[1:])):
        rows += [row(name, which, [loop[name] for loop in some]) for name in ENGINES if some]
    print_table(COLUMNS, rows)
    print(f"seconds of a loop, free / ours: first {ratios(rounds[:1])}")
    if rounds[1:]:
        print(f"seconds of a loop, free / ours: later {ratios(rounds[1:])}")
    if options.json is not None:
        figures = [{name: [*map(asdict, loop[name])] for name in ENGINES} for loop in rounds]
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
