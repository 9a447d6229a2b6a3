"""Compile processes: limits that hold, workers that end, and a storm that hurts nobody else."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from structspec.compile_process import WorkerLimits, WorkerSetup
from structspec.compile_workers import WorkerPool, _Worker, _WorkerDied
from structspec.compiler import GrammarCompiler
from structspec.constraint import Choice, Constraint, Grammar, JsonSchema, Regex
from structspec.errors import (
    Cancelled,
    CompileTimeout,
    EngineError,
    GrammarError,
    UnsupportedConstraint,
)
from structspec.vocabulary import Vocabulary, greedy_encoder

MEBIBYTE = 2**20
VOCABULARY = Vocabulary.bytes()
# Millions of states, over which outlines-core goes one by one: seconds, and hundreds of megabytes.
ENDLESS = Regex("(.*a.{22}|.*b.{24})*")
LONG = Choice(tuple(f"number {i}" for i in range(2000)))  # long enough to go to a process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")


@pytest.fixture
def pool() -> Iterator[Callable[..., WorkerPool]]:
    """Makes pools that are closed in the end."""
    made: list[WorkerPool] = []

    def make(timeout_s: float = 60.0, max_memory_bytes: int = 1024 * MEBIBYTE) -> WorkerPool:
        made.append(WorkerPool(VOCABULARY, WorkerLimits(timeout_s, max_memory_bytes)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def in_background(call: Callable[[], object]) -> Future[object]:
    """The result of a call on a thread of its own."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run).start()
    return future


def until(is_so: Callable[[], object], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that ended and was not asked about is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def busy_worker(pool: WorkerPool) -> _Worker:
    """The one worker of a pool, once it has begun to compile."""
    until(lambda: any(worker._is_started for worker in pool._busy))
    (worker,) = pool._busy
    return worker


def test_a_worker_is_kept_for_the_next_compile(pool):
    one = pool()
    for constraint in (LONG, Regex("a"), Regex("b")):
        assert one.compile("auto", constraint).report.backend == "llguidance"
    (worker,) = one._idle
    one.end_unused(60.0)
    assert is_alive(worker._process.pid)
    one.end_unused(0.0)
    assert not one._idle
    assert not is_alive(worker._process.pid)


def test_errors_come_back_with_their_place(pool):
    with pytest.raises(GrammarError) as caught:
        pool().compile("llguidance", JsonSchema({"properties": {"a": {"type": "text"}}}))
    assert caught.value.pointer == "#/properties/a/type"


def test_a_compile_over_its_time_is_killed(pool):
    one = pool(timeout_s=0.3)
    with pytest.raises(CompileTimeout, match="0.3 s.*raise timeout_s"):
        one.compile("outlines", ENDLESS)
    assert not one._idle and not one._busy
    assert one.compile("auto", Regex("a"))


def test_a_compile_over_its_memory_is_refused_and_its_worker_not_kept(pool):
    one = pool(max_memory_bytes=48 * MEBIBYTE)
    with pytest.raises(UnsupportedConstraint, match="48 MB.*raise max_memory_bytes"):
        one.compile("outlines", ENDLESS)
    assert one.compile("auto", Regex("a"))


def test_the_kernel_ends_a_compile_whose_parent_does_not(pool):
    limits = WorkerLimits(timeout_s=0.1, max_memory_bytes=2048 * MEBIBYTE)
    worker = _Worker(pickle.dumps(WorkerSetup.of(VOCABULARY, limits)))
    try:
        with pytest.raises(_WorkerDied) as died:
            worker.compile("outlines", ENDLESS, timeout_s=120.0)
        assert died.value.status == -signal.SIGXCPU
    finally:
        worker.end()


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_compile_whose_worker_is_killed_from_outside_is_done_again(pool, by):
    one = pool()
    mine = in_background(lambda: one.compile("auto", Grammar(slow_text())))
    os.kill(busy_worker(one)._process.pid, by)
    theirs = in_background(lambda: one.compile("auto", Regex("a")))
    assert theirs.result(60)
    assert mine.result(60)


def test_a_compile_whose_worker_is_killed_twice_is_given_up(pool):
    one = pool()
    mine = in_background(lambda: one.compile("outlines", ENDLESS))
    killed: list[int] = []
    for _ in range(2):
        until(lambda: any(w._is_started and w._process.pid not in killed for w in one._busy))
        (worker,) = one._busy
        killed.append(worker._process.pid)
        worker._process.kill()
    with pytest.raises(UnsupportedConstraint, match="SIGKILL"):
        mine.result(60)


def test_a_process_that_cannot_start_is_not_the_constraints_fault(pool, monkeypatch):
    monkeypatch.setattr("structspec.compile_workers._PROGRAM", "raise SystemExit(3)")
    with pytest.raises(EngineError, match="status 3"):
        pool().compile("auto", Regex("a"))


def test_closing_ends_every_worker_and_cancels_what_they_compile(pool):
    one = pool()
    mine = in_background(lambda: one.compile("outlines", ENDLESS))
    pid = busy_worker(one)._process.pid
    one.close()
    with pytest.raises(Cancelled):
        mine.result(60)
    assert not is_alive(pid)
    with pytest.raises(Cancelled):
        one.compile("auto", Regex("a"))


def test_workers_do_not_outlive_a_parent_that_is_killed():
    program = """
import threading, time
from structspec import GrammarCompiler, Regex, Vocabulary
compiler = GrammarCompiler(Vocabulary.bytes())
compiler.submit(Regex("(.*a.{22}|.*b.{24})*"), "outlines")
while not any(worker._is_started for worker in list(compiler._workers._busy)):
    time.sleep(0.01)
print(*(worker._process.pid for worker in compiler._workers._busy), flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
        parent.wait()
    until(lambda: not is_alive(pid))


def test_a_program_needs_no_main_guard(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "from structspec import GrammarCompiler, Choice, Vocabulary\n"
        "compiler = GrammarCompiler(Vocabulary.bytes())\n"
        "texts = tuple(f'number {i}' for i in range(2000))\n"
        "print(compiler.submit(Choice(texts)).result(60).matcher().forced(7).decode())\n"
        "compiler.close()\n"
    )
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("number \n", "")


def test_what_a_process_compiled_is_what_a_thread_would_have():
    compiler = GrammarCompiler(VOCABULARY)
    matcher = compiler.submit(LONG).result(60).matcher()
    assert compiler._workers._idle, "it was compiled in a process"
    assert matcher.forced(100) == b"number "
    assert all(map(matcher.accept, b"number 1999"))
    assert not matcher.accept(ord("9"))
    assert matcher.accept(256)
    compiler.close()
    assert not compiler._workers._idle


def test_text_comes_back_from_the_greedy_encoder():
    tokens = [b"a", b"ab", None, "é".encode(), b"\xc3", b"\xa9", b"b"]
    encode = greedy_encoder(tokens)
    assert encode("abaéb") == [1, 0, 3, 6]
    with pytest.raises(ValueError, match="no token"):
        encode("x")


def slow_text() -> str:
    """A grammar that takes llguidance a good part of a second."""
    return "start: r0\n" + "\n".join(f'r{i}: "a"? r{(i + 1) % 900}? "b"?' for i in range(900))


def deeply_nested(depth: int) -> str:
    return '{"items": ' * depth + "{}" + "}" * depth


def of_a_megabyte(number: int) -> JsonSchema:
    names = [f"a property with a long name and number {number + i}" for i in range(12_000)]
    return JsonSchema({"properties": {n: {"pattern": "^[a-z]{1,9}$"} for n in names}})


STORM: list[Constraint] = [
    *(of_a_megabyte(number) for number in range(3)),
    *(Regex(f"((a{{1000}}){{1000}}){{{1000 + number}}}") for number in range(3)),
    *(Choice(tuple(f"choice {n} of {number}" for n in range(10_000))) for number in range(3)),
    *(JsonSchema({"enum": [f"value {n} {number}" for n in range(10_000)]}) for number in range(3)),
    *(JsonSchema(deeply_nested(1000 + number)) for number in range(100)),
    *(Regex(f"(a+)+{number}") for number in range(100)),
    *(Regex(f"(.*a.{{18}}|.*b.{{{number}}})*") for number in range(100)),
]


def tree_bytes() -> int:
    """The resident memory of this process and its workers."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            # until it becomes another program, a child shows its parent's memory as its own
            is_worker = b"compile_process" in stat.with_name("cmdline").read_bytes()
        except OSError:
            continue  # it ended
        me = os.getpid()
        if int(stat.parent.name) == me or (int(fields[1]) == me and is_worker):
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total


def test_in_a_storm_everyone_gets_a_verdict_and_nobody_else_waits():
    """312 ReDoS, huge, deep and 1 MB constraints at once, within 2 s and 256 MB each.

    The process tree grows by less than 1 GiB: two workers, each a Python of some 100 MB and at
    most 256 MB more, and what the parent builds again of their results.
    """
    before, peak, is_over = tree_bytes(), [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            peak[0] = max(peak[0], tree_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    compiler = GrammarCompiler(VOCABULARY, timeout_s=2.0, max_memory_bytes=256 * MEBIBYTE)
    finished: list[int] = []
    futures = [compiler.submit(constraint) for constraint in STORM]
    small = compiler.submit(Regex("[a-z]{3}"))
    for number, future in enumerate([*futures, small]):
        future.add_done_callback(lambda _, number=number: finished.append(number))
    assert not wait([*futures, small], 240).not_done
    is_over.set()
    watcher.join()
    compiler.close()
    assert small.exception() is None
    slow = finished.index(len(STORM)) < min(map(finished.index, range(3)))
    assert slow, "a small constraint waited for the schemas of a megabyte"
    verdicts = [future.exception() for future in futures]
    assert all(error is None or isinstance(error, GrammarError) for error in verdicts)
    assert not any(verdicts[6:12]), "enums and choices compile"
    assert all("too deeply" in str(error) for error in verdicts[12:112])
    assert not any(verdicts[112:]), "no regex is exponential here"
    assert before < peak[0] < before + 1024 * MEBIBYTE
