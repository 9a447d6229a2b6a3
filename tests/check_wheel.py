"""Build the wheel, look inside, import it in a clean environment: `python tests/check_wheel.py`.

The environment holds the wheel and nothing else, so that whatever `import structspec` needs beyond
the standard library shows up here; the rest runs against the packages of this environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

BARE = """
import importlib.metadata, pathlib, sys
import structspec
assert ".clean" in structspec.__file__, structspec.__file__
assert importlib.metadata.version("structspec-sdk") == structspec.__version__
assert not {"torch", "numpy", "pydantic"} & set(sys.modules)
assert structspec.JsonSchema({"type": "string"}).key
"""

WITH_PACKAGES = """
import pkgutil
import structspec, structspec.grammars.base, structspec.schema, structspec.cli
assert ".clean" in structspec.cli.__file__, structspec.cli.__file__
from structspec import GrammarCompiler, LLM
"""


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command away from the checkout, so that nothing is imported from there by accident."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built with the setuptools at hand: no network.

    Built from a copy: a `build/` left over in the checkout would smuggle deleted files in.
    """
    source = folder / "source"
    unneeded = shutil.ignore_patterns(".git", ".venv", ".*_cache", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, source, symlinks=True, ignore=unneeded)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source, cwd=folder)
    return next(folder.glob("*.whl"))


def check_contents(wheel: Path) -> None:
    """Everything from the four folders is inside, and no top-level package but `structspec`."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    top_level = {name.split("/")[0] for name in inside if ".dist-info/" not in name}
    assert top_level == {"structspec"}, top_level
    wanted = {
        path.relative_to(ROOT).as_posix()
        for pattern in ("**/*.py", "**/*.lark", "**/py.typed", "server/playground/assets/*")
        for path in (ROOT / "structspec").glob(pattern)
    }
    for folder in ("grammars", "kernels", "integrations"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".lark"):
                wanted.add(f"structspec/{path.relative_to(ROOT).as_posix()}")
    assert not wanted - inside, f"missing from the wheel: {sorted(wanted - inside)}"
    assert any(name.endswith("LICENSE") for name in inside)


def make_environment(folder: Path, wheel: Path) -> Path:
    """A virtual environment with this wheel alone; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    return python


def main() -> None:
    with tempfile.TemporaryDirectory(suffix=".clean") as name:
        folder = Path(name).resolve()
        wheel = build_wheel(folder)
        check_contents(wheel)
        python = make_environment(folder / "venv", wheel)
        run(python, "-c", BARE, cwd=folder)
        run(folder / "venv" / "bin" / "structspec", "--version", cwd=folder)
        # A path file appends: the wheel's own copy keeps its precedence over this checkout.
        site = next((folder / "venv" / "lib").glob("python3*")) / "site-packages"
        (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
        run(python, "-c", WITH_PACKAGES, cwd=folder)
        print(f"{wheel.name}: built, complete, and imported in a clean environment")


if __name__ == "__main__":
    main()
