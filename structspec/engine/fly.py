"""Wrong drafts that may pass all the same, which changes what is written: the method "fly".

Li et al., "Training-Free Loosely Speculative Decoding" (2025): where a model wavers between tokens
and then agrees with everything behind the draft, its own token would have said the same in another
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from structspec.speculative_config import SpeculativeConfig
from structspec.verification import window_size


@dataclass(frozen=True, slots=True)
class Fly:
    """A rejected draft passes if the next `window` are accepted and the target is unsure of it."""

    window: int
    entropy_threshold: float  # nats
    top_k: int

    @staticmethod
    def of(config: SpeculativeConfig) -> Fly:
        """As the settings say."""
        return Fly(window_size(config), config.fly_entropy_threshold, config.fly_entropy_top_k)

    def find(self, is_accepted: Sequence[bool], num_valid: int) -> list[int]:
        """Which of a request's rejected drafts have a whole window of accepted ones behind them.

        The window ends before the draft at `num_valid`, and so does everything that may pass.
        """
        end = min(len(is_accepted), num_valid)
        return [
            place
            for place in range(end - self.window)
            if not is_accepted[place] and all(is_accepted[place + 1 : place + 1 + self.window])
        ]

    def is_unsure(
        self,
        target_probs: Tensor,  # [num_rows, vocab_size] float32
        draft_token_ids: Tensor,  # [num_rows] int64
    ) -> Tensor:
        """Whether the draft is possible and the best tokens' entropy reaches the threshold."""
        best = target_probs.topk(min(self.top_k, target_probs.shape[1]), dim=-1).values
        entropy = -(best * best.clamp(min=1e-38).log()).sum(dim=-1)
        is_possible = target_probs.gather(1, draft_token_ids[:, None])[:, 0] > 0
        return is_possible & (entropy >= self.entropy_threshold)
