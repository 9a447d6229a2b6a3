"""Texts end in time whatever somebody has in mind who knows where constraints are long."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from structspec import Choice, JsonSchema, Regex, Tools
from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Constraint, Grammar
from structspec.ending import Endings
from structspec.grammars.scouts import scout_of
from tests.grammars.cases import VOCABULARIES, backend

OF = VOCABULARIES["smollm2"]()
ENDINGS = Endings(OF, 3)
STRING = {"type": "string"}


def record(required: list[str], more: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts, "required": required, **(more or {})}


FOUR = record([*"wxyz"], w=STRING, x=STRING, y=STRING, z=STRING)
HEX = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
WORDS = ["ab", "cd", "ef", "gh" * 40, "ij", "kl", "mn", "op", "qr", "st"]
CHAIN = {
    "$defs": {
        "link": record(
            ["next", *"abcd"],
            next={"anyOf": [{"$ref": "#/$defs/link"}, {"type": "null"}]},
            a=STRING,
            b=STRING,
            c=STRING,
            d=STRING,
        )
    },
    "$ref": "#/$defs/link",
}
# a constraint, and what is written as far as it is allowed
CASES: dict[str, tuple[Constraint, str]] = {
    "a long one of two values": (
        JsonSchema({"enum": ["a", "x" + " word" * 100]}),
        '"x' + " word" * 100,
    ),
    "a long one of many values": (JsonSchema({"enum": WORDS}), '"' + WORDS[3]),
    "a long choice": (Choice(("yes", "no " + "word " * 80)), "no " + "word " * 80),
    "an optional pattern": (
        JsonSchema(record(["n"], n=STRING, h=HEX)),
        '{"n": "' + "word " * 10 + '", "h": "0123456789',
    ),
    "an optional part of a regex": (Regex("[a-z ]*(!b{400})?"), "word " * 20 + "!bbbb"),
    "brackets of a grammar": (
        Grammar('start: term ("+" term)*\nterm: /[0-9]+/ | "(" start ")"'),
        "(" * 400,
    ),
    "a date anywhere in a text": (
        JsonSchema(record(["day"], day={"type": "string", "pattern": r"\d{4}-\d{2}-\d{2}T"})),
        '{"day": "',
    ),
    "one character too many in a pattern": (
        JsonSchema({"type": "string", "pattern": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}.\d{6}"}),
        '"2000-10-10T10:10' + "{" * 40,
    ),
    "brackets of JSON": (JsonSchema({}), "[" * 400),
    "a level that costs more to close than to open": (JsonSchema(CHAIN), '{"next": ' * 100),
    "a key that asks for more than others": (
        JsonSchema(
            record(["id"], {"additionalProperties": {"type": "integer"}}, id=STRING, foo=FOUR)
        ),
        '{"id": "", "foo": {',
    ),
}


@pytest.mark.parametrize("num_spare", [0, 4, 30])
@pytest.mark.parametrize("case", sorted(CASES))
def test_what_is_begun_late_is_not_what_has_no_room(case: str, num_spare: int) -> None:
    constraint, text = CASES[case]
    compiled = backend("smollm2", "llguidance").compile(constraint)
    search = ENDINGS.plan(constraint, 400).search
    scout = scout_of(compiled.matcher(), OF.stop_token_ids)
    shortest = search.find_among(scout, 200)
    assert shortest is not None
    planned = ENDINGS.plan(constraint, len(shortest) + 1 + num_spare)
    matcher, written, random_ = planned.around(compiled.matcher()), [], random.Random(0)
    for token_id in OF.encode_text(text):
        if len(written) == planned.max_tokens or not matcher.accept(token_id):
            break
        written.append(token_id)
    while not set(OF.stop_token_ids) & set(written):
        assert len(written) < planned.max_tokens, OF.decode_bytes(written)
        bitmask = allocate_bitmask(1, OF.vocab_size)
        matcher.fill(bitmask, 0)
        allowed = np.flatnonzero(unpack_row(bitmask[0], OF.vocab_size)).tolist()
        written.append(random_.choice(allowed))
        assert matcher.accept(written[-1])


@pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
def test_a_way_is_found_within_its_own_length_where_it_is_found_letter_by_letter(
    library: str,
) -> None:
    """xgrammar says of no token that it is certain."""
    tool = {"type": "function", "function": {"name": "find", "parameters": FOUR}}
    constraint = Tools([tool], envelope="json", choice="required")
    matcher = backend("smollm2", library).compile(constraint).matcher()
    search = ENDINGS.plan(constraint, 400).search
    scout = scout_of(matcher, OF.stop_token_ids)
    shortest = search.find_among(scout, 200)
    assert shortest is not None
    assert search.find_among(scout, len(shortest)) == shortest
