"""One verdict per case: the worst thing that any of its instances shows."""

from __future__ import annotations

from typing import Any

import pytest

from structspec.bench.columns import Compiled, Refused, Subject
from structspec.bench.judge import Judge
from structspec.bench.outcome import Offence, Outcome
from structspec.grammars.base import Finding, Report
from structspec.vocabulary import Vocabulary
from tests.bench_cli.subjects import LyingWalker, Raises, Texts, case

VOCABULARY = Vocabulary.bytes()
NUMBER = {"type": "integer", "minimum": 10}
LABELS = {"12": True, "3": False, '"x"': False}
EXACT = Report("made")


def judge(subject: Subject, schema: Any, labels: dict[str, bool]) -> Outcome:
    return Judge(subject, VOCABULARY, lambda: None).judge(case(schema, labels))


def approximating(*keywords: str, reason: str = "") -> Report:
    return Report("made", approximated=tuple(Finding("#", k, reason) for k in keywords))


def test_exact_mask_is_right():
    outcome = judge(Texts("12", report=EXACT), NUMBER, LABELS)
    assert (outcome.verdict, outcome.offences, outcome.is_exact) == ("right", [], True)
    assert outcome.compile_ms is not None
    assert len(outcome.mask_us) == 5  # "1", "2" and the stop token; one refused byte each


def test_accepted_invalid_value_is_under_where_all_was_called_enforced():
    outcome = judge(Texts("12", "3", report=EXACT), NUMBER, LABELS)
    assert outcome.verdict == "under"
    assert outcome.offences == [Offence("under", "3", "breaks minimum")]


def test_accepted_invalid_value_is_approximated_where_the_report_said_so():
    outcome = judge(Texts("12", "3", report=approximating("minimum")), NUMBER, LABELS)
    assert (outcome.verdict, outcome.is_exact) == ("approximated", False)


def test_report_on_another_keyword_excuses_nothing():
    outcome = judge(Texts("12", "3", report=approximating("pattern")), NUMBER, LABELS)
    assert outcome.verdict == "under"
    assert outcome.offences[0].reason == "breaks minimum, but approximated is pattern"


def test_report_on_a_part_of_a_negation_excuses_the_negation():
    report = Report("made", approximated=(Finding("#/not", "multipleOf"),))
    outcome = judge(Texts("6", report=report), {"not": {"multipleOf": 3}}, {"6": False})
    assert outcome.verdict == "approximated"


def test_report_on_repeated_keys_excuses_no_undeclared_key():
    report = approximating("additionalProperties", reason="a free key may come twice")
    schema = {"additionalProperties": False}
    outcome = judge(Texts('{"a": 1}', report=report), schema, {'{"a": 1}': False})
    assert outcome.verdict == "under"


def test_library_without_a_report_claims_everything():
    assert judge(Texts("12", "3"), NUMBER, LABELS).verdict == "under"


def test_rejected_valid_value_is_over_and_the_place_is_told():
    outcome = judge(Texts("13"), NUMBER, LABELS)
    assert outcome.verdict == "over"
    assert outcome.offences[0].reason == "behind '1' refused '2'"


def test_value_that_may_not_end_is_over():
    outcome = judge(Texts("123"), NUMBER, LABELS)
    assert outcome.offences[0].reason == "may not end behind '12'"


def test_over_tells_when_only_escapes_stand_in_the_way():
    outcome = judge(Texts('"é"'), {"type": "string"}, {'"é"': True})
    assert outcome.verdict == "over"
    assert "not escaped" in outcome.offences[0].reason


def test_valid_value_in_declared_order_is_enough():
    schema = {"properties": {"a": {}, "b": {}}}
    outcome = judge(Texts('{"a": 1, "b": 2}'), schema, {'{"b": 2, "a": 1}': True})
    assert outcome.verdict == "right"


def test_worst_instance_decides():
    labels = {"12": True, "3": False, "4": False}
    outcome = judge(Texts("3", "4"), NUMBER, labels)
    assert outcome.verdict == "under"
    assert [offence.verdict for offence in outcome.offences] == ["under", "under", "over"]


def test_refusal_is_refused_with_its_words():
    outcome = judge(Raises(Refused("#/not: not supported")), NUMBER, LABELS)
    assert (outcome.verdict, outcome.message) == ("refused", "#/not: not supported")


@pytest.mark.parametrize(
    ("message", "labels", "verdict"),
    [
        ("Unsatisfiable schema", {"1": False}, "right"),
        ("Unsatisfiable schema", {"1": False, "2": True}, "refused"),
        ("Unsatisfiable schema", {}, "refused"),
        ("not supported", {"1": False}, "refused"),
    ],
)
def test_refusing_what_nothing_satisfies_is_right(message, labels, verdict):
    assert judge(Raises(Refused(message)), {}, labels).verdict == verdict


def test_any_other_exception_is_a_crash():
    outcome = judge(Raises(KeyError("oops")), NUMBER, LABELS)
    assert (outcome.verdict, outcome.message) == ("crash", "KeyError: 'oops'")


def test_mask_and_accept_that_disagree_are_a_crash():
    class Lies:
        def compile(self, case: object) -> Compiled:
            return Compiled(lambda: LyingWalker(["12"]))

    outcome = judge(Lies(), NUMBER, LABELS)
    assert outcome.verdict == "crash"
    assert outcome.message == (
        "mask and accept disagree: behind b'' the mask forbids b'3', accept takes it"
    )


def test_case_without_instances_only_has_to_compile():
    assert judge(Texts("12"), NUMBER, {}).verdict == "untested"
    assert judge(Raises(KeyError("oops")), NUMBER, {}).verdict == "crash"
