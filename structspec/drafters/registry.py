"""The drafter of each method."""

from __future__ import annotations

from collections.abc import Callable

import torch

from structspec.drafters.base import Drafter
from structspec.drafters.custom import make_custom
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.ngram import NgramDrafter
from structspec.drafters.ngram_gpu import NgramGpuDrafter
from structspec.drafters.prediction import PredictionDrafter
from structspec.drafters.suffix import make_suffix
from structspec.engine.batch import Batch, Draft, no_draft
from structspec.speculative_config import Method, SpeculativeConfig
from structspec.vocabulary import Vocabulary

_Maker = Callable[[Vocabulary, SpeculativeConfig], Drafter]


class NoDrafter:
    """Drafts nothing."""

    def propose(self, batch: Batch) -> Draft:
        """No tokens for anybody."""
        return no_draft(len(batch.requests))


def make_drafter(
    vocabulary: Vocabulary,
    config: SpeculativeConfig,
    device_type: str = "cpu",
    step_seconds: Callable[[int], float] | None = None,
) -> Drafter:
    """The drafter that `config` describes; raises InvalidRequest for a class that is none.

    `step_seconds`: what the model's own step with so many rows takes, where that is known.
    """
    if config.resolved_method == "ngram_gpu":
        return NgramGpuDrafter(config, torch.device(device_type))
    if config.resolved_method == "hybrid":
        return HybridDrafter(vocabulary, config, step_seconds)
    return _MAKERS[config.resolved_method](vocabulary, config)


_MAKERS: dict[Method, _Maker] = {
    "forced": lambda vocabulary, config: ForcedDrafter(vocabulary),
    "prediction": lambda vocabulary, config: PredictionDrafter(
        lambda request: request.prediction_token_ids
    ),
    "suffix": lambda vocabulary, config: make_suffix(config),
    "ngram": lambda vocabulary, config: NgramDrafter(config),
    "custom_class": make_custom,
    "none": lambda vocabulary, config: NoDrafter(),
}
