"""What the command line names: files, stdin, schemas and Python types."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from structspec.errors import InvalidRequest

_JSON = re.compile(r'\s*(?:[\[{"]|(?:true|false|null|-?\d[\d.eE+-]*)\s*$)')
_MARK = "\ufeff"  # Windows editors write it before text


def read_file(path: str | Path) -> str:
    """A file's text, or that of stdin for `-`; InvalidRequest where there is none."""
    if path == "-":
        return read_stdin()
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"cannot read {path}: it is not UTF-8 text") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(f"cannot read {path}: {reason}") from error


def read_stdin() -> str:
    """All that comes on stdin; InvalidRequest where nothing can."""
    if sys.stdin is None:  # closed by whoever started us
        raise InvalidRequest("cannot read -: stdin is closed")
    try:
        text = sys.stdin.read()
        text.encode()  # in some locales what is no UTF-8 comes as halves of surrogate pairs
    except UnicodeError as error:
        raise InvalidRequest("cannot read -: it is not UTF-8 text") from error
    except OSError as error:
        raise InvalidRequest(f"cannot read -: {error.strerror}") from error
    return text.removeprefix(_MARK)


def load_schema(text: str) -> Any:
    """A schema from a file, from JSON text, or a Python type from `package.module:Name`."""
    if not text.strip():
        raise InvalidRequest("the schema is empty; give a file, JSON text or package.module:Name")
    is_file = _exists(text)
    if _JSON.match(text) and not is_file:
        return text
    module, colon, name = text.partition(":")
    if colon and not is_file:
        return load_type(module, name)
    if not is_file and re.fullmatch(r"[\w.]+\.[A-Z]\w*", text):
        module, _, name = text.rpartition(".")
        raise InvalidRequest(
            f"there is no file {text}; a Python type is written with a colon: {module}:{name}"
        )
    return read_file(text)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def load_type(module_name: str, name: str) -> Any:
    """Import a type; the current folder is searched too, as `python -m` does.

    Raises InvalidRequest whatever goes wrong in the module that is imported.
    """
    if not all(part.isidentifier() for part in f"{module_name}.{name}".split(".")):
        raise InvalidRequest(
            f"{module_name}:{name} is no file and no Python type, which is package.module:Name"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        reason = (
            str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        )
        raise InvalidRequest(f"{module_name}:{name}: {reason}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidRequest(f"{module_name} has no {name!r}")
        found = getattr(found, part)
    return found
