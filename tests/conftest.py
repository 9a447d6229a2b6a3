"""Triton decides when it is first imported whether its interpreter runs kernels: set that first."""

import os
import shutil

if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")
