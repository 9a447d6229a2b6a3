"""Models: where they come from, their tokenizers, and the network that runs them."""

from structspec.models.loading import (
    KNOWN_MODELS,
    GenerationDefaults,
    LoadedModel,
    find_model,
    load_model,
)

__all__ = ["KNOWN_MODELS", "GenerationDefaults", "LoadedModel", "find_model", "load_model"]
