"""The house rules that hold everywhere: folders, links, imports and sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("structspec", "grammars", "kernels", "integrations")
LINKED = ("grammars", "kernels", "integrations")
ENTRANCES = {
    f"structspec.{name}"
    for name in (
        *("llm", "async_llm", "service"),
        *("cli", "demo", "bench", "server", "client", "chat", "__main__"),
    )
}
ENGINE = {"structspec.engine", "structspec.drafters", "structspec.models"}
VALUES = "structspec.engine.batch"  # what flows between the calls; like a value module, for all

SOURCES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if not any(part.is_symlink() for part in (path, *path.parents) if part != ROOT)
)
TEXTS = sorted(
    path
    for pattern in ("*", ".ci/*", "docs/**/*", "examples/**/*", "tests/**/*.py")
    for path in ROOT.glob(pattern)
    if path.is_file() and not path.is_symlink()
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in LINKED:
        parts = ("structspec", *parts)
    return ".".join(parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[str]:
    """Full names this file imports when it runs; `if TYPE_CHECKING:` does not run."""
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))


def is_within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_source = pytest.mark.parametrize("path", SOURCES, ids=by_name)


def test_there_are_sources_to_look_at() -> None:
    assert len(SOURCES) > 15
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} >= {"structspec", "grammars"}


@pytest.mark.parametrize("name", LINKED)
def test_folder_is_reached_through_a_relative_link(name: str) -> None:
    link = ROOT / "structspec" / name
    assert link.is_symlink(), f"{link} must be a link; on a checkout set git's core.symlinks"
    assert str(link.readlink()) == f"../{name}"
    assert (ROOT / name).is_dir()


def test_kernels_is_no_package_of_its_own() -> None:
    assert not (ROOT / "kernels" / "__init__.py").exists()


@every_source
def test_source_is_no_test_and_imports_absolutely(path: Path) -> None:
    assert not path.name.startswith(("test_", "conftest"))
    assert all(imports_of(path)), "imports_of itself refuses relative imports"


@every_source
def test_file_fits_the_limit_of_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@every_source
def test_imports_point_downwards(path: Path) -> None:
    me = module_name(path)
    imported = [name for name in imports_of(path) if name.split(".")[0] == "structspec"]
    for name in imported:
        assert is_within(me, {"structspec.integrations"}) or not is_within(
            name, {"structspec.integrations"}
        ), f"{name}: nothing imports an integration"
        if me == "structspec" or is_within(me, ENTRANCES | {"structspec.integrations"}):
            continue
        assert not is_within(name, ENTRANCES), f"{name} is above {me}"
        if is_within(me, ENGINE) or is_within(name, {VALUES}):
            continue
        assert not is_within(name, ENGINE), f"{name} is above {me}"


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.is_relative_to(ROOT / "grammars")], ids=by_name
)
def test_grammars_know_only_vocabulary_constraint_settings_and_errors(path: Path) -> None:
    allowed = {
        f"structspec.{part}"
        for part in ("vocabulary", "constraint", "settings", "errors", "grammars")
    }
    for name in imports_of(path):
        assert name.split(".")[0] != "torch"
        assert name.split(".")[0] != "structspec" or is_within(name, allowed), name


KERNELS = [p for p in SOURCES if p.is_relative_to(ROOT / "kernels")]


@pytest.mark.skipif(not KERNELS, reason="there are no kernels yet")
def test_kernels_know_only_their_compilers_and_each_other() -> None:
    standard = {"__future__", "collections", "contextlib", "ctypes", "functools", "math", "os"}
    standard |= {"dataclasses", "typing"}
    compilers = {"torch", "triton", "numba", "llvmlite", "numpy"}  # the last three: the CPU's
    allowed = {"structspec.kernels"} | compilers | standard
    for path in KERNELS:
        for name in imports_of(path):
            assert is_within(name, allowed), f"{path.name} imports {name}"


def test_nothing_names_a_machine_path_or_a_registry_host() -> None:
    # Spelled in pieces so that this file does not name them either.
    unwanted = re.compile(
        "|".join(("/" + "work/", "/" + "root/", "py" + "pi\\.", "python" + "hosted"))
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (*SOURCES, *TEXTS)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if unwanted.search(line)
    ]
    assert found == []
