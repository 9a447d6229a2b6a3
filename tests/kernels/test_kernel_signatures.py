"""Triton compiles a kernel's annotations too, which its interpreter does not: hold them to `tl`."""

import ast
from pathlib import Path

import pytest

KERNELS = sorted((Path(__file__).parents[2] / "kernels").glob("*.py"))


def is_jitted(function):
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


@pytest.mark.parametrize("path", KERNELS, ids=[path.stem for path in KERNELS])
def test_kernel_arguments_are_annotated_with_names_of_triton_alone(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and is_jitted(node):
            for argument in node.args.args:
                annotation = argument.annotation and ast.unparse(argument.annotation)
                assert annotation in (None, "tl.tensor", "tl.constexpr"), argument.arg
