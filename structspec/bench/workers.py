"""Judging many cases in worker processes; one that dies costs only the case it had in hand."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from structspec.bench.cases import Case
from structspec.bench.columns import Subject
from structspec.bench.judge import Judge
from structspec.bench.limits import Limits
from structspec.bench.outcome import Outcome
from structspec.bench.vocabularies import load_vocabulary
from structspec.errors import EngineError
from structspec.vocabulary import Vocabulary

_STDERR_TAIL = 2000
_WARM_UP = Case("", "", (), "json_schema", {"type": "object", "properties": {"a": {}}}, ())


@dataclass(frozen=True, slots=True)
class Setting:
    """What every worker of a column needs to know; it travels to another process."""

    make_subject: Callable[[Vocabulary], Subject]
    vocabulary: str
    limits: Limits = Limits()
    num_workers: int = os.cpu_count() or 1


def judge_all(
    cases: Sequence[Case], setting: Setting, on_outcome: Callable[[Outcome], object]
) -> list[Outcome]:
    """The outcomes in the order of the cases; `on_outcome` hears of each as it comes."""
    outcomes: dict[int, Outcome] = {}
    waiting = list(range(len(cases)))[::-1]
    workers = [_Worker(setting) for _ in range(min(setting.num_workers, len(cases)))]
    try:
        while len(outcomes) < len(cases):
            by_connection: dict[Any, _Worker] = {worker.connection: worker for worker in workers}
            for connection in wait(list(by_connection)):
                worker = by_connection[connection]
                index = worker.in_hand
                outcome = worker.receive(None if index is None else cases[index].id)
                if index is not None and outcome is not None:
                    outcomes[index] = outcome
                    on_outcome(outcome)
                if worker.is_dead:
                    workers.remove(worker)
                    if waiting:
                        workers.append(_Worker(setting))
                elif waiting:
                    worker.send(waiting.pop(), cases)
                else:
                    workers.remove(worker)
                    worker.close()
    finally:
        for worker in workers:
            worker.close()
    return [outcomes[index] for index in range(len(cases))]


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, setting: Setting) -> None:
        self._limits = setting.limits
        self._stderr = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the worker
        self.in_hand: int | None = None
        self.is_dead = False
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, setting, self._stderr.name)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def send(self, index: int, cases: Sequence[Case]) -> None:
        """Hand it a case."""
        self._stderr.truncate(0)
        self.in_hand = index
        self.connection.send(cases[index])

    def receive(self, case_id: str | None) -> Outcome | None:
        """The outcome of the case in hand; None when the worker only says that it is ready."""
        try:
            message = self.connection.recv()
        except EOFError:
            self._process.join()
            self.is_dead = True
            reason = self._limits.explain_death(self._process.exitcode)
            said = self._last_words()
            self.close()
            if case_id is None:
                raise EngineError(f"a bench worker could not start: {reason}\n{said}") from None
            return Outcome(case_id, "crash", f"{reason}; it said: {said}" if said else reason)
        self.in_hand = None
        return message if isinstance(message, Outcome) else None

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()
        self._stderr.close()

    def _last_words(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_TAIL))
        return self._stderr.read().decode(errors="replace").strip()


def _serve(connection: Connection, setting: Setting, stderr_path: str) -> None:
    """The worker: judge what comes, until killed."""
    # the libraries write to it from native code too
    os.dup2(os.open(stderr_path, os.O_WRONLY | os.O_APPEND), 2)
    vocabulary = load_vocabulary(setting.vocabulary)
    subject = setting.make_subject(vocabulary)
    judge = Judge(subject, vocabulary, setting.limits.renew)
    judge.judge(_WARM_UP)  # imports and compiles what is made on first use
    setting.limits.pause()
    setting.limits.apply_memory()
    connection.send(None)  # ready
    while True:
        case = connection.recv()
        outcome = judge.judge(case)
        setting.limits.pause()
        connection.send(outcome)
