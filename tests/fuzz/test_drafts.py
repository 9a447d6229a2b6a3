"""Drafts at random: filling many requests at once gives the rows that each alone would get."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask
from structspec.constraint import Choice, JsonSchema, Regex
from structspec.errors import GrammarError
from structspec.grammars.base import CompiledGrammar, FillJob, Matcher
from structspec.grammars.drafts import fill_job
from structspec.grammars.llguidance import LLGuidanceBackend
from tests.fuzz.bounds import fuzzed
from tests.fuzz.judge import spelled
from tests.fuzz.patterns import patterns
from tests.fuzz.schemas import KEYS, Draw, json_values, schemas
from tests.grammars.cases import VOCABULARIES

FREE = (True, {"type": "object"}, {"additionalProperties": {"type": "integer"}})  # keys are guarded
CONSTRAINTS = st.one_of(
    st.builds(JsonSchema, st.sampled_from(FREE), closed=st.just(False)),
    st.builds(JsonSchema, schemas(), closed=st.booleans()),
    st.builds(Regex, patterns(has_lookaround=False)),
    st.builds(Choice, st.lists(st.text("ab", min_size=1), min_size=1, max_size=4).map(tuple)),
)


@cache
def filler(threshold_s: float) -> LLGuidanceBackend:
    """A backend that always fills in parallel (0), or never (infinity)."""
    return LLGuidanceBackend(VOCABULARIES["pieces"](), parallel_above_s=threshold_s)


@st.composite
def texts(draw: Draw) -> str:
    """JSON in which keys may come twice, in one of their spellings, or letters."""
    if draw(st.integers(0, 3)) == 0:
        return str(draw(st.text("ab", max_size=6)))
    keys = draw(st.lists(st.sampled_from((*(spelled(k) for k in KEYS), r'"\u00e9"')), max_size=4))
    members = [f"{key}: {spelled(draw(json_values(2)))}" for key in keys]
    return "{" + ", ".join(members) + "}"


@st.composite
def token_ids(draw: Draw, text: str) -> list[int]:
    """The text cut into tokens in one of the possible ways."""
    vocabulary = VOCABULARIES["pieces"]()
    data, found = text.encode(), []
    while data:
        fitting = [
            i for i, piece in enumerate(vocabulary.token_bytes) if piece and data.startswith(piece)
        ]
        found.append(draw(st.sampled_from(fitting)))
        data = data[len(vocabulary.token_bytes[found[-1]]) :]
    return found


@st.composite
def jobs(draw: Draw, grammar: CompiledGrammar, first_row: int) -> FillJob:
    """A matcher somewhere in a text; drafts that go on with it, then astray, stops among them."""
    matcher = grammar.matcher()
    walked = draw(token_ids(draw(texts())))
    num_taken = draw(st.integers(0, len(walked)))
    for token_id in walked[:num_taken]:
        if not matcher.accept(token_id):
            break
    stops = VOCABULARIES["pieces"]().stop_token_ids
    drafts = walked[num_taken : num_taken + 6]
    drafts += draw(st.lists(st.sampled_from((*stops, 267, 300, -1, ord("a"))), max_size=2))
    if draw(st.booleans()):
        drafts.insert(draw(st.integers(0, len(drafts))), stops[0])
    return FillJob(matcher, first_row, drafts)


@fuzzed(40, 2_000, data=st.data())
def test_rows_of_many_requests_are_those_of_each_alone(data):
    drawn = data.draw(st.lists(CONSTRAINTS, min_size=1, max_size=4))
    batch: list[FillJob] = []
    for constraint in drawn:
        try:
            grammar = filler(0.0).compile(constraint)
        except GrammarError:
            continue
        for _ in range(data.draw(st.integers(1, 2))):
            num_rows = sum(1 + len(job.draft_token_ids) for job in batch)
            batch.append(data.draw(jobs(grammar, num_rows)))
    assume(batch)
    num_rows = sum(1 + len(job.draft_token_ids) for job in batch)
    alone = allocate_bitmask(num_rows, VOCABULARIES["pieces"]().vocab_size)
    alone[:] = 0x5A5A5A5A
    in_parallel, one_by_one = alone.copy(), alone.copy()
    before = [row_of(job.matcher) for job in batch]
    counts = [fill_job(job, alone) for job in batch]
    assert filler(0.0).fill_drafts(batch, in_parallel) == counts
    assert filler(float("inf")).fill_drafts(batch, one_by_one) == counts
    np.testing.assert_array_equal(in_parallel, alone)
    np.testing.assert_array_equal(one_by_one, alone)
    for job, row in zip(batch, before, strict=True):
        np.testing.assert_array_equal(row_of(job.matcher), row)


def row_of(matcher: Matcher) -> np.ndarray:
    """The mask where a matcher stands."""
    bitmask = allocate_bitmask(1, VOCABULARIES["pieces"]().vocab_size)
    matcher.fill(bitmask, 0)
    return bitmask[0]


def test_rows_behind_a_key_that_comes_twice_are_left_alone():
    text = b'{"a": 1, "a": 2}'
    matchers = [filler(0.0).compile(JsonSchema({"type": "object"})).matcher() for _ in range(2)]
    assert all(map(matchers[1].accept, text[:9]))
    batch = [FillJob(matchers[0], 0, []), FillJob(matchers[1], 1, list(text[9:]))]
    bitmask = allocate_bitmask(2 + len(text[9:]), VOCABULARIES["pieces"]().vocab_size)
    bitmask[:] = 77
    assert filler(0.0).fill_drafts(batch, bitmask) == [0, 2]  # `"a` and no further
    assert (bitmask[4:] == 77).all()
    assert not (bitmask[3] == 77).all()
