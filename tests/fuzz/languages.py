"""All the short texts that a matcher takes, and a model of what it should."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

from hypothesis import strategies as st

from structspec.grammars.base import CompiledGrammar, Matcher
from tests.fuzz.judge import STOP

LETTERS = "ab"
MAX_LENGTH = 6
WORDS = ["".join(w) for n in range(MAX_LENGTH + 1) for w in product(LETTERS, repeat=n)]

Language = frozenset[str]


def language_of(grammar: CompiledGrammar) -> Language:
    """Every text of up to 6 letters that can be written to its end."""
    found: set[str] = set()
    _collect(grammar.matcher(), "", found)
    return frozenset(found)


def _collect(matcher: Matcher, text: str, found: set[str]) -> None:
    if matcher.accept(STOP):
        matcher.rollback(1)
        found.add(text)
    if len(text) < MAX_LENGTH:
        for letter in LETTERS:
            if matcher.accept(ord(letter)):
                _collect(matcher, text + letter, found)
                matcher.rollback(1)


def matched_by(pattern: str) -> Language:
    """What Python's `re` says, with our ASCII classes."""
    compiled = re.compile(pattern, re.ASCII)
    return frozenset(word for word in WORDS if compiled.fullmatch(word))


# Context-free grammars: bodies are nested tuples, so that both dialects can be printed from them


@dataclass(frozen=True)
class Rules:
    """A body for each name; the first is the start."""

    bodies: dict[str, tuple]  # type: ignore[type-arg]

    def lark(self) -> str:
        """As llguidance reads it."""
        names = {name: "start" if name == "s" else name for name in self.bodies}
        return "\n".join(f"{names[n]}: {_print(b, names)}" for n, b in self.bodies.items())

    def ebnf(self) -> str:
        """As xgrammar reads it."""
        names = {name: "root" if name == "s" else name for name in self.bodies}
        return "\n".join(f"{names[n]} ::= {_print(b, names)}" for n, b in self.bodies.items())

    def languages(self) -> dict[str, Language]:
        """The short texts of each rule, as the least fixed point over sets of them."""
        known: dict[str, Language] = {name: frozenset() for name in self.bodies}
        while True:
            larger = {name: _texts(body, known) for name, body in self.bodies.items()}
            if larger == known:
                return known
            known = larger


def _print(body: tuple, names: dict[str, str]) -> str:  # type: ignore[type-arg]
    kind, *parts = body
    match kind:
        case "text":
            return f'"{parts[0]}"'
        case "name":
            return names[parts[0]]
        case "row":
            return " ".join(f"({_print(part, names)})" for part in parts)
        case "or":
            return " | ".join(f"({_print(part, names)})" for part in parts)
        case _:
            return f"({_print(parts[0], names)}){kind}"


def _texts(body: tuple, known: dict[str, Language]) -> Language:  # type: ignore[type-arg]
    kind, *parts = body
    match kind:
        case "text":
            return frozenset(parts)
        case "name":
            return known[parts[0]]
        case "row":
            texts: Language = frozenset(("",))
            for part in parts:
                texts = _joined(texts, _texts(part, known))
            return texts
        case "or":
            return frozenset().union(*(_texts(part, known) for part in parts))
        case _:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1), "{1,2}": (1, 2)}[kind]
            return _repeated(_texts(parts[0], known), low, high)


def _joined(left: Language, right: Language) -> Language:
    return frozenset(a + b for a in left for b in right if len(a + b) <= MAX_LENGTH)


def _repeated(texts: Language, low: int, high: int | None) -> Language:
    found: Language = frozenset(("",)) if low == 0 else texts
    last = found
    for _ in range(MAX_LENGTH if high is None else high - max(low, 0)):
        last = _joined(last, texts)
        found |= last
    return found


_NAMES = ("s", "x", "y")


def _larger(inner: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]
    some = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        some.map(lambda parts: ("row", *parts)),
        some.map(lambda parts: ("or", *parts)),
        st.tuples(st.sampled_from(["*", "+", "?", "{1,2}"]), inner),
    )


_BODIES = st.recursive(
    st.one_of(
        st.tuples(st.just("text"), st.sampled_from(["a", "b", "a", "b", "ab"])),
        st.tuples(st.just("name"), st.sampled_from(_NAMES)),
    ),
    _larger,
    max_leaves=5,
)
RULES = st.fixed_dictionaries({name: _BODIES for name in _NAMES}).map(Rules)
