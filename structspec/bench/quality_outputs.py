"""Outputs of a run, kept as JSON lines so that it can be taken up again where it ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from structspec.bench.quality_configurations import Configuration
from structspec.bench.quality_tasks import ExtractionTask
from structspec.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Output:
    """What a model wrote for one task in one configuration.

    `key` tells apart what was asked; `log_prob` is of the whole text under the model's own
    distribution, None until it is known. `num_steps` is None where the output did not finish.
    """

    key: str
    task: str
    configuration: str
    text: str
    token_ids: tuple[int, ...]
    num_steps: int | None
    seconds: float
    error: str | None = None
    log_prob: float | None = None


def output_key(model: str, task: ExtractionTask, configuration: Configuration) -> str:
    """Equal where the same model is asked the same in the same way."""
    asked = [
        model,
        configuration.prompt(task),
        json.dumps(task.schema),
        json.dumps(dict(configuration.options), sort_keys=True),
        configuration.is_free,
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]


class OutputFile:
    """The outputs of a file by key, the last line of each; without a path they are only in memory.

    Every output is on the disk as soon as it is added. A last line that was cut off is ignored.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._outputs: dict[str, Output] = {}
        if path is not None:
            try:
                path.touch()
                lines = path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidRequest(f"cannot read and write {path}: {error}") from error
            self._outputs = {output.key: output for output in _read(lines, path)}

    def get(self, key: str) -> Output | None:
        """The output for a key, if there is one."""
        return self._outputs.get(key)

    def add(self, output: Output) -> None:
        """Keep an output, in place of an earlier one with its key."""
        self._outputs[output.key] = output
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(output)) + "\n")


def _read(lines: list[str], path: Path) -> Iterable[Output]:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            yield Output(**{**row, "token_ids": tuple(row["token_ids"])})
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            if number < len(lines):
                raise InvalidRequest(f"{path}, line {number} is no output: {error}") from error
