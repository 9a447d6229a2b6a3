"""The tests of each integration, in an environment with the package that it is for.

    python tests/integrations/run.py [NAME …] [-- PYTEST'S OPTIONS]

Environments are made once, in .venv-clients, and kept. What they do not have themselves, torch
above all, they find where this interpreter has it.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".venv-clients"
PACKAGES: dict[str, tuple[str, ...]] = {
    "langchain": (
        *("langchain-core==1.8.3", "langchain-tests==1.1.9", "langchain==1.5.2"),
        *("pytest>=9", "pytest-asyncio"),
    ),
    "llama_index": ("llama-index-core==0.14.25",),
}


def main() -> int:
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    names, options = given[:cut] or list(PACKAGES), given[cut + 1 :]
    failed = [name for name in names if not passes(name, prepare(name), options)]
    print(f"failed: {', '.join(failed)}" if failed else f"{len(names)} integrations passed")
    return bool(failed)


def passes(name: str, python: Path, options: list[str]) -> bool:
    """Run its tests, with the configuration that stands beside them or else the project's."""
    own = HERE / name / "pytest.ini"
    configured = ["-c", str(own)] if own.exists() else []
    print(f"== {name}", flush=True)
    command = [str(python), "-m", "pytest", *configured, "--rootdir", str(ROOT), *options]
    return subprocess.run([*command, str(HERE / name)], cwd=ROOT, check=False).returncode == 0


def prepare(name: str) -> Path:
    """The interpreter of an integration's environment."""
    folder = ENVIRONMENTS / name
    python, done = folder / "bin" / "python", folder / ".done"
    if not done.exists():
        print(f"setting up {name}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *PACKAGES[name]], check=True)
        site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        behind = (sysconfig.get_paths()["purelib"], str(ROOT))
        (site / "zz-structspec.pth").write_text("".join(f"{path}\n" for path in behind))
        done.touch()
    return python


if __name__ == "__main__":
    sys.exit(main())
