"""What a mask cannot hold is refused, validated or ignored; what does not validate is redrawn."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from structspec import (
    LLM,
    Choice,
    GrammarError,
    JsonSchema,
    OutputInvalid,
    SamplingParams,
    Truncated,
    UnsupportedConstraint,
    Usage,
    Vocabulary,
)
from structspec.generation import Generation, to_generation
from structspec.grammars.base import Finding, Report
from structspec.options import GenerateOptions, resolve_options
from structspec.policy import OnUnsupported, check_report, resample, unless_unsupported
from structspec.request import Request, RequestStatus

UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
EXACT = Report("toy", enforced=(Finding("#", "type"),))
LOOSE = Report("toy", approximated=(Finding("#/a", "uniqueItems", "a set is not kept"),))
LOOSER = Report("toy", approximated=tuple(Finding(f"#/{i}", "uniqueItems") for i in range(9)))


class ToyGrammar:
    """All of a CompiledGrammar that a finished request is asked for."""

    wide_row = start_row = None

    def __init__(self, report: Report) -> None:
        self.report = report


def finish(text: str, report: Report, **options: Any) -> Any:
    """The value of a request that wrote `text`, byte by byte."""
    compiled: Future[Any] = Future()
    compiled.set_result(ToyGrammar(report))
    request = Request(0, [1, 2, 3], SamplingParams(), 100, compiled)
    request.token_ids += text.encode()
    request.text.append(text.encode())
    request.text.take_rest()
    request.status, request.finish_reason = RequestStatus.FINISHED, "stop"
    task = resolve_options(GenerateOptions(**options))
    return to_generation(request, task, Vocabulary.bytes(), num_attempts=2, spent=Usage(10, 20))


# who is let through


@pytest.mark.parametrize(
    ("report", "policy", "is_accepted"),
    [
        (EXACT, "error", True),
        (EXACT, "validate", True),
        (LOOSE, "error", False),
        (LOOSE, "validate", True),
        (LOOSE, "ignore", True),
    ],
)
def test_only_the_policy_error_refuses_what_is_validated_afterwards(
    report: Report, policy: OnUnsupported, is_accepted: bool
) -> None:
    if is_accepted:
        check_report(report, JsonSchema(UNIQUE), policy)
    else:
        with pytest.raises(UnsupportedConstraint):
            check_report(report, JsonSchema(UNIQUE), policy)


def test_what_cannot_be_validated_is_refused_rather_than_promised() -> None:
    with pytest.raises(UnsupportedConstraint, match="cannot be validated"):
        check_report(LOOSE, Choice(("a",)), "validate")
    check_report(LOOSE, Choice(("a",)), "ignore")


def test_a_refusal_names_the_places_and_counts_the_rest() -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        check_report(LOOSER, JsonSchema(UNIQUE), "error")
    assert caught.value.pointer == "#/0"
    assert "#/5" in str(caught.value) and "#/6" not in str(caught.value)
    assert "and 3 more" in str(caught.value)


def test_a_grammar_that_is_accepted_or_failed_comes_through_as_it_is() -> None:
    done: Future[Any] = Future()
    checked = unless_unsupported(done, JsonSchema(UNIQUE), "error")
    assert not checked.done()
    grammar = ToyGrammar(EXACT)
    done.set_result(grammar)
    assert checked.result(0) is grammar

    failed: Future[Any] = Future()
    failed.set_exception(GrammarError("wrong"))
    assert isinstance(
        unless_unsupported(failed, JsonSchema(UNIQUE), "error").exception(0), GrammarError
    )


def test_a_grammar_that_cannot_be_read_fails_who_waits_for_it() -> None:
    done: Future[Any] = Future()
    done.set_result(object())
    for unheld in ((), (Finding("#/a", "after validator check"),)):
        told = unless_unsupported(done, JsonSchema(UNIQUE), "error", unheld)
        assert isinstance(told.exception(0), AttributeError)


def test_what_only_the_type_checks_is_part_of_the_report_and_of_no_other() -> None:
    done: Future[Any] = Future()
    grammar = ToyGrammar(EXACT)
    done.set_result(grammar)
    unheld = (Finding("#/a", "after validator check"),)
    told = unless_unsupported(done, JsonSchema(UNIQUE), "validate", unheld).result(0)
    assert told.report.approximated == unheld and not told.report.exact
    assert grammar.report is EXACT
    with pytest.raises(UnsupportedConstraint, match="after validator check is not wholly"):
        unless_unsupported(done, JsonSchema(UNIQUE), "error", unheld).result(0)


# what comes of finished text


def test_validate_checks_what_the_mask_left_open_and_ignore_does_not() -> None:
    assert finish("[1, 2]", LOOSE, schema=UNIQUE).value == [1, 2]
    with pytest.raises(OutputInvalid, match="non-unique"):
        finish("[1, 1]", LOOSE, schema=UNIQUE)
    ignored = finish("[1, 1]", LOOSE, schema=UNIQUE, on_unsupported="ignore")
    assert ignored.value == [1, 1]
    assert ignored.report is LOOSE


def test_ignore_leaves_nothing_out_of_an_exact_report() -> None:
    with pytest.raises(OutputInvalid):
        finish("[1, 1]", EXACT, schema=UNIQUE, on_unsupported="ignore")


def test_ignore_takes_the_last_of_duplicate_keys() -> None:
    numbers = {"type": "object", "additionalProperties": {"type": "integer"}}
    text = '{"a": 1, "a": 2}'
    with pytest.raises(OutputInvalid, match="appears twice"):
        finish(text, LOOSE, schema=numbers)
    assert finish(text, LOOSE, schema=numbers, on_unsupported="ignore").value == {"a": 2}


def test_ignore_still_gives_the_python_type_or_an_error() -> None:
    class Bag(BaseModel):
        items: list[int] = Field(json_schema_extra={"uniqueItems": True})

    assert finish('{"items": [1, 1]}', LOOSE, schema=Bag, on_unsupported="ignore").value == Bag(
        items=[1, 1]
    )
    with pytest.raises(OutputInvalid):
        finish('{"items": 3}', LOOSE, schema=Bag, on_unsupported="ignore")


def test_usage_counts_all_attempts_in_results_and_in_errors() -> None:
    one = finish("[1]", LOOSE, schema=UNIQUE)
    assert (one.usage, one.num_attempts) == (Usage(13, 23), 2)
    with pytest.raises(OutputInvalid, match=r"\(attempt 2\)$") as caught:
        finish("[1, 1]", LOOSE, schema=UNIQUE)
    assert caught.value.usage == Usage(13, 26)
    assert caught.value.text == "[1, 1]" and caught.value.errors


# how the next attempt differs

sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0]),
    top_k=st.integers(0, 3),
    seed=st.none() | st.integers(-(2**63), 2**63),
    max_tokens=st.integers(1, 9),
)


@given(sampling)
def test_the_next_attempt_is_never_greedy_and_changes_no_more_than_it_must(
    params: SamplingParams,
) -> None:
    again = resample(params)
    assert again.temperature > 0 and again.top_k != 1
    is_greedy = params.temperature == 0 or params.top_k == 1
    if not is_greedy:
        assert (again.temperature, again.top_k) == (params.temperature, params.top_k)
        assert (again.seed is None) == (params.seed is None)
    if again.seed is not None:
        assert again.seed != params.seed and 0 <= again.seed < 2**63
    assert again.max_tokens == params.max_tokens
    assert resample(params) == again


# on the real model


class Word(BaseModel):
    word: str = Field(min_length=1, max_length=12)


def refusing(num_refused: int) -> tuple[type[BaseModel], list[str]]:
    """A model whose validator refuses so many values, and the values it has seen."""
    seen: list[str] = []

    class Picky(Word):
        @field_validator("word")
        @classmethod
        def check(cls, word: str) -> str:
            seen.append(word)
            if len(seen) <= num_refused:
                raise ValueError("not this one")
            return word

    return Picky, seen


ASK = "Name an animal."


def test_what_does_not_validate_is_drawn_again_and_all_of_it_counted(llm: LLM) -> None:
    picky, seen = refusing(1)
    one = llm.generate_raw(ASK, schema=picky)
    single = llm.generate_raw(ASK, schema=Word)
    assert isinstance(one, Generation)
    assert (one.num_attempts, one.value.word, len(seen)) == (2, seen[1], 2)
    assert one.report is not None and one.report.approximated[0].pointer == "#/properties/word"
    assert seen[0] == single.value.word
    assert one.usage.prompt_tokens == 2 * single.usage.prompt_tokens
    assert one.usage.completion_tokens == single.usage.completion_tokens + len(one.token_ids)


def test_greedy_attempts_differ_and_are_the_same_every_time(llm: LLM) -> None:
    words = []
    for _ in range(2):
        picky, seen = refusing(9)
        with pytest.raises(OutputInvalid, match="not this one") as caught:
            llm.generate(ASK, schema=picky, max_attempts=4)
        assert caught.value.usage is not None
        words.append((seen, caught.value.usage))
    assert words[0] == words[1]
    assert len(words[0][0]) == 4 and len(set(words[0][0])) > 1


def test_one_attempt_is_one_attempt(llm: LLM) -> None:
    picky, seen = refusing(9)
    with pytest.raises(OutputInvalid) as caught:
        llm.generate(ASK, schema=picky, max_attempts=1)
    assert len(seen) == 1 and "attempt" not in str(caught.value)


def test_a_retry_in_a_batch_repeats_no_other_prompt(llm: LLM) -> None:
    picky, seen = refusing(1)
    told: list[int] = []
    results = llm.generate_raw(
        [ASK] * 3, schema=picky, on_result=lambda index, _: told.append(index)
    )
    assert sorted(one.num_attempts for one in results) == [1, 1, 2]
    assert len(seen) == 4 and sorted(told) == [0, 1, 2]


def test_what_was_cut_is_not_drawn_again(llm: LLM) -> None:
    picky, seen = refusing(9)
    with pytest.raises(Truncated) as caught:
        llm.generate(ASK, schema=picky, max_tokens=2)
    assert seen == [] and caught.value.usage is not None
    assert caught.value.usage.completion_tokens == 2


def test_a_stream_makes_one_attempt(llm: LLM) -> None:
    picky, seen = refusing(1)
    pieces = []
    with pytest.raises(OutputInvalid):
        for piece in llm.stream(ASK, schema=picky, max_attempts=3):
            pieces.append(piece)
    assert len(seen) == 1 and f'"{seen[0]}"' in "".join(pieces)


def test_error_ends_a_request_before_it_writes(llm: LLM) -> None:
    results = llm.generate_raw(
        [ASK, ASK], schema=UNIQUE, on_unsupported="error", return_errors=True
    )
    for error in results:
        assert isinstance(error, UnsupportedConstraint)
        assert error.pointer == "#" and "uniqueItems" in str(error)
    assert llm.generate_raw(ASK, schema=Word, on_unsupported="error").report.exact  # type: ignore[union-attr]
