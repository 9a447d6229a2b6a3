"""How an engine is set up; all of it frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from structspec.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """How drafts are made. `num_speculative_tokens` limits one request's drafts in one step."""

    num_speculative_tokens: int = 15  # with the bonus row 16 rows, as cheap on a CPU as one
    max_guess_rows: int = 12  # drafts that may well be wrong only while a step has no more rows
    prompt_lookup_min: int = 1
    prompt_lookup_max: int = 5

    def __post_init__(self) -> None:
        _check_integers(self, 0, "num_speculative_tokens", "max_guess_rows")
        _check_integers(self, 1, "prompt_lookup_min", "prompt_lookup_max")
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise InvalidRequest("prompt_lookup_min must not be above prompt_lookup_max")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes and limits of one engine.

    On a GPU the KV cache takes what `gpu_memory_utilization` of the whole memory leaves beside the
    weights, the largest step and what other processes hold. With `batch_invariant` a token's logits
    there have the same bits whatever else its step holds: other requests, chunks of prompts,
    drafts. So temperature 0 writes the same in any batch, with and without speculation, in bfloat16
    too. It costs speed, since no product or attention may be tiled by the number of rows. On the
    CPU float32 rows are that way already, and it changes nothing.
    """

    block_size: int = 16  # tokens in a KV block
    num_blocks: int | None = None  # None: on a CPU 4 full contexts, at most 2 GiB; else see above
    gpu_memory_utilization: float = 0.9
    batch_invariant: bool = False
    enable_prefix_caching: bool = True  # a beginning that was computed before is not again
    max_num_requests: int = 64  # running at once
    max_num_batched_tokens: int = 512  # token budget of a step, drafts included
    max_num_draft_tokens: int = 64  # drafts in a whole step; more requests share them
    max_model_len: int | None = None  # None: what the model was trained for
    load_format: Literal["auto", "dummy"] = "auto"  # dummy: random weights, for benchmarks
    compile_timeout_s: float = 10.0
    num_compile_threads: int = 2
    compile_cache_dir: str | Path | None = None  # where compiled grammars are kept for next time
    max_compile_cache_dir_bytes: int = 2**30  # those unused the longest are deleted beyond
    speculative: SpeculativeConfig = field(default_factory=SpeculativeConfig)

    def __post_init__(self) -> None:
        _check_integers(self, 1, "block_size", "max_num_requests", "max_num_batched_tokens")
        _check_integers(self, 1, "num_compile_threads")
        _check_integers(self, 0, "max_num_draft_tokens", "max_compile_cache_dir_bytes")
        for name in ("num_blocks", "max_model_len"):
            if getattr(self, name) is not None:
                _check_integers(self, 1, name)
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
        if not isinstance(self.speculative, SpeculativeConfig):
            raise InvalidRequest(
                f"speculative must be a SpeculativeConfig, not {self.speculative!r}; to draft"
                " nothing pass SpeculativeConfig(num_speculative_tokens=0)"
            )


def _check_integers(config: object, least: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidRequest(f"{name} must be an integer of at least {least}, not {value!r}")
