"""The grammar compiler: shared compiles, a cache, errors and time limits through the future."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from structspec.compiler import GrammarCompiler
from structspec.constraint import Choice, Grammar, JsonSchema, Regex
from structspec.errors import (
    Cancelled,
    CompileTimeout,
    EngineError,
    GrammarError,
    InvalidRequest,
    UnsupportedConstraint,
)
from structspec.grammars import router
from structspec.grammars.base import Report
from structspec.vocabulary import Vocabulary

VOCABULARY = Vocabulary.bytes()


@dataclass
class Compiled:
    """What the stand makes of a regex."""

    pattern: str
    num_bytes: int = 100
    compile_ms: float = 1.0
    report: Report = field(default_factory=lambda: Report("stand"))


class Stand:
    """A backend under the test's control: it counts, waits for `gate` on "slow", fails on "bad"."""

    def __init__(self) -> None:
        self.compiled: list[Regex] = []
        self.gate = threading.Event()
        self.began = threading.Event()

    def get(self, name, constraint):
        return self

    def compile(self, name, constraint):
        self.compiled.append(constraint)
        self.began.set()
        if constraint.pattern.startswith("slow"):
            self.gate.wait(30)
        if constraint.pattern == "bad":
            raise GrammarError("bad")
        if constraint.pattern == "bug":
            raise ZeroDivisionError("a bug")
        return Compiled(constraint.pattern)


@pytest.fixture
def stand(monkeypatch):
    backend = Stand()
    monkeypatch.setattr("structspec.compiler.Backends", lambda vocabulary: backend)
    yield backend
    backend.gate.set()


def make(**options) -> GrammarCompiler:
    return GrammarCompiler(VOCABULARY, **options)


@pytest.fixture(scope="module")
def shared() -> Iterator[GrammarCompiler]:
    """One compiler for several tests: starting a process that loads xgrammar takes seconds."""
    compiler = make()
    yield compiler
    compiler.close()


def test_submit_returns_before_the_compile_is_done(stand):
    future = make().submit(Regex("slow"))
    assert stand.began.wait(10)
    assert not future.done()
    stand.gate.set()
    assert future.result(10).pattern == "slow"


def test_equal_constraints_share_one_compile_in_flight_and_after(stand):
    compiler = make()
    first, second = compiler.submit(Regex("slow")), compiler.submit(Regex("slow"))
    stand.gate.set()
    assert first.result(10) is second.result(10)
    assert compiler.submit(Regex("slow")).result(10) is first.result(10)
    assert len(stand.compiled) == 1


def test_the_cache_keeps_the_last_used(stand):
    compiler = make(cache_size=2)
    for pattern in ("a", "b", "a", "c", "a", "b"):  # c drives out b
        compiler.submit(Regex(pattern)).result(10)
    assert [c.pattern for c in stand.compiled] == ["a", "b", "c", "b"]


def test_the_cache_keeps_what_fits_its_bytes(stand):
    compiler = make(max_cache_bytes=250)  # two of 100 bytes each
    for pattern in ("a", "b", "a", "c", "a", "b"):
        compiler.submit(Regex(pattern)).result(10)
    assert [c.pattern for c in stand.compiled] == ["a", "b", "c", "b"]


def test_a_grammar_larger_than_the_cache_is_not_kept(stand):
    compiler = make(max_cache_bytes=50)
    assert [compiler.submit(Regex("a")).result(10).pattern for _ in range(2)] == ["a", "a"]
    assert len(stand.compiled) == 2


def test_a_constraint_that_is_too_long_is_refused_with_the_limit():
    with pytest.raises(GrammarError, match="1001 characters.*max_constraint_bytes"):
        make(max_constraint_bytes=1000).submit(Regex("a" * 996)).result(10)


def test_short_constraints_go_before_long_ones(stand):
    compiler = make(num_threads=1)
    compiler.submit(Regex("slow"))
    assert stand.began.wait(10)
    patterns = ["x" * 5000, "y" * 300, "z"]
    futures = [compiler.submit(Regex(pattern)) for pattern in patterns]
    stand.gate.set()
    assert not wait(futures, 10).not_done
    assert [c.pattern for c in stand.compiled][1:] == patterns[::-1]


def test_a_failure_arrives_through_the_future_and_is_not_kept(stand):
    compiler = make()
    for _ in range(2):
        with pytest.raises(GrammarError, match="bad"):
            compiler.submit(Regex("bad")).result(10)
    assert len(stand.compiled) == 2


def test_a_librarys_own_failure_becomes_an_engine_error_with_its_cause(stand):
    with pytest.raises(EngineError, match="a bug") as caught:
        make().submit(Regex("bug")).result(10)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_compile_over_its_time_fails_and_the_pool_goes_on(stand):
    compiler = make(num_threads=1, timeout_s=0.05)
    for _ in range(2):  # every thread there was is stuck twice over
        with pytest.raises(CompileTimeout, match="0.05 s"):
            compiler.submit(Regex("slow")).result(10)
    assert compiler.submit(Regex("quick")).result(10).pattern == "quick"


def test_what_a_late_compile_brings_is_not_kept(stand):
    compiler = make(num_threads=1, timeout_s=0.05)
    with pytest.raises(CompileTimeout):
        compiler.submit(Regex("slow")).result(10)
    stand.gate.set()
    assert compiler.submit(Regex("slow")).result(10).pattern == "slow"
    assert len(stand.compiled) == 2


def test_waiting_in_the_queue_does_not_count_as_compiling(stand):
    compiler = make(num_threads=1, timeout_s=0.3)
    slow, queued = compiler.submit(Regex("slow")), compiler.submit(Regex("quick"))
    with pytest.raises(CompileTimeout):
        slow.result(10)
    assert queued.result(10).pattern == "quick"


def test_nobody_can_cancel_what_others_wait_for(stand):
    compiler = make()
    mine, theirs = compiler.submit(Regex("slow")), compiler.submit(Regex("slow"))
    assert not mine.cancel()
    stand.gate.set()
    assert theirs.result(10).pattern == "slow"


def test_close_gives_up_what_waits_and_refuses_what_comes(stand):
    compiler = make(num_threads=1)
    begun = compiler.submit(Regex("slow"))
    assert stand.began.wait(10)
    waiting = compiler.submit(Regex("waits"))
    compiler.close()
    compiler.close()
    with pytest.raises(Cancelled):
        waiting.result(10)
    with pytest.raises(Cancelled):
        compiler.submit(Regex("late")).result(10)
    stand.gate.set()
    assert begun.result(10).pattern == "slow"


def test_many_threads_may_submit_at_once(stand):
    compiler = make()
    futures = []
    threads = [
        threading.Thread(
            target=lambda: futures.extend(compiler.submit(Regex(str(i))) for i in range(20))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wait(futures, 10).not_done
    assert len(futures) == 160
    assert sorted(int(c.pattern) for c in stand.compiled) == list(range(20))


def test_an_unknown_backend_is_refused_at_once():
    with pytest.raises(InvalidRequest, match="llguidance"):
        make(backend="nonesuch")
    with pytest.raises(InvalidRequest, match="llguidance"):
        make().submit(Regex("a"), backend="nonesuch")


@pytest.mark.parametrize(
    "limits",
    [
        {"num_threads": 0},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"cache_size": -1},
        {"num_processes": 0},
        {"max_memory_bytes": 0},
        {"max_constraint_bytes": 0},
        {"max_cache_bytes": -1},
    ],
)
def test_limits_that_allow_nothing_are_refused(limits):
    with pytest.raises(InvalidRequest, match=next(iter(limits))):
        GrammarCompiler(VOCABULARY, **limits)


@pytest.mark.parametrize("constraint", [None, 5, "a", {"type": "integer"}], ids=repr)
def test_what_is_no_constraint_is_refused_at_once(constraint):
    with pytest.raises(InvalidRequest, match="a constraint is a JsonSchema, Regex"):
        make().submit(constraint)


@pytest.mark.parametrize(
    ("constraint", "library"),
    [
        (JsonSchema({"type": "integer"}), "llguidance"),
        (JsonSchema({"type": "integer"}, style="pretty"), "llguidance"),
        (Regex("a"), "llguidance"),
        (Choice(("a",)), "llguidance"),
        (Grammar('start: "a"'), "llguidance"),
        (Grammar('root ::= "a"'), "xgrammar"),
    ],
)
def test_auto_takes_the_library_that_can_and_says_why(shared, constraint, library):
    grammar = shared.submit(constraint).result(60)
    assert grammar.report.backend == library
    assert grammar.report.exact
    assert grammar.report.reason
    assert grammar.compile_ms > 0
    assert grammar.num_bytes > 0


@pytest.mark.parametrize("name", ["llguidance", "xgrammar", "outlines", "lm-format-enforcer"])
def test_a_backend_named_for_one_constraint_is_used_for_it(shared, name):
    report = shared.submit(Regex("a"), name).result(60).report
    assert (report.backend, report.reason) == (name, "asked for by name")
    assert shared.submit(Regex("a")).result(60).report.backend == "llguidance"


def test_a_backend_named_for_what_it_cannot_read_is_an_error(shared):
    with pytest.raises(UnsupportedConstraint):
        shared.submit(Grammar('root ::= "a"'), "llguidance").result(60)


@pytest.mark.parametrize("depth", [1000, 5000])
@pytest.mark.parametrize("is_text", [True, False], ids=["text", "dict"])
def test_what_is_nested_too_deeply_is_a_grammar_error(depth, is_text):
    schema = {"type": "boolean"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    text = '{"not": ' * depth * 3 + "{}" + "}" * depth * 3
    compiler = GrammarCompiler(VOCABULARY)
    with pytest.raises(GrammarError, match="too deeply"):
        compiler.submit(JsonSchema(text if is_text else schema)).result()
    compiler.close()


def test_compile_awaits_and_raises_like_the_future():
    async def both():
        compiler = make()
        grammar = await compiler.compile(Regex("ab"))
        with pytest.raises(GrammarError):
            await compiler.compile(Regex("(a"))
        return grammar.matcher().forced(10)

    assert asyncio.run(both()) == b"ab"


@pytest.mark.parametrize(
    "constraint", [JsonSchema("{"), JsonSchema({"a": {1}}), Choice((["a"],)), Choice(())]
)
def test_a_constraint_that_is_not_made_of_text_fails_through_the_future(constraint):
    with pytest.raises(GrammarError):
        make().submit(constraint).result(30)


def test_a_compiler_closes_at_the_end_of_its_block():
    with GrammarCompiler(Vocabulary.bytes()) as compiler:
        assert compiler.submit(Choice(("a",))).result().report.exact
    with pytest.raises(Cancelled):
        compiler.submit(Choice(("b",))).result()


def test_after_warming_up_the_first_constraint_finds_its_backend_there(monkeypatch):
    made = []
    make = router._make
    monkeypatch.setattr(router, "_make", lambda *args: made.append(args) or make(*args))
    with closing(GrammarCompiler(Vocabulary.bytes())) as compiler:
        compiler.warm_up()
        compiler.submit(Regex("[a-z]*")).result()
        assert len(made) == 1
        compiler.submit(JsonSchema({"type": "integer"})).result()
        assert len(made) == 1
