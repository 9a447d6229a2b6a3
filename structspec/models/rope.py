"""Cosines and sines of the rotary embedding, for every position at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from structspec.models.config import RopeConfig


def rope_table(config: RopeConfig, head_dim: int, num_positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin, each [num_positions, head_dim / 2] float32."""
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = torch.outer(positions, _frequencies(config, head_dim))
    return angles.cos(), angles.sin()


def _frequencies(config: RopeConfig, head_dim: int) -> Tensor:  # [head_dim / 2]
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / config.theta**exponents
    if config.kind == "linear":
        return frequencies / config.factor
    if config.kind == "factors":
        return frequencies / torch.tensor(config.factors)
    if config.kind == "llama3":
        return _stretch_long_waves(frequencies, config)
    return frequencies


def _stretch_long_waves(frequencies: Tensor, config: RopeConfig) -> Tensor:
    # turns: how often a wave turns within the original context. Waves that turn often keep their
    # frequency, those that hardly turn are divided by `factor`, between the two it is blended.
    turns = config.original_max_len * frequencies / (2 * math.pi)
    width = config.high_freq_factor - config.low_freq_factor
    share_kept = ((turns - config.low_freq_factor) / width).clamp(0.0, 1.0)
    return share_kept * frequencies + (1.0 - share_kept) * frequencies / config.factor
