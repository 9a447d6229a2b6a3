"""How an engine is set up; all of it frozen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from structspec.checks import check_integers, check_numbers
from structspec.errors import InvalidRequest
from structspec.speculative_config import SpeculativeConfig

AUTO = -1  # what suits the device
_CPU_DEFAULTS = {
    "max_num_requests": 64,
    "max_num_batched_tokens": 512,
    "max_num_draft_tokens": 64,
}
_GPU_DEFAULTS = {
    "max_num_requests": 256,
    "max_num_batched_tokens": 4096,
    "max_num_draft_tokens": 256,
}
_AUTO_LEAST = {"max_num_requests": 1, "max_num_batched_tokens": 1, "max_num_draft_tokens": 0}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes and limits of one engine.

    On a GPU the KV cache takes what `gpu_memory_utilization` of the whole memory leaves beside the
    weights, the largest step and what other processes hold. With `batch_invariant` a token's logits
    there have the same bits whatever else its step holds: other requests, chunks of prompts,
    drafts. So temperature 0 writes the same in any batch, with and without speculation, in bfloat16
    too. It costs speed, since no product or attention may be tiled by the number of rows. On the
    CPU float32 rows are that way already, and it changes nothing.

    With `optimistic_sampling` a GPU draws constrained tokens without a mask where that pays, and
    computes again what the grammar then refuses; what is written is the same.
    """

    block_size: int = 16  # tokens in a KV block
    num_blocks: int | None = None  # None: on a CPU 4 full contexts, at most 2 GiB; else see above
    gpu_memory_utilization: float = 0.9
    batch_invariant: bool = False
    enable_prefix_caching: bool = True  # a beginning that was computed before is not again
    max_num_requests: int = AUTO  # running at once: 64, on a GPU 256
    max_num_batched_tokens: int = AUTO  # of a step, drafts included: 512, on a GPU 4096
    # rows for drafts beside one for each of max_num_requests, all of them shared by those that
    # run, each with at most so many: 64, on a GPU 256
    max_num_draft_tokens: int = AUTO
    async_scheduling: bool = True  # on a GPU: launch a step before the one before it is read
    optimistic_sampling: bool = True  # there: ask a grammar about tokens drawn without its mask
    enforce_eager: bool = False  # on a GPU: without CUDA graphs; slower, starts sooner
    max_model_len: int | None = None  # None: what the model was trained for
    load_format: Literal["auto", "dummy"] = "auto"  # dummy: random weights, for benchmarks
    compile_timeout_s: float = 10.0
    num_compile_threads: int = 2
    compile_cache_dir: str | Path | None = None  # where compiled grammars are kept for next time
    max_compile_cache_dir_bytes: int = 2**30  # those unused the longest are deleted beyond
    log_stats_interval_s: float = 10.0  # while it is busy, to the logger "structspec"; 0 is never
    # of text, to all streams together, once there are more than four of them; 0 is no limit
    max_pieces_per_second: float = 2000.0
    speculative: SpeculativeConfig = field(default_factory=SpeculativeConfig)

    def __post_init__(self) -> None:
        check_integers(self, 1, "block_size", "num_compile_threads")
        check_integers(self, 0, "max_compile_cache_dir_bytes")
        for name, least in _AUTO_LEAST.items():
            if getattr(self, name) != AUTO:
                check_integers(self, least, name)
        for name in ("num_blocks", "max_model_len"):
            if getattr(self, name) is not None:
                check_integers(self, 1, name)
        if self.load_format not in ("auto", "dummy"):
            raise InvalidRequest(f"load_format must be 'auto' or 'dummy', not {self.load_format!r}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InvalidRequest(
                "gpu_memory_utilization must be a number above 0 and at most 1, not"
                f" {self.gpu_memory_utilization!r}"
            )
        if not isinstance(self.batch_invariant, bool):
            raise InvalidRequest(
                f"batch_invariant must be True or False, not {self.batch_invariant!r}"
            )
        if not self.compile_timeout_s > 0:
            raise InvalidRequest(
                f"compile_timeout_s must be a number above 0, not {self.compile_timeout_s!r}"
            )
        check_numbers(self, 0, 86_400, "log_stats_interval_s")
        check_numbers(self, 0, 1_000_000, "max_pieces_per_second")
        if not isinstance(self.speculative, SpeculativeConfig):
            raise InvalidRequest(
                f"speculative must be a SpeculativeConfig, not {self.speculative!r}; to draft"
                " nothing pass SpeculativeConfig(num_speculative_tokens=0)"
            )

    def resolved(self, device_type: str) -> EngineConfig:
        """With numbers in place of AUTO."""
        defaults = _GPU_DEFAULTS if device_type == "cuda" else _CPU_DEFAULTS
        missing: dict[str, Any] = {n: v for n, v in defaults.items() if getattr(self, n) == AUTO}
        return replace(self, **missing)
