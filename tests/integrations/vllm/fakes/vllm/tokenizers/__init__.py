"""Tokenizers."""

from __future__ import annotations

from typing import Any


def cached_tokenizer_from_config(model_config: Any, **kwargs: Any) -> Any:
    """The model's tokenizer."""
    return model_config.the_tokenizer
