"""Limits on this process that the kernel keeps, native code or not: it dies, its parent goes on."""

from __future__ import annotations

import math
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")  # Linux alone tells a process its size


@dataclass(frozen=True, slots=True)
class Limits:
    """What one step (a compile, or one walk) may take, and how far its process may grow."""

    cpu_s: float = 10.0
    wall_s: float = 60.0  # generous: on a busy machine neighbours take turns
    memory_mb: int = 4096

    def apply_memory(self) -> None:
        """Let the address space grow by `memory_mb` from here on."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if _STATM.exists():
            now = int(_STATM.read_text().split()[0]) * resource.getpagesize()
            most = now + self.memory_mb * 2**20
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def renew(self) -> None:
        """Start the time of the next step."""
        cpu_s = math.ceil(time.process_time() + self.cpu_s)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_REAL, self.wall_s)

    def pause(self) -> None:
        """Stop the clock while there is nothing to do."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def explain_death(self, exit_code: int | None) -> str:
        """What an exit code of a limited process means."""
        if exit_code == -signal.SIGXCPU:
            return f"took more than {self.cpu_s:g} s of CPU time"
        if exit_code == -signal.SIGALRM:
            return f"took more than {self.wall_s:g} s"
        if exit_code is not None and exit_code < 0:
            return f"killed by {signal.Signals(-exit_code).name}"
        return f"ended with exit status {exit_code}"
