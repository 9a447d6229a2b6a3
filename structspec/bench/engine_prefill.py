"""How fast prompts are read, beside how fast this device multiplies matrices at all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import torch

from structspec.bench.engine_insides import network_of, synchronize
from structspec.bench.engine_runs import Figure, Patience, run_prepared, with_random_prompt
from structspec.models.config import LlamaConfig
from structspec.service import Service

_MATRIX_SIZE = {"cuda": 8192, "cpu": 512}
_ONE_TOKEN = ("x", {"max_tokens": 1, "temperature": 0.0, "ignore_eos": True})


def run_prefill(
    service: Service, *, num_prompts: int, prompt_len: int, rounds: int, patience: Patience
) -> Iterator[Figure]:
    """Random prompts at once, one token each; shorter ones where the context is. A first warms up.

    The figure's operations are those that are needed: see `count_operations`.
    """
    prompt_len = min(prompt_len, service.max_model_len - 1)
    seconds: list[float] = []
    for index in range(rounds + 1):
        if patience.is_over and seconds:
            break
        prepared = [
            with_random_prompt(service, _ONE_TOKEN, prompt_len, seed=index * num_prompts + place)
            for place in range(num_prompts)
        ]
        finished = run_prepared(service, prepared)
        if index > 0:
            seconds.append(max(finished.finished_at) - finished.started_at)
    network = network_of(service)
    rate = measure_matrix_rate(network.device, network.dtype)
    middle = statistics.median(seconds)
    figure: Figure = {
        "part": "prefill",
        "prompts": num_prompts,
        "prompt_tokens": prompt_len,
        "seconds": middle,
        "seconds_of_runs": seconds,
        "tokens_per_second": num_prompts * prompt_len / middle,
        "matrix_tflops": rate / 1e12,
    }
    if isinstance(network.config, LlamaConfig):
        done = num_prompts * count_operations(network.config, prompt_len) / middle
        figure |= {"tflops": done / 1e12, "share_of_matrix_rate": done / rate}
    yield figure


def count_operations(config: LlamaConfig, prompt_len: int) -> float:
    """Multiplications and additions to read one prompt, with logits of its last token alone.

    Attention's are those of the keys that each row sees: its own and those before it.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
    layer = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * inner
    products = config.num_layers * layer * prompt_len + hidden * config.vocab_size
    seen = prompt_len * (prompt_len + 1) // 2
    attention = config.num_layers * 2 * queries * seen  # with keys, and with values
    return 2.0 * (products + attention)


def measure_matrix_rate(device: torch.device, dtype: torch.dtype, num_runs: int = 20) -> float:
    """Operations per second of a large product of random square matrices, the median."""
    size = _MATRIX_SIZE[device.type]
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    times = []
    for index in range(num_runs + 3):
        synchronize(device)
        start = time.perf_counter()
        torch.matmul(left, right)
        synchronize(device)
        if index >= 3:
            times.append(time.perf_counter() - start)
    return 2.0 * size**3 / statistics.median(times)
