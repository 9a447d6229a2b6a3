"""Whatever xgrammar's matchers let be written of a regex, the regex matches.

Left to itself its automaton takes `bbb` for `b|bb?` and surrogates for `[^a]`.
"""

from __future__ import annotations

import random
import re

import pytest

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Grammar, Regex, StructuralTag
from structspec.grammars.xgrammar import XGrammarBackend
from structspec.vocabulary import Vocabulary

VOCABULARY = Vocabulary.bytes()
BACKEND = XGrammarBackend(VOCABULARY)
CLASSES = (
    *("[^a]", r"[^ab\n]", ".", r"\d", r"\w", "[a-c]", r"\S", "é", "[é-漢]"),
    *(r"\n", r"\t", '"', r"\\", r"[^\x00]", r"[\x00-a]", "[^é]"),
)
LIKELY = frozenset(b'abc0"\\\n')


def random_regex(source: random.Random, depth: int = 3) -> str:
    def part() -> str:
        return random_regex(source, depth - 1)

    match source.randrange(9 if depth else 4):
        case 0:
            return source.choice("abc0")
        case 1:
            return source.choice(CLASSES)
        case 2:
            return source.choice("ab") + source.choice("ab")
        case 3:
            return source.choice(["a?", "b*", "(ab)+", "c{1,3}", "[ab]{2}"])
        case 4:
            return part() + part()
        case 5:
            return f"(?:{part()}|{part()})"
        case 6:
            return f"(?:{part()})?"
        case 7:
            return f"(?:{part()}){source.choice(['*', '+', '{0,2}', '{1,3}'])}"
        case _:
            return part() + source.choice(["", "a"]) + part()


def quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'


def as_grammar(pattern: str) -> Grammar:
    escaped = "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in quoted(pattern))
    return Grammar(f"root ::= Regex({escaped})")


def as_tag(pattern: str) -> StructuralTag:
    return StructuralTag(
        {"type": "structural_tag", "format": {"type": "regex", "pattern": pattern}}
    )


def written(matcher, source: random.Random, limit: int = 40) -> str | None:
    """A text that may end there; None where it got too long."""
    text = bytearray()
    bitmask = allocate_bitmask(1, VOCABULARY.vocab_size)
    for _ in range(limit):
        matcher.fill(bitmask, 0)
        allowed = unpack_row(bitmask[0], VOCABULARY.vocab_size).nonzero()[0].tolist()
        assert allowed, bytes(text)
        going_on = [token for token in allowed if token not in VOCABULARY.stop_token_ids]
        if len(going_on) < len(allowed) and (not going_on or source.random() < 0.3):
            return text.decode()  # a UnicodeDecodeError: what stands there is no text
        likely = [token for token in going_on if token in LIKELY]
        token = source.choice(likely if likely and source.random() < 0.7 else going_on)
        assert matcher.accept(token)
        text.append(token)
    return None


@pytest.mark.parametrize("as_constraint", [Regex, as_grammar, as_tag])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_matches(as_constraint, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(15):
        pattern = random_regex(source)
        if as_constraint is not Regex and "\\x00" in pattern:
            continue  # NUL is no text of a grammar
        grammar = BACKEND.compile(as_constraint(pattern))
        # digits and letters are ASCII, as in JSON Schema
        reference = re.compile(pattern.replace(r"\d", "[0-9]").replace(r"\w", "[a-zA-Z0-9_]"))
        for _ in range(3):
            text = written(grammar.matcher(), source)
            assert text is None or reference.fullmatch(text), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "is_matched"),
    [
        ("b|bb?", "bbb", False),
        ("b|bb?", "bb", True),
        ("a(b0{1,3})?", "a0", False),
        ("a(b0{1,3})?", "ab00", True),
        ("(ab?)*", "abaab", True),
    ],
)
@pytest.mark.parametrize("as_constraint", [Regex, as_grammar, as_tag])
def test_what_the_librarys_own_automaton_takes_wrongly(
    as_constraint, pattern: str, text: str, is_matched: bool
) -> None:
    matcher = BACKEND.compile(as_constraint(pattern)).matcher()
    stop = VOCABULARY.stop_token_ids[0]
    assert all(map(matcher.accept, [*text.encode(), stop])) is is_matched
