"""All figures of the engine on one GPU, as lines of JSON: the most important stages first.

    python3 tests/bench/gpu_figures.py WORKLOAD OUT [--dummy FOLDER] [--stage NAME] [--seconds S]

Each stage is a process of `structspec bench engine` for one model, with a time limit of its own;
what it has measured by then is kept. `--dummy` is a folder with the config.json and tokenizer of a
large model, which then runs with random weights. OUT.jsonl gets the figures, OUT.txt the tables.
tests/bench/gpu_report.py and gpu_plots.py make pages and drawings of them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SIZES = ("1", "128", "32", "8", "256")  # what is named in goals comes first
_PLAIN_SIZES = ("1", "32", "128")
_PREFILL_CONTEXT = 4608  # takes prompts of 4,096 tokens
_STRUCTURED = ("plain", "same", "regex", "pool", "fresh")


def _words(option: str, *values: str) -> list[str]:
    return [word for value in values for word in (option, value)]


@dataclass(frozen=True)
class Stage:
    """One process: what it measures, and how long it may take with a small and a large model."""

    name: str
    options: tuple[str, ...]
    max_model_len: int  # where the model takes so much
    small_s: float
    large_s: float


STAGES = (
    Stage(
        "main",
        (
            *_words("--part", "first-token", "prefill", "neighbours", "speed"),
            *("--requests", *_SIZES),
        ),
        max_model_len=_PREFILL_CONTEXT,
        small_s=210,
        large_s=360,
    ),
    Stage(
        "drafts",
        ("--part", "drafts", "--requests", "1", "8", "32", "128"),
        max_model_len=2048,
        small_s=80,
        large_s=0,  # random weights have no text to guess
    ),
    Stage(
        "invariant",
        (
            *("--part", "speed", "--test", "plain", "--batch-invariant"),
            *("--requests", *_PLAIN_SIZES),
        ),
        max_model_len=_PREFILL_CONTEXT,
        small_s=60,
        large_s=80,
    ),
    Stage(
        "steps",
        (
            *("--part", "steps", "--requests", "1", "8", "32", "128", "256", "--max-tokens", "96"),
            *("--max-num-draft-tokens", "640"),
        ),
        max_model_len=33_024,  # the longest context, and what is written behind it
        small_s=120,
        large_s=200,
    ),
)
_SMALL_CONTEXT = 8192  # SmolLM2's
_PART_SHARE = {True: 0.5, False: 0.8}  # of its process's time: one of several parts, or all


@dataclass(frozen=True)
class Model:
    """How it is named, and with random weights or its own."""

    name: str
    is_dummy: bool

    def options(self, stage: Stage) -> list[str]:
        """Those of a stage, and what only this model needs."""
        options = ["--model", self.name, *stage.options]
        if self.is_dummy:
            options += ["--load-format", "dummy"]
        options += ["--max-model-len", str(min(stage.max_model_len, self.context()))]
        if stage.name == "main":
            tests = _STRUCTURED if self.is_dummy else (*_STRUCTURED, "copy")
            options += _words("--test", *tests)
        return options

    def context(self) -> int:
        """The longest that the model takes."""
        if not self.is_dummy:
            return _SMALL_CONTEXT
        config = json.loads((Path(self.name) / "config.json").read_text())
        return int(config["max_position_embeddings"])


def commit() -> str:
    """The one that is checked out; empty where nobody can say."""
    if shutil.which("git") is None:
        return ""
    run = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=_ROOT
    )
    return run.stdout.strip()


def run_stage(stage: Stage, model: Model, arguments: argparse.Namespace, limit_s: float) -> str:
    """Measure, and say how it ended."""
    lines, tables = (arguments.out.with_suffix(suffix) for suffix in (".jsonl", ".txt"))
    engine = ["--device", arguments.device, "--dtype", arguments.dtype]
    part_s = limit_s * _PART_SHARE[stage.options.count("--part") > 1]
    limits = ["--part-seconds", str(round(part_s)), "--lines", str(lines)]
    options = [*model.options(stage), *engine, *shlex.split(arguments.options)]
    header = {
        "part": "run",
        "stage": stage.name,
        "commit": arguments.commit,
        "options": " ".join([Path(word).name for word in options]),
    }
    with lines.open("a") as file:
        print(json.dumps(header), file=file)
    command = [sys.executable, "-m", "structspec", "bench", "engine", str(arguments.workload)]
    with tables.open("a") as file:
        try:
            run = subprocess.run(
                [*command, *options, *limits], stdout=file, cwd=_ROOT, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            return f"was cut after {limit_s:.0f} s"
    return "is done" if run.returncode == 0 else f"failed with status {run.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path, help="without a suffix")
    parser.add_argument("--dummy", metavar="FOLDER", help="of the large model")
    parser.add_argument("--only", choices=("small", "large"), help="this model alone")
    parser.add_argument("--stage", action="append", metavar="NAME", help="default: all")
    parser.add_argument("--seconds", type=float, default=560, help="for everything")
    parser.add_argument("--commit", default=commit(), help="where git cannot tell")
    parser.add_argument("--small", default="smollm2-135m", help="the small model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--options", default="", help="more for `structspec bench engine`")
    arguments = parser.parse_args()
    arguments.workload, arguments.out = arguments.workload.resolve(), arguments.out.resolve()
    models = [] if arguments.dummy is None else [Model(str(Path(arguments.dummy).resolve()), True)]
    models.append(Model(arguments.small, False))
    end = time.perf_counter() + arguments.seconds
    for stage in STAGES:
        if arguments.stage and stage.name not in arguments.stage:
            continue
        for model in models:
            if arguments.only and model.is_dummy != (arguments.only == "large"):
                continue
            wanted = stage.large_s if model.is_dummy else stage.small_s
            limit_s = min(wanted, end - time.perf_counter())
            if limit_s > 0:
                start = time.perf_counter()
                ended = run_stage(stage, model, arguments, limit_s)
                took = f"{time.perf_counter() - start:.0f} s"
                print(f"{stage.name} of {Path(model.name).name} {ended} ({took})", flush=True)


if __name__ == "__main__":
    main()
