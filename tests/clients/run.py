"""Real clients against a real server: each library in an environment of its own.

    python tests/clients/run.py [NAME …]

Environments are made once, in .venv-clients, and kept; what they do not have themselves they find
where this interpreter has it. The server is `structspec serve` with SmolLM2 on a free port, ended
again whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".venv-clients"
CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "openai-3": ("openai_client.py", ("openai==3.57.0",)),
    "openai-2": ("openai_client.py", ("openai==2.54.0",)),
    "instructor": ("instructor_client.py", ("instructor==1.17.0",)),
    "pydantic-ai": ("pydantic_ai_client.py", ("pydantic-ai-slim[openai]==2.68.0",)),
    "openai-agents": ("openai_agents_client.py", ("openai-agents==0.24.0",)),
    "litellm": ("litellm_client.py", ("litellm==1.110.2",)),
    "httpx": ("httpx_load.py", ()),  # needs nothing that this interpreter has not
}
RECIPES = {"instructor", "pydantic-ai", "openai-agents", "litellm"}  # of docs/agents.md


def main() -> int:
    names = sys.argv[1:] or list(CLIENTS)
    pythons = {name: prepare(name) for name in names}
    failed = []
    with serving() as url:
        for name in names:
            print(f"== {name}", flush=True)
            runs: list[list[object]] = [[HERE / CLIENTS[name][0], url]]
            if name in RECIPES:
                runs.append([HERE / "recipe.py", name, url])
            if not all(passes(pythons[name], *run) for run in runs):
                failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else f"{len(names)} clients passed")
    return bool(failed)


def passes(python: Path, *arguments: object) -> bool:
    """Whether a script ends well."""
    command = [str(python), *map(str, arguments)]
    return subprocess.run(command, timeout=1200, check=False).returncode == 0


def prepare(name: str) -> Path:
    """The interpreter of a client's environment; this one where no package is needed."""
    if not CLIENTS[name][1]:
        return Path(sys.executable)
    folder, packages = ENVIRONMENTS / name, CLIENTS[name][1]
    python, done = folder / "bin" / "python", folder / ".done"
    behind = "".join(f"{path}\n" for path in (sysconfig.get_paths()["purelib"], ROOT))
    made_of = "\n".join(packages) + f"\n{behind}"
    if not done.exists() or done.read_text() != made_of:
        print(f"setting up {name}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *packages], check=True)
        site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        (site / "zz-structspec.pth").write_text(behind)
        done.write_text(made_of)
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
