"""The demo: a real model fills in objects of every kind, and says what it took."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from structspec.config import EngineConfig
from structspec.demo.report import Outcome, build_summary, build_table
from structspec.demo.tasks import TASKS
from structspec.errors import StructspecError
from structspec.llm import LLM

MAX_WIDTH = 100


def show_demo(model: str, config: EngineConfig) -> int:
    """Run every task, one at a time, and print the table; 0 if every object is valid."""
    console = Console()
    console = Console(width=min(console.width, MAX_WIDTH))
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with progress:
        bar = progress.add_task(f"Loading {model}", total=len(TASKS))
        with LLM(model, config=config) as llm:
            progress.update(bar, description=_working_on(0))
            outcomes = []
            for outcome in run_tasks(llm):
                outcomes.append(outcome)
                progress.update(bar, advance=1, description=_working_on(len(outcomes)))
    console.print(build_table(outcomes, f"structspec · {model}"))
    console.print(build_summary(outcomes))
    return 0 if all(outcome.is_valid for outcome in outcomes) else 1


def _working_on(index: int) -> str:
    """The name of a task, as wide as any other so that the bar stands still."""
    names = [task.name for task in TASKS]
    return f"Writing: {names[index] if index < len(names) else '':<{max(map(len, names))}}"


def run_tasks(llm: LLM) -> Iterator[Outcome]:
    """The outcomes, each as soon as it is there."""
    llm.generate("Hello", max_tokens=4)  # the first request of a process pays for warming up
    for task in TASKS:
        try:
            yield Outcome(task, llm.generate_raw(task.prompt, temperature=0.0, **task.options))
        except StructspecError as error:
            yield Outcome(task, error)
