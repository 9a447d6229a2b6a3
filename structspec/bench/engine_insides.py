"""What measurements need of an engine and nobody else does: all reaching inside is here."""

from __future__ import annotations

from typing import cast

import torch

from structspec.engine.engine import Engine
from structspec.engine.memory import max_num_drafts, max_num_logits_rows
from structspec.models.network import Network
from structspec.service import Service


def engine_of(service: Service) -> Engine:
    """Used by the engine's own thread: to be touched only while no request runs."""
    return service._engine_loop._engine


def network_of(service: Service) -> Network:
    """The target model."""
    return cast(Network, engine_of(service)._runner._network)  # type: ignore[attr-defined]


def kv_tokens_of(service: Service) -> int:
    """How many tokens' keys and values there is room for."""
    cache = engine_of(service)._runner.kv_cache  # type: ignore[attr-defined]
    return int(cache.num_blocks * cache.block_size)


def most_guesses(service: Service, num_requests: int) -> int:
    """How many guesses each of so many requests has room for in one step."""
    config = engine_of(service).scheduler._config
    room = config.max_num_batched_tokens // num_requests - 1
    most = max_num_logits_rows(config) // num_requests - 1
    return min(max_num_drafts(config), most, room)


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
