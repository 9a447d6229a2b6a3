"""A compile that takes too long is interrupted, wherever it is at that moment."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from structspec.compile_threads import CompileThreads, Job, Steps
from structspec.constraint import Regex


def run_for_ever_in_callbacks(ended: threading.Event) -> None:
    """Most of the time in a function that C calls, and that can raise nothing."""

    @ctypes.CFUNCTYPE(None)
    def callback() -> None:
        for _ in range(10):
            time.sleep(0.0002)

    try:
        while True:
            callback()
            time.sleep(0.0005)
    finally:
        ended.set()


def test_interrupts_that_come_while_c_calls_back_are_not_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(8):
        ended, late = threading.Event(), threading.Event()
        steps = Steps(
            begin=lambda job: True,
            compile=lambda job, ended=ended: run_for_ever_in_callbacks(ended),
            finish=lambda job, result: None,
            late=lambda job, late=late: late.set(),
            idle=lambda: None,
        )
        threads = CompileThreads("test", 1, steps, limit_s=0.05, idle_s=0.1)
        threads.put(Job("key", "digest", Regex("a"), "llguidance", 1))
        assert late.wait(10)
        assert ended.wait(10)
        threads.close()
    assert not capsys.readouterr().err
