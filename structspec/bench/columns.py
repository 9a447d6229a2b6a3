"""What is scored: the router, and beside it each library as it comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from structspec.bench.cases import Case
from structspec.bench.walk import Walker
from structspec.errors import CompileTimeout, GrammarError, InvalidRequest
from structspec.grammars.base import Report
from structspec.vocabulary import Vocabulary

ROUTER = "router"
MODULES = {  # by column: what must be importable
    "llguidance": "llguidance",
    "xgrammar": "xgrammar",
    "outlines": "outlines_core",
    "lm-format-enforcer": "lmformatenforcer",
}
DEFAULT_COLUMNS = (ROUTER, "llguidance", "xgrammar")
_UNSATISFIABLE = re.compile(r"unsatisf|no (finite )?(text|value|instance)", re.IGNORECASE)


class Refused(Exception):
    """A constraint was not taken."""

    @property
    def is_unsatisfiable(self) -> bool:
        """Whether the reason given is that nothing at all satisfies it."""
        return _UNSATISFIABLE.search(str(self)) is not None


@dataclass(frozen=True, slots=True)
class Compiled:
    """A grammar to walk, and what was said about it; a bare library says nothing."""

    matcher: Callable[[], Walker]
    report: Report | None = None


class Subject(Protocol):
    """One column: compiles a case's constraint or raises Refused."""

    def compile(self, case: Case) -> Compiled:
        """Compile; any other exception is a crash."""


class Router:
    """structspec as users have it: the compiler and the backend it chooses."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from structspec.compiler import GrammarCompiler

        # whoever runs this sets the limits; the compiler's own would leave a thread running
        self._compiler = GrammarCompiler(vocabulary, num_threads=1, timeout_s=1e6, cache_size=0)

    def compile(self, case: Case) -> Compiled:
        """Compile through `GrammarCompiler`."""
        try:
            grammar = self._compiler.submit(case.constraint()).result()
        except CompileTimeout:
            raise
        except GrammarError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        return Compiled(grammar.matcher, grammar.report)


def check_columns(names: tuple[str, ...]) -> None:
    """Raise InvalidRequest for a column that does not exist or whose library is missing."""
    for name in names:
        if name != ROUTER and name not in MODULES:
            known = ", ".join((ROUTER, *MODULES))
            raise InvalidRequest(f"there is no backend {name!r} to score; choose among {known}")
        if name != ROUTER and find_spec(MODULES[name]) is None:
            raise InvalidRequest(f"to score {name}, install the package that has {MODULES[name]}")


def make_subject(name: str, vocabulary: Vocabulary) -> Subject:
    """The column of that name, ready to compile for the vocabulary."""
    if name == ROUTER:
        return Router(vocabulary)
    from structspec.bench import bare

    return bare.MAKERS[name](vocabulary)
