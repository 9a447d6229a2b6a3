"""Texts end within the tokens that there are, whatever is written before."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import LLM, JsonSchema, Regex, Tools, Truncated
from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Constraint, Grammar, StructuralTag
from structspec.ending import Endings, EndInTime
from structspec.ending_room import room_of
from structspec.grammars.base import FillJob, Matcher
from structspec.grammars.scouts import Scout, scout_of
from structspec.grammars.wrapping import WrappedMatching
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import VOCABULARIES, backend
from tests.server.toy import save_toy

STRING = {"type": "string"}
PAIR = {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a", "b"]}
TREE = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "value": STRING,
                "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
            "required": ["value", "kids"],
        }
    },
    "$ref": "#/$defs/tree",
}
OPTIONAL = {
    "type": "object",
    "properties": {
        "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "code": {"type": "string", "pattern": "^[a-z]+@[0-9]{3}$"},
        "more": {"type": "array", "items": PAIR, "minItems": 2},
        "size": {"type": "number", "minimum": 18},
    },
    "required": ["when", "size"],
}
SCHEMAS: dict[str, Any] = {
    "pair": PAIR,
    "tree": TREE,
    "optional": OPTIONAL,
    "list": {
        "type": "array",
        "items": {"anyOf": [PAIR, {"type": "integer"}, {"enum": ["x", "xy"]}]},
    },
    "map": {"type": "object", "additionalProperties": STRING, "minProperties": 2},
    "long": {
        "type": "array",
        "items": {"type": "string", "minLength": 3, "maxLength": 9},
        "minItems": 2,
    },
    "any": {},
}
TOOL = {"type": "function", "function": {"name": "find", "parameters": PAIR}}
CASES: dict[str, Constraint] = {
    **{name: JsonSchema(schema) for name, schema in SCHEMAS.items()},
    "pair-compact": JsonSchema(PAIR, style="compact"),
    "pair-flexible": JsonSchema(PAIR, style="flexible"),
    "tree-pretty": JsonSchema(TREE, style="pretty"),
    "date": Regex(r"(\d{4}-\d\d-\d\d,?)+"),
    "sum": Grammar('start: term ("+" term)*\nterm: /[0-9]+/ | "(" start ")"'),
    "call": Tools([TOOL], choice="required"),
    "call-or-answer": Tools([TOOL], response=JsonSchema(PAIR)),
    "tag": StructuralTag(
        {
            "type": "structural_tag",
            "format": {
                "type": "tag",
                "begin": "<a>",
                "content": {"type": "json_schema", "json_schema": PAIR},
                "end": "</a>",
            },
        }
    ),
}
NAMES = ("bytes", "smollm2")


def vocabulary(name: str) -> Vocabulary:
    return VOCABULARIES[name]()


@cache
def matching(name: str, case: str) -> Any:
    return backend(name, "llguidance").compile(CASES[case])


@cache
def endings(name: str) -> Endings:
    return Endings(vocabulary(name), 3)


def scout(name: str, matcher: Matcher) -> Scout:
    return scout_of(matcher, vocabulary(name).stop_token_ids)


def plan_of(name: str, case: str, max_tokens: int = 400) -> EndInTime:
    planned = endings(name).plan(CASES[case], max_tokens)
    assert planned is not None
    return planned


def plan(name: str, case: str, num_spare: int) -> EndInTime:
    """With so many tokens more than the shortest text that is known, and the stop token."""
    shortest = plan_of(name, case).search.find(scout(name, matching(name, case).matcher()), 400)
    assert shortest is not None
    return plan_of(name, case, len(shortest) + 1 + num_spare)


def allowed(matcher: Matcher, of: Vocabulary) -> list[int]:
    bitmask = allocate_bitmask(1, of.vocab_size)
    matcher.fill(bitmask, 0)
    return np.flatnonzero(unpack_row(bitmask[0], of.vocab_size)).tolist()


@cache
def structural(of: Vocabulary) -> frozenset[int]:
    marks = set(b'{["\\,(+tn1-')
    return frozenset(i for i, data in enumerate(of.token_bytes) if marks & set(data or b""))


def pick(choices: list[int], of: Vocabulary, random_: random.Random) -> int:
    """What has to do with structure more often than not, the end seldom."""
    if random_.random() < 0.5 and (some := sorted(structural(of).intersection(choices))):
        return random_.choice(some)
    kept = [i for i in choices if i not in of.stop_token_ids] if random_.random() < 0.95 else []
    return random_.choice(kept or choices)


def conforms(text: str, case: str) -> bool:
    constraint = CASES[case]
    if not isinstance(constraint, JsonSchema):
        return True
    schema = json.loads(constraint.text)
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    return bool(checker.is_valid(json.loads(text)))


WALKS = given(
    st.sampled_from(NAMES),
    st.sampled_from(sorted(CASES)),
    st.integers(0, 25),
    st.integers(0, 2**32),
)


@settings(deadline=None, max_examples=30)
@WALKS
def test_whatever_is_written_the_text_is_whole_in_time(
    name: str, case: str, num_spare: int, seed: int
) -> None:
    of, random_ = vocabulary(name), random.Random(seed)
    planned = plan(name, case, num_spare)
    matcher = planned.around(matching(name, case).matcher())
    written: list[int] = []
    while not written or written[-1] not in of.stop_token_ids:
        assert len(written) < planned.max_tokens, of.decode_bytes(written)
        choices = allowed(matcher, of)
        for token_id in (*random_.sample(range(of.vocab_size), 6), *choices[:3]):
            assert matcher.accept(token_id) == (token_id in choices)
            if token_id in choices:
                matcher.rollback(1)
        forced = matcher.forced_tokens(4)
        assert not forced or choices == forced[:1]
        written.append(pick(choices, of, random_))
        assert matcher.accept(written[-1])
    assert conforms(of.decode_bytes(written).decode(), case)


@settings(deadline=None, max_examples=30)
@WALKS
def test_a_row_hangs_on_the_text_alone(name: str, case: str, num_spare: int, seed: int) -> None:
    """Not on when the matcher was put there, nor on what was tried and taken back before."""
    of, random_ = vocabulary(name), random.Random(seed)
    planned = plan(name, case, num_spare)
    plain = planned.around(matching(name, case).matcher())
    inner, restless = matching(name, case).matcher(), None
    written: list[int] = []
    while not written or written[-1] not in of.stop_token_ids:
        if (
            restless is None
            and len(written) >= planned.wrap_at
            and (random_.random() < 0.3 or len(written) == planned.first)
        ):
            restless = planned.behind(inner, len(written))
        choices = allowed(plain, of)
        if restless is not None:
            assert allowed(restless, of) == choices
            tried = 0
            for _ in range(random_.randrange(4)):
                some = allowed(restless, of)
                tried += restless.accept(random_.choice(some))
            restless.rollback(tried)
            assert allowed(restless, of) == choices
        written.append(pick(choices, of, random_))
        assert plain.accept(written[-1])
        assert (restless or inner).accept(written[-1])


@settings(deadline=None, max_examples=30)
@WALKS
def test_rows_of_drafts_are_those_that_one_by_one_are_filled(
    name: str, case: str, num_spare: int, seed: int
) -> None:
    of, random_ = vocabulary(name), random.Random(seed)
    planned = plan(name, case, num_spare)
    matcher = planned.around(matching(name, case).matcher())
    for _ in range(random_.randrange(planned.max_tokens)):
        matcher.accept(pick(allowed(matcher, of), of, random_))
    draft: list[int] = []
    for _ in range(random_.randrange(5)):
        draft.append(pick(allowed(matcher, of), of, random_))
        matcher.accept(draft[-1])
    matcher.rollback(len(draft))
    draft.append(random_.randrange(of.vocab_size))
    bitmask = allocate_bitmask(len(draft) + 1, of.vocab_size)
    together = WrappedMatching(of, backend(name, "llguidance"))
    (num_valid,) = together.fill_drafts([FillJob(matcher, 0, draft)], bitmask)
    for row in range(num_valid + 1):
        expected = allocate_bitmask(1, of.vocab_size)
        matcher.fill(expected, 0)
        assert (bitmask[row] == expected[0]).all()
        if row < len(draft):
            assert matcher.accept(draft[row]) == (row < num_valid)


def test_before_the_first_token_that_counts_all_is_left_to_the_backend() -> None:
    """And many tokens moved at once are counted as those moved one by one."""
    of, inner = vocabulary("smollm2"), matching("smollm2", "any").matcher()
    planned = plan_of("smollm2", "any", 200)
    matcher = planned.around(inner)
    together = WrappedMatching(of, backend("smollm2", "llguidance"))
    text = of.encode_text('["' + "word " * 160)
    assert planned.wrap_at < planned.first < len(text) < planned.max_tokens
    for start in range(0, len(text), 5):
        some = text[start : start + 5]
        assert matcher.passes(len(some)) or start + len(some) >= planned.first
        if start % 2:
            assert together.take_unseen([(matcher, some)]) == [len(some)]
        else:
            assert together.take_shown([(matcher, some)]) == [None]
        assert planned.first <= start + len(some) or not matcher.knows_an_end
    assert matcher.knows_an_end
    matcher.rollback(len(text))
    assert allowed(matcher, of) == allowed(matching("smollm2", "any").matcher(), of)


def test_what_has_no_room_is_cut_as_it_was() -> None:
    matcher = plan_of("bytes", "pair", 15).around(matching("bytes", "pair").matcher())
    bare = matching("bytes", "pair").matcher()
    for token in b'{"a": "xyz':
        assert allowed(matcher, vocabulary("bytes")) == allowed(bare, vocabulary("bytes"))
        assert matcher.accept(token) and bare.accept(token)


@pytest.mark.parametrize(
    ("case", "text", "rest"),
    [
        ("pair", "", '{"a": "", "b": ""}'),
        ("pair", '{"a": "x\\', '"", "b": ""}'),
        ("optional", '{"when": ', 'null, "size": 18}'),
        ("tree", '{"value": "", "kids": [{"value": "', '", "kids": []}]}'),
        ("map", '{"a": "', '", "": ""}'),
        ("list", "[1", "]"),
        (
            "call",
            "",
            '<tool_call>\n{"name": "find", "arguments": {"a": "", "b": ""}}\n</tool_call>',
        ),
        ("sum", "((1", "))"),
        ("date", "20", "00-00-00"),
    ],
)
def test_the_way_to_the_end_is_a_short_one(case: str, text: str, rest: str) -> None:
    matcher = matching("bytes", case).matcher()
    assert all(map(matcher.accept, text.encode()))
    found = plan_of("bytes", case).search.find(
        scout("bytes", matcher), 200, text.strip()[-1:].encode()
    )
    assert found is not None and len(found) <= len(rest) + 2
    assert all(map(matcher.accept, (*found, 256)))


@pytest.mark.parametrize("case", ["pair", "tree", "optional", "list", "map", "any"])
def test_the_room_is_what_a_text_may_come_to_want(case: str) -> None:
    """Of schemas that bound it; the others say so."""
    room = room_of(CASES[case])
    assert room.is_open == (case in ("tree", "any"))
    wanted = {"pair": 12, "optional": 2 * 12 + 16, "list": 14, "map": 14}
    assert room.num_tokens >= wanted.get(case, 0)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(save_toy(tmp_path_factory.mktemp("toy"))) as llm:
        yield llm


@pytest.mark.parametrize("case", sorted(SCHEMAS))
def test_an_engine_writes_whole_values_within_any_limit_that_one_fits_in(
    case: str, toy: LLM
) -> None:
    """And the same, drafted or not."""
    least = plan("bytes", case, 0).max_tokens
    for num_spare, temperature in ((0, 0.0), (3, 1.0), (25, 0.0), (40, 1.0)):
        options = {"schema": SCHEMAS[case], "temperature": temperature, "seed": num_spare}
        options |= {"max_tokens": least + num_spare}
        drafted = toy.generate_raw("?", **options)
        assert drafted.finish_reason == "stop" and len(drafted.token_ids) <= least + num_spare
        assert conforms(drafted.text, case)
        plain = toy.generate_raw("?", **options, speculative=False)
        assert plain.token_ids == drafted.token_ids


def test_an_engine_cuts_what_has_no_room(toy: LLM) -> None:
    with pytest.raises(Truncated):
        toy.generate("?", schema=PAIR, max_tokens=6)


def test_several_outputs_and_other_wishes_end_in_time_too(toy: LLM) -> None:
    least = plan("bytes", "pair", 0).max_tokens
    options: dict[str, Any] = {
        "schema": PAIR,
        "max_tokens": least + 20,
        "temperature": 1.0,
        "seed": 3,
    }
    for wish in ({}, {"bad_words": ["x", "e"]}, {"min_tokens": 5}, {"logit_bias": {"34": 5.0}}):
        for several in toy.generate_raw(["?", "!"], n=2, **options, **wish):
            assert [one.finish_reason for one in several] == ["stop"] * 2
