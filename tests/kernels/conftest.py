"""Where the Triton kernels of these tests run: on the GPU, or on the CPU in the interpreter."""

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
