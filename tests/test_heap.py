"""The heap of a process that serves: what its threads share, and what no collection looks at."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import weakref

import pytest

from structspec.heap import bound_heap, kept_from_collector

COUNT = """
import ctypes, os, sys, tempfile, threading
from structspec.heap import bound_heap

if sys.argv[1] == "bounded":
    bound_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
gate = threading.Barrier(6)

def use():
    libc.malloc(4096)
    gate.wait()  # all of them live at once

threads = [threading.Thread(target=use) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tempfile.NamedTemporaryFile() as file:
    stream = libc.fopen(file.name.encode(), b"w")
    libc.malloc_info(0, ctypes.c_void_p(stream))
    libc.fclose(ctypes.c_void_p(stream))
    print(file.read().count(b"<heap nr="))
"""


_SAYS = "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"


def num_heaps(how: str, **environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if name not in _SAYS}
    found = subprocess.run(
        [sys.executable, "-c", COUNT, how],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(found.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="no glibc")
def test_threads_share_two_heaps_unless_the_environment_says_how_many():
    assert num_heaps("as it is") > 3
    assert num_heaps("bounded") == 2
    assert num_heaps("bounded", MALLOC_ARENA_MAX="3") == 3
    assert num_heaps("bounded", GLIBC_TUNABLES="glibc.malloc.arena_max=3") == 3


def test_nothing_happens_where_no_library_is_without_a_name(monkeypatch):
    """What `ctypes` says under Windows."""

    def refuse(name: None) -> None:
        raise TypeError("argument of type 'NoneType' is not iterable")

    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    bound_heap()


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_what_is_there_is_passed_over_by_collections_and_freed_behind() -> None:
    old = Circle()
    kept = weakref.ref(old)
    with kept_from_collector():
        new = weakref.ref(Circle())
        del old
        gc.collect()
        assert kept() is not None and new() is None
    gc.collect()
    assert kept() is None and gc.get_freeze_count() == 0
