"""What matrix products leave behind them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from structspec.models.linear import can_pack

SHAPES = """
import re
import torch
from pathlib import Path
from structspec.models.linear import make_linear

def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
linear = make_linear(torch.zeros(64, 64))
for num_rows in range(1, 301):  # more than are kept
    linear(torch.zeros(num_rows, 64))
before = held()
for num_rows in range(301, 901):
    linear(torch.zeros(num_rows, 64))
print(held() - before)
"""


@pytest.mark.skipif(not can_pack(torch.zeros(2, 2)), reason="products are not oneDNN's here")
def test_row_counts_that_were_never_seen_do_not_cost_memory_for_ever() -> None:
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    found = subprocess.run(
        [sys.executable, "-c", SHAPES], env=environment, capture_output=True, text=True, check=True
    )
    assert int(found.stdout) < 120_000  # kB; 600 more at 0.4 MB each would be 240,000
