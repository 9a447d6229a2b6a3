"""Put an engine together for a loaded model: on a GPU captured and running ahead, else plain."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from structspec.config import EngineConfig
from structspec.drafters.base import Drafter, Foresighted
from structspec.drafters.registry import make_drafter
from structspec.engine.block_manager import BlockManager
from structspec.engine.cost_model import CostModel, measure_steps
from structspec.engine.device_runner import DeviceRunner
from structspec.engine.device_sampler import DeviceSampler
from structspec.engine.draft_length import AdaptiveLengths, DraftLengths, TableLengths
from structspec.engine.engine import Engine, Sampler
from structspec.engine.lanes import Lanes
from structspec.engine.memory import max_num_drafts, max_num_logits_rows
from structspec.engine.model_runner import ModelRunner
from structspec.engine.outlook import Outlook
from structspec.engine.pace import Pace
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.engine.scheduler import Scheduler
from structspec.masking import Masker
from structspec.metrics import GrammarMetrics
from structspec.metrics_recorder import NO_GRAMMARS, MetricsRecorder
from structspec.models.loading import LoadedModel
from structspec.models.out_of_memory import within_memory
from structspec.verification import warn_if_lossy

logger = logging.getLogger("structspec")


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine, and the most tokens that one of its requests may have."""

    engine: Engine
    max_model_len: int


_NUM_RUNNERS_UP = 3  # of a 135M model's refused tokens they replace 6 of 10, 15 more but 2
_NUM_FREE_ON_GPU = 16  # rows of one tile: reading the weights takes longer than computing these


@dataclass(frozen=True, slots=True)
class _Parts:
    runner: ModelRunner | DeviceRunner
    sampler: Sampler
    num_blocks: int


def build_engine(
    loaded: LoadedModel,
    config: EngineConfig,
    grammar_metrics: Callable[[], GrammarMetrics] = lambda: NO_GRAMMARS,
) -> BuiltEngine:
    """To be called on the thread that will use it; `config` must be `resolved` for the device.

    Raises OutOfMemory where the device has too little for the KV cache, or for kernels and graphs.
    """
    warn_if_lossy(config.speculative)
    vocabulary = loaded.tokenizer.vocabulary
    is_cuda = loaded.network.device.type == "cuda"
    parts = within_memory(
        lambda: _device_parts(loaded, config) if is_cuda else _cpu_parts(loaded, config),
        "making kernels and graphs ready",
        "lower gpu_memory_utilization or max_num_requests, or pass enforce_eager=True",
    )
    # A request alone must always fit: preempting it could never make room.
    max_model_len = min(loaded.config.max_model_len, parts.num_blocks * config.block_size)
    block_manager = BlockManager(
        parts.num_blocks, config.block_size, keeps_prefixes=config.enable_prefix_caching
    )
    speculative = config.speculative
    is_told = speculative.num_speculative_tokens_per_batch_size is not None
    is_measured = speculative.num_speculative_tokens > 0 and not is_told
    cost = _measure(parts.runner) if is_measured else None
    step_seconds = None if cost is None else cost.of_step
    drafter = make_drafter(vocabulary, speculative, loaded.network.device.type, step_seconds)
    scheduler = Scheduler(
        config,
        block_manager,
        vocabulary,
        max_model_len,
        num_free_tokens=_NUM_FREE_ON_GPU if is_cuda else 1,
        draws_early=is_cuda and config.optimistic_sampling,
        recorder=MetricsRecorder(
            kv_cache_usage=lambda: 1 - block_manager.num_free_blocks / parts.num_blocks,
            grammar=grammar_metrics,
        ),
        draft_lengths=_draft_lengths(config, cost),
    )
    engine = Engine(
        scheduler,
        drafter,
        parts.runner,
        Masker(vocabulary, is_pinned=is_cuda),
        parts.sampler,
        runs_ahead=is_cuda and config.async_scheduling,
        pace=Pace(
            is_optimistic=is_cuda and config.optimistic_sampling,
            is_told=is_told,
            fastest=step_seconds,
        ),
        outlook=_outlook(drafter, config, scheduler.recorder.drafter_failed),
    )
    return BuiltEngine(engine, max_model_len)


def _outlook(
    drafter: Drafter, config: EngineConfig, on_fault: Callable[[], None]
) -> Outlook | None:
    """None where nothing is guessed, or not known before."""
    limit = min(max_num_drafts(config), config.speculative.guess_rows - 1)
    if limit <= 0 or not isinstance(drafter, Foresighted):
        return None
    return Outlook(drafter.glimpse, limit, on_fault=on_fault)


def _draft_lengths(config: EngineConfig, cost: CostModel | None) -> DraftLengths | None:
    """By the table that was given, else by what steps cost; None where nothing is drafted."""
    table = config.speculative.num_speculative_tokens_per_batch_size
    if table is not None:
        return TableLengths(table)
    return None if cost is None else AdaptiveLengths(cost)


def _measure(runner: ModelRunner | DeviceRunner) -> CostModel:
    start = time.perf_counter()
    seconds = measure_steps(runner.run_idle, runner.idle_sizes)
    logger.info("steps were measured after %.1f s", time.perf_counter() - start)
    return CostModel(seconds, is_padded=runner.is_padded)


def _cpu_parts(loaded: LoadedModel, config: EngineConfig) -> _Parts:
    runner = ModelRunner(loaded, config)
    vocabulary = loaded.tokenizer.vocabulary
    sampler = RejectionSampler(vocabulary.vocab_size, vocabulary.stop_token_ids, config.speculative)
    return _Parts(runner, sampler, runner.kv_cache.num_blocks)


def _device_parts(loaded: LoadedModel, config: EngineConfig) -> _Parts:
    device = loaded.network.device
    lanes = Lanes(device)
    last_token_ids = torch.zeros(max_num_logits_rows(config), dtype=torch.int64, device=device)
    runner = DeviceRunner(loaded.network, config, last_token_ids)
    sampler = DeviceSampler(
        loaded.tokenizer.vocabulary,
        runner.logits_sizes,
        max_num_drafts(config),
        last_token_ids,
        lanes,
        runner.head,
        num_runners_up=_NUM_RUNNERS_UP if config.optimistic_sampling else 0,
        speculative=config.speculative,
    )
    start = time.perf_counter()
    runner.warm_up()
    if runner.can_capture:
        pool = torch.cuda.graph_pool_handle()
        runner.capture(pool)
        sampler.capture(pool, runner.hidden)
    else:
        sampler.warm_up(runner.hidden)
    logger.info("kernels and graphs were ready after %.1f s", time.perf_counter() - start)
    return _Parts(runner, sampler, runner.kv_cache.num_blocks)
