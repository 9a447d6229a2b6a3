"""What is kept of an ending while its text goes on ends that text."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from structspec import JsonSchema
from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Constraint, Tools
from structspec.ending import Endings
from structspec.ending_branches import hangs_on_values
from structspec.ending_matcher import TimelyMatcher
from structspec.grammars.base import Matcher
from structspec.grammars.scouts import scout_of
from tests.grammars.cases import VOCABULARIES, backend

OF = VOCABULARIES["smollm2"]()
ENDINGS = Endings(OF, 3)
STRING: dict[str, Any] = {"type": "string", "maxLength": 12}
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 8, "maximum": 15000}
TEAM: dict[str, Any] = {"enum": ["Sales", "Support", "Finance", "Some other"]}


def record(**parts: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": parts,
        "required": [*parts],
        "additionalProperties": False,
    }


def tagged(**parts: Any) -> dict[str, Any]:
    return {"anyOf": [record(kind={"const": kind}, **{kind: part}) for kind, part in parts.items()]}


PERSON = record(name=STRING, number=NUMBER, team=TEAM, active={"type": "boolean"})
CASES: dict[str, Constraint] = {
    "records": JsonSchema(
        record(people={"type": "array", "items": PERSON, "minItems": 2, "maxItems": 6})
    ),
    "optional": JsonSchema(
        {
            "type": "object",
            "properties": {
                "a": {"anyOf": [STRING, {"type": "null"}]},
                "b": {"type": "array", "items": NUMBER, "maxItems": 4},
                "c": PERSON,
            },
            "required": ["a"],
        }
    ),
    "tagged": JsonSchema(
        record(
            items={
                "type": "array",
                "items": tagged(cat=STRING, category=NUMBER, dog=record(a=STRING, b=STRING)),
                "minItems": 1,
                "maxItems": 6,
            }
        )
    ),
    "patterns": JsonSchema(
        record(
            date={"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
            code={"type": "string", "pattern": "^(ab)*c$"},
            mail={"type": "string", "format": "email"},
            rest=STRING,
        )
    ),
    "maps": JsonSchema({"type": "object", "additionalProperties": {"enum": ["x", "yy", 5]}}),
    "pretty": JsonSchema(record(people={"type": "array", "items": PERSON}), style="pretty"),
    "tools": Tools(
        [
            {"name": "weather", "parameters": record(city=STRING)},
            {"name": "weather_map", "parameters": record(city=STRING, zoom=NUMBER)},
        ],
        choice="required",
    ),
}


def allowed(matcher: Matcher) -> list[int]:
    bitmask = allocate_bitmask(1, OF.vocab_size)
    matcher.fill(bitmask, 0)
    return np.flatnonzero(unpack_row(bitmask[0], OF.vocab_size)).tolist()


def choose(random_: random.Random, choices: list[int], matcher: TimelyMatcher) -> int:
    """Text more often than what closes; now and then as the ending goes on."""
    place = matcher._place
    if place is not None and place.ending and random_.random() < 0.3:
        return place.ending[0] if place.ending[0] in choices else random_.choice(choices)
    text = [i for i in choices if OF.is_text(i) and (OF.token_bytes[i] or b"").isalnum()]
    return random_.choice(text if text and random_.random() < 0.7 else choices)


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_of_an_ending_ends_the_text(case: str) -> None:
    assert sum(count_kept(case, random.Random(seed)) for seed in range(20)) > 50


def count_kept(case: str, random_: random.Random) -> int:
    """How many endings were looked at while a text was written, all of them well."""
    max_tokens = random_.choice([70, 110, 180])
    planned = ENDINGS.plan(CASES[case], max_tokens)
    assert planned is not None
    matcher = planned.around(backend("smollm2", "llguidance").compile(CASES[case]).matcher())
    num_seen = 0
    for num_taken in range(max_tokens):
        choices = allowed(matcher)
        token_id = choose(random_, choices, matcher)
        drafted = [token_id] if random_.random() < 0.8 else []
        for _ in drafted:  # as a draft that is taken back
            assert matcher.accept(token_id)
            matcher.rollback(1)
        assert matcher.accept(token_id)
        if token_id in OF.stop_token_ids:
            break
        place = matcher._place
        if place is not None and place.ending is not None and not place.is_unsure:
            num_seen += 1
            scout = scout_of(matcher.inner, OF.stop_token_ids)
            assert scout.ends_with(place.ending), (num_taken, OF.token_bytes[token_id])
    else:
        pytest.fail("the text did not end in time")
    return num_seen


@pytest.mark.parametrize(
    ("schema", "hangs"),
    [
        (PERSON, False),
        ({"type": "array", "items": PERSON}, False),
        (record(a={"anyOf": [STRING, {"type": "null"}]}), False),
        (
            record(a={"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]})
            | {"$defs": {"P": PERSON}},
            False,
        ),
        (record(a={"anyOf": [{"$ref": "#/$defs/P"}, {"$ref": "#/$defs/Q"}]}), True),
        (tagged(a=STRING, b=STRING), True),
        (record(a={"enum": ["x", {"y": 1}]}), True),
        (record(a={"oneOf": [PERSON, {"type": ["object", "null"]}]}), True),
        ({"type": "array", "items": STRING, "contains": {"const": "x"}}, True),
        (
            PERSON | {"if": {"properties": {"name": {"const": "x"}}}, "then": {"required": ["y"]}},
            True,
        ),
        ({"type": "array", "items": STRING, "uniqueItems": True}, True),
        (True, False),
    ],
)
def test_it_is_told_whether_what_follows_hangs_on_what_a_value_says(
    schema: Any, hangs: bool
) -> None:
    assert hangs_on_values(schema) is hangs
