"""Compares the stand-in, and so what structspec relies on, with a wheel of vLLM's.

    python -m tests.integrations.vllm.check_wheel vllm-0.33.0-….whl …

Every class, method, parameter and annotated field of the stand-in must be in the same file of the
wheel; `self.name = …` of its constructors too. Nothing of the wheel is imported.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

FAKES = Path(__file__).parent / "fakes"
# of the stand-in alone: what a test looks at, and how it makes a request
OWN = {
    "Request.__init__(structured_outputs)",
    "Request.has_ended",
    "StructuredOutputManager._rows",
}
SINCE = {"StructuredOutputBackend.compile_grammar(stop_token_ids)": (0, 33)}
# re-exported there: where they are written
ELSEWHERE = {"vllm/tokenizers/__init__.py": "vllm/tokenizers/registry.py"}


def facts(tree: ast.Module) -> Iterator[str]:
    """Names as `Class.method(parameter)`, `Class.field` and `function(parameter)`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _of_function("", node)
        elif isinstance(node, ast.ClassDef):
            yield node.name
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    yield from _of_function(f"{node.name}.", part)
                elif isinstance(part, ast.AnnAssign):
                    yield f"{node.name}.{ast.unparse(part.target)}"
                elif isinstance(part, ast.Assign):
                    yield from (f"{node.name}.{ast.unparse(name)}" for name in part.targets)


def _of_function(prefix: str, node: ast.FunctionDef) -> Iterator[str]:
    yield f"{prefix}{node.name}"
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.arg != "self":
            yield f"{prefix}{node.name}({argument.arg})"
    if node.name == "__init__":
        for part in ast.walk(node):
            targets = part.targets if isinstance(part, ast.Assign) else []
            if isinstance(part, ast.AnnAssign):
                targets = [part.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    yield f"{prefix}{target.attr}"


def missing(wheel: Path) -> list[str]:
    """What the stand-in has and the wheel has not."""
    version = tuple(int(part) for part in wheel.name.split("-")[1].split(".")[:2])
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for file in sorted(FAKES.rglob("*.py")):
            name = str(file.relative_to(FAKES))
            wanted = list(facts(ast.parse(file.read_text())))
            if not wanted:
                continue
            text = archive.read(ELSEWHERE.get(name, name)).decode()
            there = set(facts(ast.parse(text)))
            found += [
                f"{name}: {fact}"
                for fact in wanted
                if fact not in there | OWN and version >= SINCE.get(fact, (0, 0))
            ]
    return found


def main() -> int:
    for wheel in map(Path, sys.argv[1:]):
        found = missing(wheel)
        print(f"{wheel.name}: {'all is there' if not found else ''}", *found, sep="\n  ")
        if found:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
