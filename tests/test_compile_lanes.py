"""Where a constraint is compiled: what might run away, in a process."""

from __future__ import annotations

import pytest

from structspec.compile_lanes import is_quick
from structspec.constraint import Choice, Grammar, JsonSchema, Regex
from structspec.errors import GrammarError


@pytest.mark.parametrize(
    "constraint",
    [
        Regex("[a-z]{1,300}"),
        Regex("((a{100}){100}){10}"),
        Regex("(a+)+b"),
        JsonSchema({"properties": {f"p{i}": {"pattern": "^.{1,500}$"} for i in range(50)}}),
        JsonSchema({"multipleOf": 0.01, "maxLength": 10**9}),
        Choice(("a{1000}", "b{1000}", "c{1000}")),
        Grammar("start: a{1000}\na: b{1000}\nb: /x/"),
    ],
    ids=lambda constraint: str(constraint)[:40],
)
def test_a_thread_compiles_what_is_quick(constraint):
    assert is_quick("auto", constraint)


@pytest.mark.parametrize(
    "constraint",
    [
        Regex("((a{100}){100}){11}"),
        Regex("(a{1000}){,1000}"),
        JsonSchema({"items": {"pattern": "^(.{1000}){200,}$"}}),
        JsonSchema({"multipleOf": 999_983}),
        Grammar("start: /((a{1000}){1000}){10}/"),
        Choice(tuple(f"number {i}" for i in range(2000))),
        Grammar('root ::= "a"'),
    ],
    ids=lambda constraint: str(constraint)[:40],
)
def test_a_process_compiles_what_may_run_away(constraint):
    assert not is_quick("auto", constraint)


@pytest.mark.parametrize("backend", ["xgrammar", "outlines"])
def test_libraries_that_may_run_away_do_so_in_a_process(backend):
    assert not is_quick(backend, Regex("a"))


def test_what_cannot_be_sent_is_compiled_in_a_thread():
    assert is_quick("lm-format-enforcer", Choice(tuple(f"number {i}" for i in range(2000))))


def test_a_wrong_constraint_says_so():
    with pytest.raises(GrammarError, match="dialect"):
        is_quick("auto", Grammar('start: "a"', dialect="yacc"))
