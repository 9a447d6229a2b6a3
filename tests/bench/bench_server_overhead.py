"""What the server costs: the same streams through HTTP and handed to the engine itself, in turn.

    python -m tests.bench.bench_server_overhead [--model M] [--device cuda] [--dtype bfloat16]
        [--streams 64] [--tokens 512] [--pairs 6] [--pieces-per-second 2000] [--lines FILE]

One process has the engine and the server, as `structspec serve` has; the clients are a process of
their own. Each pair runs both ways, every second one the other way round, and a ratio is taken
within a pair:

    token     of the time from a stream's first token to its last, its median over the streams
    whole     of the time until all streams have ended, connections and prompts included

Beside them stands what the server takes of the processor for each token, which neighbours on a busy
machine disturb less.

FILE gets a line of JSON. Without `--model` it is two random layers on bytes, which cost next to
nothing: what is left is the server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import uvicorn

from structspec.bench.engine_runs import run_prepared
from structspec.bench.intervals import MedianInterval, median_interval
from structspec.config import EngineConfig
from structspec.options import resolve_options
from structspec.server.serving import make_config
from structspec.server.settings import ServerSettings
from structspec.service import Service
from tests.server.toy import save_toy

WORDS = ("oak", "ash", "elm", "fir", "yew", "larch", "pine", "beech", "alder", "hazel")


@dataclass(frozen=True, slots=True)
class Run:
    """How long all streams took, and of each from its first token to its last."""

    whole_s: float
    streams_s: Sequence[float]
    num_pieces: int = 0
    cpu_s: float = 0.0  # of the process with the engine


def prompts(num_streams: int, seed: int) -> list[str]:
    """No two alike, so that no run finds another's in the prefix cache."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=24)) for _ in range(num_streams)]


def run_bare(service: Service, asked: Sequence[str], num_tokens: int) -> Run:
    """The same requests, handed to the engine; nobody looks at them before they end."""
    task = resolve_options({"max_tokens": num_tokens, "ignore_eos": True, "temperature": 0.0})
    began, cpu_s = time.perf_counter(), time.process_time()
    finished = run_prepared(service, [service.prepare(prompt, task) for prompt in asked])
    stats = [request.stats for request in finished.requests]
    return Run(
        max(finished.finished_at) - began,
        [one.seconds - (one.first_token_s or 0.0) for one in stats],
        cpu_s=time.process_time() - cpu_s,
    )


class Clients:
    """The process that asks over HTTP: it has an interpreter of its own."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.bench_server_overhead", "--ask", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, asked: Sequence[str], num_tokens: int) -> Run:
        """All at once; waits for the last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        cpu_s = time.process_time()
        print(json.dumps([asked, num_tokens]), file=self._process.stdin, flush=True)
        run = Run(**json.loads(self._process.stdout.readline()))
        return replace(run, cpu_s=time.process_time() - cpu_s)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def answer_stdin(port: int) -> None:
    """The clients' own process: a line in, a run, a line out."""
    for line in sys.stdin:
        asked, num_tokens = json.loads(line)
        print(json.dumps(asdict(asyncio.run(ask_all(port, asked, num_tokens)))), flush=True)


async def ask_all(port: int, asked: Sequence[str], num_tokens: int) -> Run:
    began = time.perf_counter()
    found = await asyncio.gather(*(ask(port, prompt, num_tokens) for prompt in asked))
    whole_s = time.perf_counter() - began
    return Run(whole_s, [seconds for seconds, _ in found], sum(count for _, count in found))


async def ask(port: int, prompt: str, num_tokens: int) -> tuple[float, int]:
    """One stream, read without being taken apart: seconds between its ends, and pieces."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}], "stream": True}
    body |= {"max_tokens": num_tokens, "ignore_eos": True, "temperature": 0}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)
    )
    first, num_pieces, read = 0.0, 0, b""
    while part := await reader.read(2**16):
        first = first or time.perf_counter()
        num_pieces += part.count(b"data: ")
        read = read[-64:] + part
    last = time.perf_counter()
    writer.close()
    assert b"[DONE]" in read, read
    return last - first, num_pieces


@contextlib.contextmanager
def serving(service: Service) -> Iterator[int]:
    """The server on a thread of its own, as `structspec serve` has the engine on one; its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = uvicorn.Server(make_config(service, ServerSettings("model")))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def measure(service: Service, options: argparse.Namespace) -> list[tuple[Run, Run]]:
    """Pairs of a bare and a served run; a first pair warms up and is left out."""
    until = time.perf_counter() + options.seconds
    pairs = []
    with serving(service) as port:
        clients = Clients(port)
        for number in range(options.pairs + 1):
            asked = [prompts(options.streams, 2 * number + side) for side in range(2)]
            if number % 2:
                bare = run_bare(service, asked[0], options.tokens)
                served = clients.run(asked[1], options.tokens)
            else:
                served = clients.run(asked[1], options.tokens)
                bare = run_bare(service, asked[0], options.tokens)
            if number:
                pairs.append((bare, served))
            if pairs and time.perf_counter() > until:
                break
        clients.close()
    return pairs


def compare(pairs: Sequence[tuple[Run, Run]], options: argparse.Namespace) -> dict[str, Any]:
    """The figures of all pairs."""
    token = median_interval(
        [
            statistics.median(served.streams_s) / statistics.median(bare.streams_s)
            for bare, served in pairs
        ]
    )
    whole = median_interval([served.whole_s / bare.whole_s for bare, served in pairs])
    num_tokens = options.streams * options.tokens
    server_s = statistics.median(served.cpu_s - bare.cpu_s for bare, served in pairs)
    return {
        "part": "server_overhead",
        "model": options.model or "toy",
        "device": options.device,
        "dtype": options.dtype,
        "streams": options.streams,
        "tokens": options.tokens,
        "pieces_per_second": options.pieces_per_second,
        "pairs": len(pairs),
        "token": asdict(token),
        "whole": asdict(whole),
        "bare_tokens_per_second": num_tokens / statistics.median(b.whole_s for b, _ in pairs),
        "served_tokens_per_second": num_tokens / statistics.median(s.whole_s for _, s in pairs),
        "server_us_per_token": 1e6 * server_s / num_tokens,
        "tokens_per_piece": num_tokens / statistics.median(s.num_pieces for _, s in pairs),
    }


def report(figure: dict[str, Any], file: IO[str]) -> None:
    for name in ("token", "whole"):
        ratio = MedianInterval(**figure[name])
        print(
            f"{name:6} {ratio.median - 1:+.1%} ({ratio.low - 1:+.1%} to {ratio.high - 1:+.1%},"
            f" {ratio.confidence:.0%} sure) in {figure['pairs']} pairs of"
            f" {figure['streams']} x {figure['tokens']} tokens",
            file=file,
        )
    print(
        f"tokens a second: {figure['bare_tokens_per_second']:.0f} bare,"
        f" {figure['served_tokens_per_second']:.0f} served;"
        f" {figure['tokens_per_piece']:.1f} tokens in a piece,"
        f" {figure['server_us_per_token']:.1f} us of the processor for each token",
        file=file,
    )


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="a name or folder (default: a toy)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--load-format", default="auto", help="dummy: random weights")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=40, help="no pair is begun after that")
    parser.add_argument(
        "--pieces-per-second",
        type=float,
        default=EngineConfig().max_pieces_per_second,
        help="max_pieces_per_second of EngineConfig (default: %(default)s)",
    )
    parser.add_argument("--lines", type=Path, help="a file that a line of JSON is added to")
    parser.add_argument("--ask", type=int, metavar="PORT", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    options = read_options()
    if options.ask is not None:
        answer_stdin(options.ask)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or save_toy(Path(folder))
        config = EngineConfig(
            load_format=options.load_format,
            max_model_len=2048,
            max_pieces_per_second=options.pieces_per_second,
        )
        service = Service(model, device=options.device, dtype=options.dtype, config=config)
    try:
        figure = compare(measure(service, options), options)
    finally:
        service.close()
    report(figure, sys.stdout)
    if options.lines is not None:
        with options.lines.open("a", encoding="utf-8") as file:
            print(json.dumps(figure), file=file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
