"""Which backend a constraint goes to and why, and making backends for a vocabulary, each once."""

from __future__ import annotations

import threading
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal, get_args

from structspec.constraint import Constraint, Grammar, StructuralTag, Tools
from structspec.errors import InvalidRequest
from structspec.grammars.base import Backend, CompiledGrammar
from structspec.grammars.composition import needs_xgrammar
from structspec.settings import BackendName
from structspec.vocabulary import Vocabulary

LibraryName = Literal["llguidance", "xgrammar", "outlines", "lm-format-enforcer"]


def route(constraint: Constraint) -> tuple[LibraryName, str]:
    """The backend that "auto" means for this constraint, and a sentence on why."""
    reason = ""
    if isinstance(constraint, (Grammar, StructuralTag, Tools)):
        reason = needs_xgrammar(constraint)
    if reason:
        return "xgrammar", reason
    return "llguidance", "compiles in milliseconds and was never seen to let invalid output pass"


def choose(name: BackendName, constraint: Constraint) -> tuple[LibraryName, str]:
    """The backend of that name, "auto" looking at the constraint, and why it is the one."""
    return route(constraint) if name == "auto" else (name, "asked for by name")


def check_backend_name(name: str) -> None:
    """Raise InvalidRequest for a backend there is none of."""
    if name not in get_args(BackendName):
        names = ", ".join(get_args(BackendName))
        raise InvalidRequest(f"there is no backend {name!r}; choose one of {names}")


class Backends:
    """The backends of one vocabulary, made on first use; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._made: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def compile(self, name: BackendName, constraint: Constraint) -> CompiledGrammar:
        """Compile with the backend of that name; the report says why it was this one."""
        _, reason = choose(name, constraint)
        compiled = self.get(name, constraint).compile(constraint)
        compiled.report = replace(compiled.report, reason=reason)
        return compiled

    def get(self, name: BackendName, constraint: Constraint) -> Backend:
        """The backend of that name; "auto" looks at the constraint.

        Raises InvalidRequest where its package is not installed.
        """
        library, _ = choose(name, constraint)
        with self._lock:
            if library not in self._made:
                self._made[library] = _make(library, self._vocabulary)
            return self._made[library]


def _make(name: LibraryName, vocabulary: Vocabulary) -> Backend:
    """Imports a library on first use only: xgrammar brings torch, two of them are extras."""
    match name:
        case "llguidance":
            from structspec.grammars.llguidance import LLGuidanceBackend

            return LLGuidanceBackend(vocabulary)
        case "xgrammar":
            from structspec.grammars.xgrammar import XGrammarBackend

            return XGrammarBackend(vocabulary)
        case "outlines":
            _check_installed("outlines_core", name)
            from structspec.grammars.outlines import OutlinesBackend

            return OutlinesBackend(vocabulary)
        case "lm-format-enforcer":
            _check_installed("lmformatenforcer", name)
            from structspec.grammars.lm_format_enforcer import LMFormatEnforcerBackend

            return LMFormatEnforcerBackend(vocabulary)


def _check_installed(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise InvalidRequest(
            f"backend {extra!r} needs a package: pip install 'structspec-sdk[{extra}]'"
        )
