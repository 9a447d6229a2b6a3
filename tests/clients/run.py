"""Real clients against a real server: each library in an environment of its own.

    python tests/clients/run.py [NAME …]

Environments are made once, in .venv-clients, and kept. The server is `structspec serve` with
SmolLM2 on a free port, ended again whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".venv-clients"
CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "openai-3": ("openai_client.py", ("openai==3.57.0",)),
    "openai-2": ("openai_client.py", ("openai==2.54.0",)),
    "instructor": ("instructor_client.py", ("instructor==1.17.0",)),
    "pydantic-ai": ("pydantic_ai_client.py", ("pydantic-ai-slim[openai]==2.68.0",)),
    "openai-agents": ("openai_agents_client.py", ("openai-agents==0.24.0",)),
    "litellm": ("litellm_client.py", ("litellm==1.110.2",)),
}


def main() -> int:
    names = sys.argv[1:] or list(CLIENTS)
    pythons = {name: prepare(name) for name in names}
    failed = []
    with serving() as url:
        for name in names:
            script = HERE / CLIENTS[name][0]
            print(f"== {name}", flush=True)
            command = [str(pythons[name]), str(script), url]
            if subprocess.run(command, timeout=600, check=False).returncode != 0:
                failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else f"{len(names)} clients passed")
    return bool(failed)


def prepare(name: str) -> Path:
    """The interpreter of a client's environment."""
    folder = ENVIRONMENTS / name
    python, done = folder / "bin" / "python", folder / ".done"
    if not done.exists():
        print(f"setting up {name}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *CLIENTS[name][1]], check=True)
        done.touch()
    return python


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    command = [sys.executable, "-m", "structspec", "serve", "smollm2-135m", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stderr is not None
        told = ""
        for line in server.stderr:
            told += line
            if found := re.search(r"is at (http://\S+)", line):
                yield found[1]
                return
        raise RuntimeError(f"the server did not start:\n{told}")
    finally:
        server.terminate()
        server.wait(timeout=60)


if __name__ == "__main__":
    sys.exit(main())
