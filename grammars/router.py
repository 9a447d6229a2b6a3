"""Which backend a constraint goes to, and making backends for a vocabulary, each once."""

from __future__ import annotations

import threading
from typing import Literal, get_args

from structspec.constraint import Constraint, Grammar, JsonSchema
from structspec.errors import InvalidRequest
from structspec.grammars.base import Backend, BackendName
from structspec.grammars.cfg import dialect_of
from structspec.vocabulary import Vocabulary

LibraryName = Literal["llguidance", "xgrammar"]


def route(constraint: Constraint) -> LibraryName:
    """What "auto" means: llguidance, but xgrammar for EBNF and indented JSON."""
    if isinstance(constraint, Grammar) and dialect_of(constraint) == "ebnf":
        return "xgrammar"
    if isinstance(constraint, JsonSchema) and constraint.style == "pretty":
        return "xgrammar"
    return "llguidance"


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

    def get(self, name: BackendName, constraint: Constraint) -> Backend:
        """The backend of that name; "auto" looks at the constraint."""
        library = route(constraint) if name == "auto" else name
        with self._lock:
            if library not in self._made:
                self._made[library] = _make(library, self._vocabulary)
            return self._made[library]


def _make(name: LibraryName, vocabulary: Vocabulary) -> Backend:
    if name == "llguidance":
        from structspec.grammars.llguidance import LLGuidanceBackend

        return LLGuidanceBackend(vocabulary)
    from structspec.grammars.xgrammar import XGrammarBackend  # imports torch: only on first use

    return XGrammarBackend(vocabulary)
