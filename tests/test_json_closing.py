"""Objects of any keys end within the tokens that there are, whatever is written before."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import LLM, JsonSchema, Truncated, Vocabulary
from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.grammars.base import CompiledGrammar, FillJob, Matcher
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.wrapping import WrappedMatching
from structspec.json_closing import ClosingMatcher, close_in_time
from structspec.json_positions import Position
from tests.server.toy import save_toy

ANY = {"type": "object"}
LONG = ['{"', '"}', '": ', '", "', "}}", "]}", "[[[", '": {"', ': "', "\\u00", "\\n", "abc", "true"]
LONG += ["null", "12", ", ", '{"a": 1, "a', "日", '"a', "a"]
TOKENS = (*(bytes([byte]) for byte in range(256)), *(text.encode() for text in LONG), b"\xe6\x97")
STOP = len(TOKENS)
VOCABULARIES = {
    "bytes": Vocabulary.bytes(),
    "pieces": Vocabulary((*TOKENS, None), (STOP,), lambda text: list(text.encode())),
}


@cache
def compiled(name: str, style: str, closed: bool) -> CompiledGrammar:
    constraint = JsonSchema(ANY, style=style, closed=closed)
    return LLGuidanceBackend(VOCABULARIES[name]).compile(constraint)


def matcher_of(name: str, max_tokens: int, style: str = "spaced", closed: bool = False) -> Matcher:
    constraint = JsonSchema(ANY, style=style, closed=closed)
    (wrapper,) = close_in_time(constraint, max_tokens, VOCABULARIES[name])
    return wrapper.around(compiled(name, style, closed).matcher())


def allowed(matcher: Matcher, vocabulary: Vocabulary, budget: int | None = None) -> list[int]:
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    matcher.fill(bitmask, 0, budget)
    return np.flatnonzero(unpack_row(bitmask[0], vocabulary.vocab_size)).tolist()


def pick(choices: list[int], vocabulary: Vocabulary, random_: random.Random) -> int:
    """One of them; what has to do with structure more often than not, the end seldom."""
    some = [i for i in choices if set(vocabulary.token_bytes[i] or b"") & set(b'{["\\:,tn1-.e')]
    may_end = random_.random() < 0.1
    kept = [i for i in choices if may_end or i not in vocabulary.stop_token_ids]
    return random_.choice((some if some and random_.random() < 0.7 else kept) or choices)


CASES = given(
    st.sampled_from(sorted(VOCABULARIES)),
    st.sampled_from(["spaced", "compact"]),
    st.booleans(),
    st.integers(3, 60),
    st.integers(0, 2**32),
)


@settings(deadline=None, max_examples=60)
@CASES
def test_whatever_is_written_the_object_is_whole_in_time(
    name: str, style: str, closed: bool, max_tokens: int, seed: int
) -> None:
    vocabulary, random_ = VOCABULARIES[name], random.Random(seed)
    matcher = matcher_of(name, max_tokens, style, closed)
    written: list[int] = []
    while not written or written[-1] not in vocabulary.stop_token_ids:
        num_left = max_tokens - len(written)
        assert 0 < (matcher.tokens_to_end() or 0) <= num_left
        choices = allowed(matcher, vocabulary)
        for token_id in random_.sample(range(vocabulary.vocab_size), 12):
            assert matcher.accept(token_id) == (token_id in choices)
            if token_id in choices:
                matcher.rollback(1)
        forced = matcher.forced_tokens(4)
        assert not forced or choices == forced[:1]
        written.append(pick(choices, vocabulary, random_))
        assert matcher.accept(written[-1])
    text = b"".join(vocabulary.token_bytes[i] or b"" for i in written).decode()
    value = json.loads(text)
    assert isinstance(value, dict) and len(written) <= max_tokens
    separators = (",", ":") if style == "compact" else (", ", ": ")
    if not set(text) & set("\\.eE-"):  # else there are other ways to write the same
        assert text == json.dumps(value, separators=separators, ensure_ascii=False)


@settings(deadline=None, max_examples=40)
@CASES
def test_a_budget_is_enough_behind_every_token_that_is_allowed_within_it(
    name: str, style: str, closed: bool, num_before: int, seed: int
) -> None:
    vocabulary, random_ = VOCABULARIES[name], random.Random(seed)
    matcher = matcher_of(name, 1000, style, closed)
    for _ in range(num_before):
        token_id = pick(allowed(matcher, vocabulary), vocabulary, random_)
        assert matcher.accept(token_id)
    num_needed = matcher.tokens_to_end()
    assert num_needed is not None
    for budget in (num_needed, num_needed + random_.randrange(5)):
        for token_id in allowed(matcher, vocabulary, budget)[:40]:
            assert matcher.accept(token_id)
            is_end = token_id in vocabulary.stop_token_ids
            assert is_end or (matcher.tokens_to_end() or 0) <= budget - 1
            matcher.rollback(1)


@settings(deadline=None, max_examples=40)
@CASES
def test_rows_of_drafts_are_those_that_one_by_one_are_filled(
    name: str, style: str, closed: bool, max_tokens: int, seed: int
) -> None:
    vocabulary, random_ = VOCABULARIES[name], random.Random(seed)
    matcher = matcher_of(name, max_tokens, style, closed)
    for _ in range(random_.randrange(max_tokens)):
        matcher.accept(pick(allowed(matcher, vocabulary), vocabulary, random_))
    draft = []
    for _ in range(random_.randrange(5)):
        draft.append(pick(allowed(matcher, vocabulary), vocabulary, random_))
        matcher.accept(draft[-1])
    matcher.rollback(len(draft))
    draft.append(random_.randrange(vocabulary.vocab_size))
    matching = WrappedMatching(vocabulary, compiled(name, style, closed).backend)
    bitmask = allocate_bitmask(len(draft) + 1, vocabulary.vocab_size)
    (num_valid,) = matching.fill_drafts([FillJob(matcher, 0, draft)], bitmask)
    for row in range(num_valid + 1):
        expected = allocate_bitmask(1, vocabulary.vocab_size)
        matcher.fill(expected, 0)
        assert (bitmask[row] == expected[0]).all()
        assert matcher.accept(draft[row]) == (row < num_valid) if row < len(draft) else True


def test_what_ends_a_beginning_is_the_shortest_text() -> None:
    for text, ending in (
        ("", "{}"),
        ("{", "}"),
        ('{"a', '": 0}'),
        ('{"a": 1, "a', '0": 0}'),  # one `a` is there
        ('{"a": 1,', ' "": 0}'),
        ('{"a": [1, {"b": "x', '"}]}'),
        ('{"a": tr', "ue}"),
        ('{"a": -', "0}"),
        ('{"a": 1.5e', "0}"),
        ('{"a": 12', "}"),
        ('{"a": "\\u00', '00"}'),
        ('{"a":', " 0}"),
        ('{"a": [', "]}"),
        ("{}", ""),
    ):
        position = Position().after(text.encode())
        assert position is not None and position.closing().decode() == ending, text
        assert isinstance(json.loads(text + ending), dict)


@given(st.binary(max_size=8), st.integers(0, 7))
def test_bytes_lead_to_the_same_place_however_they_are_cut(data: bytes, place: int) -> None:
    start = Position().after(b'{"k": "')
    assert start is not None
    first = start.after(data[:place])
    assert (first and first.after(data[place:])) == start.after(data)


@pytest.mark.parametrize(
    ("constraint", "max_tokens", "is_closed"),
    [
        (JsonSchema(ANY), 3, True),
        (JsonSchema({**ANY, "title": "T", "additionalProperties": True}), 30, True),
        (JsonSchema(ANY, style="compact"), 30, True),
        (JsonSchema(ANY), 2, False),  # `{`, `}` and the stop token are three
        (JsonSchema(ANY, style="pretty"), 30, False),
        (JsonSchema({**ANY, "minProperties": 1}), 30, False),
        (JsonSchema({"type": "array"}), 30, False),
        (None, 30, False),
    ],
)
def test_only_any_object_is_closed_and_only_where_there_is_room(
    constraint: JsonSchema | None, max_tokens: int, is_closed: bool
) -> None:
    assert bool(close_in_time(constraint, max_tokens, VOCABULARIES["bytes"])) == is_closed


def test_a_token_that_is_a_whole_object_needs_less_room() -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), b"{}", None)
    vocabulary = Vocabulary(tokens, (257,), lambda text: list(text.encode()))
    (wrapper,) = close_in_time(JsonSchema(ANY), 2, vocabulary)
    matcher = wrapper.around(LLGuidanceBackend(vocabulary).compile(JsonSchema(ANY)).matcher())
    assert isinstance(matcher, ClosingMatcher) and allowed(matcher, vocabulary) == [256]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(save_toy(tmp_path_factory.mktemp("toy"))) as llm:
        yield llm


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_engine_writes_whole_objects_within_any_limit_that_one_fits_in(
    temperature: float, toy: LLM
) -> None:
    """And the same at temperature 0, drafted or not."""
    for max_tokens in (3, 4, 5, 7, 10, 16, 25):
        options = {"schema": dict, "temperature": temperature, "seed": 5, "max_tokens": max_tokens}
        drafted = toy.generate_raw("?", **options)
        assert drafted.finish_reason == "stop" and isinstance(drafted.value, dict)
        assert len(drafted.token_ids) <= max_tokens
        if temperature == 0:
            assert toy.generate_raw("?", **options, speculative=False).text == drafted.text
    with pytest.raises(Truncated):
        toy.generate("?", schema=dict, max_tokens=2)
