"""What is scored: the router, and beside it each library as it comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from structspec.bench.cases import Case
from structspec.bench.walk import Walker
from structspec.constraint import TOO_DEEP
from structspec.errors import GrammarError, InvalidRequest
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
    """structspec: the backend that the router chooses for each constraint.

    Asked directly: the limits here are ours, where `GrammarCompiler` has its own.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from structspec.grammars.router import Backends

        self._backends = Backends(vocabulary)

    def compile(self, case: Case) -> Compiled:
        """Compile with the backend of "auto"."""
        constraint = case.constraint()
        try:
            grammar = self._backends.get("auto", constraint).compile(constraint)
        except GrammarError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        except RecursionError:
            raise Refused(TOO_DEEP) from None
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
