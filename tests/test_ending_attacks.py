"""Ends are found wherever somebody looks for one, soon, and of little that is enough."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from structspec import Choice, JsonSchema, Regex
from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Constraint, Grammar, StructuralTag
from structspec.ending import Endings
from structspec.ending_room import room_of
from structspec.grammars.base import Bitmask, Matcher
from structspec.grammars.scouts import scout_of
from structspec.grammars.wrapping import WrappedMatcher
from tests.grammars.cases import VOCABULARIES, backend

OF = VOCABULARIES["smollm2"]()
ENDINGS = Endings(OF, 3)
LIBRARIES = ("llguidance", "xgrammar")
STRING: dict[str, Any] = {"type": "string"}
LETTERS = {"type": "array", "items": STRING, "minItems": 2}
SQL = r"""start: "SELECT " cols " FROM " NAME where? ";"
cols: NAME (", " NAME)*
where: " WHERE " cond (" AND " cond)*
cond: NAME " = " STR | "EXISTS (" start ")"
NAME: /[a-z_]+/
STR: /'[^']*'/
"""
SUM = """start: expr
expr: factor (("+"|"*") factor)*
factor: NUMBER | "(" expr ")" | NAME "(" expr ("," expr)* ")"
NAME: /[a-z]+/
NUMBER: /[0-9]+/
"""


def record(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts, "required": [*parts]}


def sequence(*elements: Any) -> StructuralTag:
    form = {"type": "sequence", "elements": [*elements]}
    return StructuralTag({"type": "structural_tag", "format": form})


def tag(name: str, content: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": f"<{name}>", "content": content, "end": f"</{name}>"}


PAIR = {"type": "json_schema", "json_schema": record(a=STRING, b=STRING)}
TIMES = {"type": "string", "pattern": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?Z"}
# a constraint, what is written, and how many tokens are enough from there on
CASES: dict[str, tuple[Constraint, str, int]] = {
    "a list that is laid out": (JsonSchema(record(a=LETTERS), style="pretty"), '{\n  "a": [', 20),
    "any list that is laid out": (JsonSchema(True, style="pretty"), '[\n  "x"', 2),
    "lists in lists, laid out": (JsonSchema(True, style="pretty"), "[\n  [\n    [\n      1", 9),
    "free text in a tag": (
        sequence(tag("a", {"type": "any_text"}), tag("b", PAIR)),
        '<a>He said: "no',
        30,
    ),
    "free text of a regex": (Regex(r"(?s)<b>.*</b>"), '<b>some "text', 5),
    "a word anywhere in a text": (Regex(r".*ab+c.*"), "some text", 3),
    "a pattern anywhere in a string": (JsonSchema(record(a=TIMES)), '{"a": "at 12', 24),
    "one of two patterns, the other one missed": (
        JsonSchema(record(a={"type": "string", "pattern": "^x|yy$"})),
        '{"a": "q',
        6,
    ),
    "an address": (Regex(r"[\w.]+@[\w]+\.(com|organisation)"), "", 12),
    "a keyword after a list": (Grammar(SQL), "SELECT a, b", 12),
    "a call that has begun": (Grammar(SUM), "1+(sin", 8),
    "a member that a list contains": (
        JsonSchema({"type": "array", "items": STRING, "contains": {"const": "in it"}}),
        '["x", ',
        6,
    ),
    "a colon in a string": (
        JsonSchema(record(a={"type": "string", "pattern": r"^iglu:[\w.]+/[0-9]+-[0-9]+$"})),
        "",
        16,
    ),
    "a time": (JsonSchema({"type": "string", "format": "date-time"}), "", 24),
    "an address of a machine": (JsonSchema({"type": "string", "format": "ipv6"}), '"', 5),
    "an address of mail": (JsonSchema({"type": "string", "format": "email"}), '"', 6),
    "the shorter of two choices": (Choice(("a" * 500, "no")), "", 2),
}


def matcher_of(library: str, constraint: Constraint, text: str) -> Matcher | None:
    """None where a backend does not write such texts."""
    try:
        matcher = backend("smollm2", library).compile(constraint).matcher()
    except ValueError:
        return None
    return matcher if all(map(matcher.accept, OF.encode_text(text))) else None


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", sorted(CASES))
def test_an_end_is_found_within_what_is_enough(library: str, case: str) -> None:
    constraint, text, enough = CASES[case]
    matcher = matcher_of(library, constraint, text)
    if matcher is None:
        pytest.skip("not written by this backend")
    for limit in (enough, 200):
        search = ENDINGS.plan(constraint, limit + 1).search
        last = text.strip()[-1:].encode()
        found = search.find_among(scout_of(matcher, OF.stop_token_ids), limit, last)
        assert found is not None and len(found) <= limit
        taken = [*found, OF.stop_token_ids[0]]
        assert all(map(matcher.accept, taken)), OF.decode_bytes(found)
        matcher.rollback(len(taken))


class Counting(WrappedMatcher):
    """Counts what it is asked."""

    def __init__(self, inner: Matcher) -> None:
        super().__init__(inner)
        self.num_accepts = self.num_fills = 0

    def accept(self, token_id: int) -> bool:
        self.num_accepts += 1
        return super().accept(token_id)

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        self.num_fills += 1
        super().fill(bitmask, row, budget)


@pytest.mark.parametrize("limit", [20, 90, 1000, 8000])
@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema(
            {"type": "string", "pattern": r"^(x(?=\w*y)[a-z]{9})?[^x]*$", "minLength": 9000}
        ),
        JsonSchema(record(a={"type": "array", "items": STRING, "contains": {"minLength": 3000}})),
        Regex(r"[a-z ]{8500}[^a-z]"),
    ],
    ids=["pattern", "contained", "long"],
)
def test_a_search_in_vain_takes_so_many_steps_and_no_more(
    constraint: Constraint, limit: int
) -> None:
    """However much may be written: others wait for it."""
    inner = matcher_of("llguidance", constraint, "")
    assert inner is not None
    matcher = Counting(inner)
    search = ENDINGS.plan(constraint, 9000).search
    assert search.find_among(scout_of(matcher, OF.stop_token_ids), limit) is None
    assert matcher.num_fills < 200 and matcher.num_accepts < 1_000_000


WALKED: dict[str, Constraint] = {
    "times": JsonSchema(record(a={"type": "string", "format": "date-time"}, z=STRING)),
    "mail": JsonSchema(record(a={"type": "string", "format": "email"}, z=STRING)),
    "anywhere": JsonSchema(record(a=TIMES, b=STRING)),
    "calls": Grammar(SUM),
    "laid out": JsonSchema(True, style="pretty"),
    "long keys": JsonSchema(
        {
            "type": "object",
            "properties": {"x" + "_long_name" * n: STRING for n in range(1, 40)} | {"id": STRING},
            "required": ["id"],
        },
        style="flexible",
    ),
}


@pytest.mark.parametrize("num_spare", [0, 5, 40])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", sorted(WALKED))
def test_what_a_row_allows_has_an_end_behind_it(library: str, case: str, num_spare: int) -> None:
    constraint = WALKED[case]
    bitmask = allocate_bitmask(1, OF.vocab_size)
    for seed in range(5):
        inner = matcher_of(library, constraint, "")
        if inner is None:
            pytest.skip("not written by this backend")
        search, random_ = ENDINGS.plan(constraint, 400).search, random.Random(seed)
        shortest = search.find_among(scout_of(inner, OF.stop_token_ids), 200)
        assert shortest is not None
        planned = ENDINGS.plan(constraint, len(shortest) + 1 + num_spare)
        matcher, written = planned.around(inner), []
        while not set(OF.stop_token_ids) & set(written):
            assert len(written) < planned.max_tokens, OF.decode_bytes(written)
            matcher.fill(bitmask, 0)
            allowed = np.flatnonzero(unpack_row(bitmask[0], OF.vocab_size)).tolist()
            kept = [token_id for token_id in allowed if token_id not in OF.stop_token_ids]
            written.append(random_.choice(kept or allowed))
            assert matcher.accept(written[-1])


def test_what_stands_in_its_own_middle_is_as_long_as_its_shortest_branch() -> None:
    branches = [{"type": "array", "items": {"$ref": "#"}, "minItems": 2}, {"const": "leaf"}]
    room = room_of(JsonSchema({"anyOf": branches}))
    assert room.is_open and room.num_tokens < 64 and room.growth < 64


def test_a_key_that_may_be_begun_counts_with_its_value() -> None:
    schema = {"type": "object", "properties": {"name" * 90: STRING}}
    room = room_of(JsonSchema(schema))
    assert room.growth > 120 and room.num_tokens > 120
