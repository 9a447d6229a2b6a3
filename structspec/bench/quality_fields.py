"""Fields of generated extraction tasks: their schema, how a value is drawn, and how a text says it.

A sentence holds `{}` where the value goes; of several sentences one is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

_FIRST_DAY = date(2023, 1, 1)
_NUM_DAYS = 1000


@dataclass(frozen=True, slots=True)
class Field:
    """One property: `draw` gives a value and the sentence that says it."""

    name: str
    schema: Mapping[str, Any]
    draw: Callable[[Random], tuple[Any, str]]


def text(name: str, values: Sequence[str], *sentences: str) -> Field:
    """A free string."""
    return _drawn(name, {"type": "string"}, lambda rng: rng.choice(values), str, sentences)


def one_of(name: str, values: Sequence[str], *sentences: str) -> Field:
    """An enum."""
    schema = {"type": "string", "enum": list(values)}
    return _drawn(name, schema, lambda rng: rng.choice(values), str, sentences)


def whole(name: str, low: int, high: int, *sentences: str) -> Field:
    """An integer."""
    return _drawn(name, {"type": "integer"}, lambda rng: rng.randint(low, high), str, sentences)


def amount(name: str, low: int, high: int, *sentences: str) -> Field:
    """A number, said with two places as prices are."""
    schema = {"type": "number"}
    return _drawn(
        name,
        schema,
        lambda rng: rng.randint(low * 20, high * 20) / 20,
        lambda value: f"{value:.2f}",
        sentences,
    )


def day(name: str, *sentences: str) -> Field:
    """A date; every third is said in words."""
    schema = {"type": "string", "format": "date"}

    def draw(rng: Random) -> tuple[str, str]:
        value = _FIRST_DAY + timedelta(days=rng.randrange(_NUM_DAYS))
        in_words = f"{value.day} {value:%B %Y}" if rng.random() < 1 / 3 else value.isoformat()
        return value.isoformat(), rng.choice(sentences).format(in_words)

    return Field(name, schema, draw)


def flag(name: str, if_true: str, if_false: str) -> Field:
    """A boolean, with one sentence for either."""

    def draw(rng: Random) -> tuple[bool, str]:
        value = rng.random() < 0.5
        return value, if_true if value else if_false

    return Field(name, {"type": "boolean"}, draw)


def several(name: str, values: Sequence[str], *sentences: str) -> Field:
    """A list of two or three strings."""
    schema = {"type": "array", "items": {"type": "string"}}
    return _drawn(
        name,
        schema,
        lambda rng: rng.sample(values, rng.randint(2, 3)),
        lambda chosen: f"{', '.join(chosen[:-1])} and {chosen[-1]}",
        sentences,
    )


def nested(name: str, members: Sequence[Field], sentence: str) -> Field:
    """An object; the sentence holds `{member}` for each, the members' own sentences are `{}`."""
    schema = object_schema(members)

    def draw(rng: Random) -> tuple[dict[str, Any], str]:
        drawn = {member.name: member.draw(rng) for member in members}
        said = sentence.format(**{key: words for key, (_, words) in drawn.items()})
        return {key: value for key, (value, _) in drawn.items()}, said

    return Field(name, schema, draw)


def object_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """An object that requires all of these, and says nothing of others."""
    return {
        "type": "object",
        "properties": {field.name: dict(field.schema) for field in fields},
        "required": [field.name for field in fields],
    }


def _drawn(
    name: str,
    schema: Mapping[str, Any],
    draw_value: Callable[[Random], Any],
    say: Callable[[Any], str],
    sentences: Sequence[str],
) -> Field:
    def draw(rng: Random) -> tuple[Any, str]:
        value = draw_value(rng)
        return value, rng.choice(sentences).format(say(value))

    return Field(name, schema, draw)
