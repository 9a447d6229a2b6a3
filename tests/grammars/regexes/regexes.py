"""Random regexes, texts and spellings, and how a real matcher judges a terminal."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from llguidance import LLMatcher

from structspec.grammars.regexes.ranges import normalise
from structspec.grammars.regexes.syntax import (
    ANY_CHARACTER,
    EMPTY,
    Regex,
    alternatives,
    both,
    characters,
    complement,
    repeat,
    sequence,
)
from tests.grammars.cases import backend

# each stands for a way of spelling: plain, escaped short, by number, as a pair
ALPHABET = 'ab/"\\\n\x01\x7fé\uffff😀'
TEXTS = st.text(st.sampled_from(ALPHABET), max_size=6)
CLASSES = st.one_of(
    st.sets(st.sampled_from(ALPHABET), min_size=1, max_size=4).map(
        lambda chosen: characters(normalise((ord(c), ord(c)) for c in chosen))
    ),
    st.tuples(st.sampled_from(ALPHABET), st.sampled_from(ALPHABET)).map(
        lambda ends: characters(normalise([(ord(min(ends)), ord(max(ends)))]))
    ),
    st.just(ANY_CHARACTER),
)


def _larger(inner: st.SearchStrategy[Regex]) -> st.SearchStrategy[Regex]:
    two = st.lists(inner, min_size=2, max_size=3)
    counts = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3)])
    return st.one_of(
        two.map(lambda items: sequence(*items)),
        two.map(lambda items: alternatives(*items)),
        st.builds(lambda item, count: repeat(item, *count), inner, counts),
    )


PLAIN = st.recursive(st.one_of(CLASSES, st.just(EMPTY)), _larger, max_leaves=6)
ANY_REGEX = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=2).map(lambda items: both(*items)),
        inner.map(complement),
        _larger(inner),
    ),
    max_leaves=4,
)


@cache
def _terminal(body: str) -> LLMatcher:
    tokenizer = backend("bytes", "llguidance").tokenizer  # type: ignore[attr-defined]
    grammar = LLMatcher.grammar_from_lark(f"start: T\nT: {body}\n")
    return LLMatcher(tokenizer, grammar, log_level=0)


def takes(body: str, text: str) -> bool:
    """Whether llguidance takes exactly this text as a terminal with this body."""
    matcher = _terminal(body).deep_copy()
    data = list(text.encode())
    # a terminal without a match is an error from the start, and takes nothing
    if data and matcher.try_consume_tokens(data) < len(data):
        return False
    return bool(matcher.is_accepting())
