"""A real `structspec serve` over a model that costs next to nothing: two random layers on bytes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.models.reference import save_tiny_model

NAME = "toy"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n"
)
_READY = re.compile(rf"{NAME} is at (http://\S+)/v1")


@dataclass(frozen=True, slots=True)
class ToyServer:
    """Where it listens, and its process."""

    url: str
    process: subprocess.Popen[str]


def save_toy(folder: Path) -> Path:
    """The model's folder; its context is long enough for real prompts."""
    save_tiny_model(folder, "llama", max_position_embeddings=2048)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@contextlib.contextmanager
def toy_server(folder: Path, *options: str, threads: int = 1) -> Iterator[ToyServer]:
    """Started on a free port, and killed if it still runs at the end."""
    command = [sys.executable, "-m", "structspec", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--served-model-name", NAME, "--device", "cpu", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    assert process.stderr is not None
    try:
        url = _wait_for_url(process.stderr)
        # Read on: who writes into a pipe that is full waits for ever.
        passed_on = threading.Thread(target=sys.stderr.writelines, args=(process.stderr,))
        passed_on.start()
        try:
            yield ToyServer(url, process)
        finally:
            process.kill()
            passed_on.join()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _wait_for_url(lines: IO[str]) -> str:
    said = []
    for line in lines:
        said.append(line)
        if match := _READY.search(line):
            return match[1]
    raise AssertionError(f"the server ended before it listened: {''.join(said)}")
