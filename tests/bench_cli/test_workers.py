"""A worker that dies costs only the case it had in hand."""

from __future__ import annotations

import pytest

from structspec.bench.limits import Limits
from structspec.bench.workers import Setting, judge_all
from structspec.errors import EngineError
from structspec.vocabulary import Vocabulary
from tests.bench_cli.subjects import Misbehaves, case

DEEDS = {
    "exit": "ended with exit status 3",
    "spin": "took more than 1 s of CPU time",
    "grow": "MemoryError",
    "crash": "killed by SIGABRT; it said: terminate called after throwing std::bad_alloc",
}


def cannot_start(vocabulary: Vocabulary) -> Misbehaves:
    raise KeyError("no such library")


def test_each_death_is_one_crash_with_its_cause_and_the_rest_goes_on():
    schemas = [schema for deed in DEEDS for schema in ({"do": deed}, {})]
    cases = [case(schema, {"{}": True}, name=str(n)) for n, schema in enumerate(schemas)]
    heard: list[str] = []
    setting = Setting(Misbehaves, "bytes", Limits(cpu_s=1, memory_mb=1024), num_workers=2)
    outcomes = judge_all(cases, setting, lambda outcome: heard.append(outcome.case_id))
    assert [outcome.case_id for outcome in outcomes] == [str(n) for n in range(len(cases))]
    assert sorted(heard) == sorted(outcome.case_id for outcome in outcomes)
    assert [outcome.verdict for outcome in outcomes] == ["crash", "right"] * len(DEEDS)
    for outcome, cause in zip(outcomes[::2], DEEDS.values(), strict=True):
        assert outcome.message.startswith(cause)


def test_waiting_is_limited_too():
    setting = Setting(Misbehaves, "bytes", Limits(wall_s=1), num_workers=1)
    (outcome,) = judge_all([case({"do": "sleep"})], setting, lambda _: None)
    assert (outcome.verdict, outcome.message) == ("crash", "took more than 1 s")


def test_column_that_cannot_start_ends_the_run_with_its_words():
    setting = Setting(cannot_start, "bytes", num_workers=1)
    with pytest.raises(EngineError, match=r"(?s)could not start.*no such library"):
        judge_all([case({})], setting, lambda _: None)
