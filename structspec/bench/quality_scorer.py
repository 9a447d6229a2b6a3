"""How likely the model itself finds a text that was written under a mask."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, ScheduledRequest, guessed
from structspec.engine.model_runner import ModelRunner
from structspec.models.loading import load_model
from structspec.request import Request, SamplingParams

_MAX_TOKENS = 1024  # of prompt and output together


class Scorer:
    """A model that only reads; not thread-safe. The last prompt's keys and values are kept."""

    def __init__(self, model: str) -> None:
        loaded = load_model(model)
        config = EngineConfig()
        self._tokenizer = loaded.tokenizer
        num_blocks = -(-_MAX_TOKENS // config.block_size)
        self._runner = ModelRunner(loaded, EngineConfig(num_blocks=num_blocks))
        self._block_table = list(range(num_blocks))
        self._prompt_ids: list[int] = []

    def encode(self, text: str) -> tuple[int, ...]:
        """A text as its tokenizer writes it."""
        return tuple(self._tokenizer.encode(text))

    def log_prob(self, prompt: str, token_ids: Sequence[int]) -> float:
        """The log-probability of these tokens as the answer to a prompt, without any mask."""
        assert token_ids
        prompt_ids = self._tokenizer.encode_chat([{"role": "user", "content": prompt}])
        assert len(prompt_ids) + len(token_ids) <= _MAX_TOKENS
        num_computed = len(prompt_ids) - 1 if prompt_ids == self._prompt_ids else 0
        request = Request(0, prompt_ids, SamplingParams(), max_tokens=len(token_ids))
        request.block_table = self._block_table
        scheduled = ScheduledRequest(request, len(prompt_ids) - num_computed, 0, True, num_computed)
        # the output as drafts: row i has the distribution of its token i
        drafts = list(token_ids[:-1])
        draft = guessed([drafts])
        logits = self._runner.forward(Batch([scheduled]), draft)  # [num_tokens, vocab_size]
        self._prompt_ids = prompt_ids
        log_probs = torch.log_softmax(logits, dim=-1)
        written = torch.tensor(token_ids).unsqueeze(1)
        return float(log_probs.gather(1, written).double().sum())
