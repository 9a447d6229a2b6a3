"""`import structspec`: light, complete, and the only public page."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import structspec
from structspec import errors


def test_every_listed_name_exists() -> None:
    for name in structspec.__all__:
        assert getattr(structspec, name) is not None


def test_list_is_sorted_and_without_duplicates() -> None:
    assert list(structspec.__all__) == sorted(set(structspec.__all__))


def test_every_public_attribute_is_listed() -> None:
    for name, value in vars(structspec).items():
        is_own_work = getattr(value, "__module__", "").startswith("structspec")
        if not name.startswith("_") and is_own_work and not inspect.ismodule(value):
            assert name in structspec.__all__


def test_every_error_is_exported() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == "structspec.errors"
    }
    assert defined <= set(structspec.__all__)


def test_lazy_names_are_the_objects_of_their_modules() -> None:
    for name, module in structspec._LAZY.items():
        assert getattr(structspec, name) is getattr(importlib.import_module(module), name)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Person'"):
        structspec.Person  # noqa: B018


def test_dir_shows_what_is_public() -> None:
    assert set(structspec.__all__) <= set(dir(structspec))


def test_plain_import_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, structspec; print({'torch', 'transformers', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
