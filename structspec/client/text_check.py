"""Finished text against a regex, a grammar or choices, whoever wrote it."""

from __future__ import annotations

from functools import lru_cache

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Choice, Constraint
from structspec.errors import OutputInvalid
from structspec.grammars.base import CompiledGrammar
from structspec.grammars.router import Backends
from structspec.policy import check_report
from structspec.vocabulary import Vocabulary


def check_text(constraint: Constraint, text: str) -> str:
    """The text, if it is one that the constraint allows as a whole; raises OutputInvalid.

    Grammars are compiled for a vocabulary of bytes, once; raises GrammarError for a wrong one, and
    UnsupportedConstraint for one that our own masks only come near.
    """
    if isinstance(constraint, Choice):
        if text in constraint.choices:
            return text
        raise _invalid(text, f"{text!r} is none of {', '.join(map(repr, constraint.choices))}")
    vocabulary = _bytes()
    compiled = _compile(constraint)
    check_report(compiled.report, constraint, "validate")
    matcher = compiled.matcher()
    for place, byte in enumerate(text.encode()):
        if not matcher.accept(byte):
            raise _invalid(text, f"nothing that is allowed goes on at byte {place}: {text!r}")
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    matcher.fill(bitmask, 0)
    allowed = unpack_row(bitmask[0], vocabulary.vocab_size)
    if not any(allowed[token_id] for token_id in vocabulary.stop_token_ids):
        raise _invalid(text, f"it may not end where it does: {text!r}")
    return text


def _invalid(text: str, reason: str) -> OutputInvalid:
    return OutputInvalid(
        f"the output does not follow its constraint: {reason}", text=text, errors=(f"#: {reason}",)
    )


@lru_cache(maxsize=1)
def _bytes() -> Vocabulary:
    return Vocabulary.bytes()


@lru_cache(maxsize=1)
def _backends() -> Backends:
    return Backends(_bytes())


def _compile(constraint: Constraint) -> CompiledGrammar:
    return _compiled(_Keyed(constraint))


class _Keyed:
    """A constraint to remember by its key: some hold dicts, which have no hash."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint

    def __hash__(self) -> int:
        return hash(self.constraint.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.constraint.key == other.constraint.key


@lru_cache(maxsize=64)
def _compiled(keyed: _Keyed) -> CompiledGrammar:
    return _backends().compile("auto", keyed.constraint)
