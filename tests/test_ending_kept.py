"""What is kept of an ending while its text goes on ends that text."""

from __future__ import annotations

import random
from dataclasses import replace
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
from structspec.grammars.router import Backends
from structspec.grammars.scouts import scout_of
from structspec.vocabulary import Vocabulary
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


def allowed(matcher: Matcher, of: Vocabulary = OF) -> list[int]:
    bitmask = allocate_bitmask(1, of.vocab_size)
    matcher.fill(bitmask, 0)
    return np.flatnonzero(unpack_row(bitmask[0], of.vocab_size)).tolist()


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


UUID = {"type": "string", "format": "uuid"}
OTHERS = {"Z": {"enum": ["name", "x"]}}  # their values are tried wherever a string stands


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (JsonSchema(record(a=STRING, b=record(c=STRING)), property_order="any"), '{"b": {"c'),
        (JsonSchema(record(b=record(c=STRING), a=NUMBER), property_order="any"), '{"a": 12'),
        (
            JsonSchema(
                record(a=record(name=STRING, x=STRING), b={"properties": {"y": PERSON, "x": {}}})
            ),
            '{"a": {"name": "", "x": ""}, "b": {"x": 5',
        ),
        (JsonSchema(record(a={"type": "string", "pattern": "^(10|200)$"})), '{"a": "200'),
        (JsonSchema(record(a={"type": "string", "pattern": "^[0-9]{3}x?$"})), '{"a": "123'),
        (JsonSchema(record(a=UUID)), '{"a": "24420139-9271-9999'),
        (JsonSchema(record(a={"enum": [14, 21, 244]})), '{"a": 244'),
        (JsonSchema({"enum": [14, 21, 244]}), "244"),
        (JsonSchema({"type": "integer", "minimum": 10, "multipleOf": 7}), "245"),
        (JsonSchema(record(a={"type": "string"}, **OTHERS)), '{"a": "x\\name\\\\n", "Z": "x'),
        (JsonSchema({"type": "string", "minLength": 3}), '"\\t\\u00e9\\"\\\\x'),
    ],
)
def test_what_is_kept_is_asked_about_where_a_text_looks_like_another(
    constraint: JsonSchema, text: str
) -> None:
    """Keys, digits in strings and what is behind a backslash are not values of their own."""
    of = VOCABULARIES["bytes"]()
    planned = Endings(of, 3).plan(constraint, 900)
    assert planned is not None
    planned = replace(planned, first=0, wrap_at=0)
    drafting = planned.around(backend("bytes", "llguidance").compile(constraint).matcher())
    for num_drafted in (1, 2, 5):
        drafting.rollback(drafting._num_taken)
        for token_id in text.encode():
            if drafting._num_taken % num_drafted == 0:  # looked for behind some tokens only
                drafting._next_look = min(drafting._next_look, drafting._num_taken + num_drafted)
            assert drafting.accept(token_id)
            place = drafting._place
            if place is None or place.ending is None or place.is_unsure:
                continue
            assert scout_of(drafting.inner, of.stop_token_ids).ends_with(place.ending), place


DIGITS = {"type": "integer", "minimum": 1, "maximum": 99}
SPELLED: dict[str, tuple[Constraint, bytes]] = {
    "what is left of blanks": (
        JsonSchema(record(a=record(b=DIGITS), c=STRING), style="pretty"),
        b'{\n  "a": {\n    "b": 8\n',
    ),
    "what is behind the last digit": (
        JsonSchema(record(a=DIGITS, b=STRING)),
        b'{"a": 16',
    ),
    "what is behind one of some words": (
        JsonSchema(record(a={"enum": ["x", "xy"]}, b=STRING)),
        b'{"a": "xy',
    ),
}


@pytest.mark.parametrize("num_spare", range(5))
@pytest.mark.parametrize("case", SPELLED)
def test_an_ending_is_spelled_as_it_may_be(case: str, num_spare: int) -> None:
    """Where text is forced there is one way to write it, which may be none of few tokens."""
    longer = [b"  ", b"\n  ", b"\n    ", b'": ', b'"\n', b"},", b", ", b', "', b'", "', b'"}']
    tokens = [*(bytes([byte]) for byte in range(256)), *longer, None]
    of = Vocabulary((*tokens,), (len(tokens) - 1,), lambda text: [*text.encode()])
    constraint, text = SPELLED[case]
    compiled = Backends(of).get("llguidance", constraint).compile(constraint)
    endings = Endings(of, 3)
    scout = scout_of(compiled.matcher(), of.stop_token_ids)
    shortest = endings.plan(constraint, 900).search.find_among(scout, 400)
    planned = endings.plan(constraint, len(shortest) + 1 + num_spare)
    matcher, random_ = planned.around(compiled.matcher()), random.Random(num_spare)
    written = [token_id for token_id in text if matcher.accept(token_id)]
    while not set(of.stop_token_ids) & set(written):
        assert len(written) < planned.max_tokens, of.decode_bytes(written)
        written.append(random_.choice(allowed(matcher, of)))
        assert matcher.accept(written[-1])


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
