"""A server under load: hundreds of streams of mixed constraints, clients that leave, poison.

    python -m tests.bench.bench_server_load [--streams 200] [--seconds 60]

`structspec serve` over two random layers on bytes, on this machine. Every stream is read to its end
and checked; some clients leave in the middle, and once a second somebody sends what cannot be
compiled. Tells what was answered, how long it took and what the server's memory did; exit code 1
where anything went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import jsonschema

from tests.server.toy import save_toy, toy_server

LEAVING = 0.1  # this share of clients reads a few pieces and goes
MAX_GROWTH = 0.05  # of memory, from the second quarter of the time to the last
ROLL = {"type": "integer", "minimum": 1, "maximum": 6}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "born": ROLL},
    "required": ["name", "born"],
}
ROLLS = {"type": "array", "items": ROLL, "minItems": 3, "maxItems": 9}
TREE = {
    "type": "object",
    "properties": {"is_leaf": {"type": "boolean"}, "kind": {"enum": ["oak", "fir", "yew"]}},
    "required": ["is_leaf", "kind"],
}
TOOL = {"type": "function", "function": {"name": "roll", "parameters": TREE}}
POISON: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
    {"regex": "(" * 50},
    {"grammar": "root ::= nothing"},
    {"structured_outputs": {"json": {"properties": {"x": {"pattern": "("}}}}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/x"}}}},
]


def of_schema(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {"name": "x", "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": inner}}


def asked(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A kind of request and its fields; every fourth schema is one that nobody has sent before."""
    new = {"title": str(chance.random())} if chance.random() < 0.25 else {}
    marks = {"type": "integer", "enum": [chance.randrange(10**6) for _ in range(3)]}
    kinds: dict[str, dict[str, Any]] = {
        "object": of_schema({**PERSON, **new}),
        "array": of_schema({**ROLLS, **new}),
        "new enum": of_schema(marks),
        "regex": {"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}"},
        "choice": {"structured_outputs": {"choice": ["yes", "no", "perhaps"]}},
        "grammar": {"grammar": 'root ::= "[" ("a" | "b")* "]"', "max_tokens": 40},
        "tool": {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        "free": {"max_tokens": 60, "ignore_eos": True},
    }
    kind = chance.choice(list(kinds))
    return kind, kinds[kind]


def is_right(kind: str, body: dict[str, Any], text: str, reason: str) -> bool:
    """Whether a finished answer is what was asked for."""
    if reason == "length":  # nothing to hold a random model to but that it was bounded
        return kind in ("grammar", "free")
    match kind:
        case "object" | "array" | "new enum":
            schema = body["response_format"]["json_schema"]["schema"]
            return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
        case "tool":
            return jsonschema.Draft202012Validator(TREE).is_valid(json.loads(text))
        case "regex":
            return re.fullmatch(body["regex"], text) is not None
        case "choice":
            return text in body["structured_outputs"]["choice"]
        case "grammar":
            return re.fullmatch(r"\[[ab]*\]", text) is not None
    return reason == "stop"


@dataclass(slots=True)
class Load:
    """What has happened so far."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    first_piece_s: list[float] = field(default_factory=list)
    poison_s: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes, once a second
    num_pieces: int = 0


async def stream_once(http: httpx2.AsyncClient, load: Load, chance: random.Random) -> None:
    """One client: reads to the end and checks, or leaves."""
    kind, fields = asked(chance)
    messages = [{"role": "user", "content": chance.choice(["Roll.", "A tree?", "Ada, 1815"])}]
    body = {"messages": messages, "temperature": 1, "seed": chance.getrandbits(30), **fields}
    patience = chance.randint(1, 5) if chance.random() < LEAVING else None
    began, text, reason, num_pieces, line = time.perf_counter(), "", "", 0, ""
    sent = {"max_tokens": 200, **body, "stream": True}
    async with http.stream("POST", "/v1/chat/completions", json=sent) as answer:
        if answer.status_code != 200:
            load.wrong.append(f"{kind}: HTTP {answer.status_code} {(await answer.aread())[:200]!r}")
            return
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            if not num_pieces:
                load.first_piece_s.append(time.perf_counter() - began)
            num_pieces += 1
            if patience is not None and num_pieces > patience:
                load.counts["left"] += 1
                return
            for choice in json.loads(line.removeprefix("data: ")).get("choices", ()):
                delta = choice["delta"]
                reason = choice["finish_reason"] or reason
                text += delta.get("content") or ""
                for call in delta.get("tool_calls") or ():
                    text += call["function"].get("arguments") or ""
    load.num_pieces += num_pieces
    load.counts[kind] += 1
    if not is_right(kind, sent, text, reason):
        load.wrong.append(f"{kind}: {reason!r} {text!r} {line!r}")


async def keep_streaming(http: httpx2.AsyncClient, load: Load, seed: int, until: float) -> None:
    chance = random.Random(seed)
    while time.perf_counter() < until:
        try:
            await stream_once(http, load, chance)
        except (httpx2.HTTPError, ValueError, KeyError) as error:
            load.wrong.append(repr(error))


async def keep_poisoning(http: httpx2.AsyncClient, load: Load, until: float) -> None:
    """Once a second what cannot be compiled; it must be refused as the sender's fault."""
    number = 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        status: int | str
        body = {"messages": [{"role": "user", "content": "?"}], **POISON[number % len(POISON)]}
        sent = {**body, "stream": number % 2 == 0}
        load.counts["poison"] += 1
        try:
            status = (await http.post("/v1/chat/completions", json=sent)).status_code
        except httpx2.HTTPError as error:
            status = repr(error)
        load.poison_s.append(time.perf_counter() - began)
        if status != 400:
            load.wrong.append(f"poison {number % len(POISON)}: {status}")
        number += 1
        await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - began)))


async def keep_watching(pid: int, load: Load, until: float) -> None:
    while time.perf_counter() < until:
        load.memory.append(memory_of(pid))
        await asyncio.sleep(1)


def memory_of(pid: int) -> int:
    """What a process and those it has started hold, in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # it has just ended
        return 0
    held = re.search(r"VmRSS:\s+(\d+) kB", status)
    return (int(held[1]) * 1024 if held else 0) + sum(memory_of(int(one)) for one in children)


async def gauge(http: httpx2.AsyncClient, name: str) -> float:
    text = (await http.get("/metrics")).text
    found = re.search(rf"^structspec:{name}\{{.*\}} (\S+)$", text, re.M)
    assert found is not None, name
    return float(found[1])


async def seconds_to_free(http: httpx2.AsyncClient, num_streams: int) -> float:
    """From when so many clients leave in the middle until the last KV block is free."""
    body = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 1900}
    async with asyncio.TaskGroup() as group:
        opened = [asyncio.Event() for _ in range(num_streams)]
        go = asyncio.Event()

        async def hold(is_open: asyncio.Event) -> None:
            sent = {**body, "ignore_eos": True, "stream": True}
            async with http.stream("POST", "/v1/chat/completions", json=sent) as answer:
                await anext(answer.aiter_lines())
                is_open.set()
                await go.wait()

        tasks = [group.create_task(hold(one)) for one in opened]
        await asyncio.gather(*(one.wait() for one in opened))
        assert await gauge(http, "kv_cache_usage_perc") > 0
        go.set()
        began = time.perf_counter()
        await asyncio.gather(*tasks)
        while await gauge(http, "kv_cache_usage_perc") > 0:
            assert time.perf_counter() - began < 60, "KV blocks are never freed"
            await asyncio.sleep(0.01)
    return time.perf_counter() - began


async def run_load(url: str, pid: int, num_streams: int, seconds: float) -> tuple[Load, float]:
    load = Load()
    limits = httpx2.Limits(max_connections=num_streams + 8)
    async with httpx2.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        until = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as group:
            for seed in range(num_streams):
                group.create_task(keep_streaming(http, load, seed, until))
            group.create_task(keep_poisoning(http, load, until))
            group.create_task(keep_watching(pid, load, until))
        return load, await seconds_to_free(http, 20)


def growth(memory: list[int]) -> float:
    """How much larger it was in the last quarter of the time than in the second."""
    quarter = max(1, len(memory) // 4)
    before = statistics.median(memory[quarter : 2 * quarter] or memory)
    return statistics.median(memory[-quarter:]) / before - 1


def report(load: Load, num_streams: int, seconds: float, freed_s: float) -> bool:
    """Print what happened; whether all was well."""
    first, poison = sorted(load.first_piece_s), sorted(load.poison_s)
    grown = growth(load.memory)
    num_answers = sum(load.counts.values()) - load.counts["left"] - load.counts["poison"]
    print(f"{num_streams} streams for {seconds:.0f} s")
    print(f"answers  {num_answers} whole, {load.counts['left']} left, of each kind:")
    print(f"         {dict(load.counts)}")
    print(f"pieces   {load.num_pieces / seconds:.0f} a second")
    print(f"first    {at(first, 0.5):.3f} s median, {at(first, 0.99):.3f} s of the slowest 1 %")
    print(
        f"poison   {len(poison)} refused in {at(poison, 0.5):.3f} s median, {poison[-1]:.3f} s most"
    )
    print(f"memory   {load.memory[-1] / 1e6:.0f} MB, {grown:+.1%} from the 2nd quarter to the last")
    course = load.memory[:: max(1, len(load.memory) // 10)]
    print(f"         {' '.join(f'{held / 1e6:.0f}' for held in course)} MB in its course")
    print(f"freed    all KV blocks {freed_s:.3f} s after 20 clients left")
    print(f"wrong    {len(load.wrong)}")
    for one in load.wrong[:10]:
        print(f"         {one}")
    return not load.wrong and grown <= MAX_GROWTH


def at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, toy_server(save_toy(Path(folder))) as server:
        load, freed_s = asyncio.run(
            run_load(server.url, server.process.pid, options.streams, options.seconds)
        )
    return 0 if report(load, options.streams, options.seconds, freed_s) else 1


if __name__ == "__main__":
    sys.exit(main())
