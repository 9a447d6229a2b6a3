"""The run: every task in every configuration, then how likely the model finds what it wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress

from structspec.bench.quality_configurations import Configuration
from structspec.bench.quality_outputs import Output, OutputFile, output_key
from structspec.bench.quality_scorer import Scorer
from structspec.bench.quality_tasks import ExtractionTask
from structspec.config import EngineConfig
from structspec.errors import GenerationError
from structspec.llm import LLM
from structspec.speculative_config import SpeculativeConfig

MAX_TOKENS = 128  # the longest right answer, indented, has 88

Asked = tuple[ExtractionTask, Configuration]


def run_quality(
    model: str,
    tasks: Sequence[ExtractionTask],
    configurations: Sequence[Configuration],
    file: OutputFile,
    speculative: SpeculativeConfig,
) -> dict[str, list[Output]]:
    """The outputs of each configuration, in the order of the tasks; those in the file are reused.

    One request at a time and all configurations of a task in a row: a machine that changes speed
    under the run changes it for all of them.
    """
    pairs = list(_in_turn(tasks, configurations))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        writing = progress.add_task("writing", total=len(pairs))
        for _ in _write_missing(model, pairs, file, speculative):
            progress.advance(writing)
        scoring = progress.add_task("scoring", total=len(pairs))
        for _ in _score_missing(model, pairs, file):
            progress.advance(scoring)
    return {
        configuration.name: [_output(model, (task, configuration), file) for task in tasks]
        for configuration in configurations
    }


def _in_turn(
    tasks: Sequence[ExtractionTask], configurations: Sequence[Configuration]
) -> Iterator[Asked]:
    """All pairs; each task starts with another configuration, so that none is always first."""
    for index, task in enumerate(tasks):
        turn = index % len(configurations)
        for configuration in (*configurations[turn:], *configurations[:turn]):
            yield task, configuration


def _output(model: str, asked: Asked, file: OutputFile) -> Output:
    output = file.get(output_key(model, *asked))
    assert output is not None
    return output


def _write_missing(
    model: str, pairs: Sequence[Asked], file: OutputFile, speculative: SpeculativeConfig
) -> Iterator[None]:
    missing = [asked for asked in pairs if file.get(output_key(model, *asked)) is None]
    yield from [None] * (len(pairs) - len(missing))
    if not missing:
        return
    # what one configuration reads must not make the next one quicker
    config = EngineConfig(enable_prefix_caching=False, speculative=speculative)
    with LLM(model, config=config) as llm:
        llm.generate("Hello", max_tokens=4)  # the first request of a process pays for warming up
        for task, configuration in missing:
            key = output_key(model, task, configuration)
            file.add(write_output(llm, task, configuration, key))
            yield None


def write_output(
    llm: LLM, task: ExtractionTask, configuration: Configuration, key: str = ""
) -> Output:
    """Let the model do one task; what does not finish keeps its text and says why."""
    prompt, arguments = configuration.prompt(task), configuration.arguments(task)
    if arguments:
        arguments["max_attempts"] = 1
    start = time.perf_counter()
    result = llm.generate_raw(
        prompt, temperature=0.0, max_tokens=MAX_TOKENS, return_errors=True, **arguments
    )
    seconds = time.perf_counter() - start
    if isinstance(result, GenerationError):
        return Output(key, task.id, configuration.name, result.text, (), None, seconds, str(result))
    if isinstance(result, Exception):
        raise result
    return Output(
        key,
        task.id,
        configuration.name,
        result.text,
        result.token_ids,
        result.stats.num_target_steps,
        seconds,
    )


def _score_missing(model: str, pairs: Sequence[Asked], file: OutputFile) -> Iterator[None]:
    missing = [asked for asked in pairs if _output(model, asked, file).log_prob is None]
    yield from [None] * (len(pairs) - len(missing))
    if not missing:
        return
    scorer = Scorer(model)
    for prompt, output in sorted(  # equal prompts in a row: one is read once
        (
            (configuration.prompt(task), _output(model, (task, configuration), file))
            for task, configuration in missing
        ),
        key=lambda pair: pair[0],
    ):
        token_ids = output.token_ids or scorer.encode(output.text)
        log_prob = scorer.log_prob(prompt, token_ids)
        file.add(replace(output, token_ids=token_ids, log_prob=log_prob))
        yield None
