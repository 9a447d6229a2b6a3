"""Validated structured output from language models, faster than free text.

Everything public is listed here. The engine (`LLM` and its companions) needs torch and is loaded
on first use; the rest is ready after a plain `import structspec`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from structspec.config import EngineConfig
from structspec.constraint import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    StructuralTag,
    Tools,
)
from structspec.errors import (
    Cancelled,
    CompileTimeout,
    EngineError,
    GenerationError,
    GrammarError,
    InvalidRequest,
    ModelError,
    ModelNotFound,
    NothingAllowed,
    OutOfMemory,
    OutputInvalid,
    PromptTooLong,
    ServerError,
    StructspecError,
    Truncated,
    UnsupportedConstraint,
)
from structspec.reasoning import Reasoning
from structspec.request import SamplingParams, Usage
from structspec.speculation import Speculation
from structspec.speculative_config import SpeculativeConfig
from structspec.token_detail import TokenDetail
from structspec.token_logprob import TokenLogprob
from structspec.vocabulary import Vocabulary

if TYPE_CHECKING:
    from structspec.async_llm import AsyncLLM
    from structspec.choosing import Chosen
    from structspec.client.async_client import AsyncClient
    from structspec.client.sync_client import Client
    from structspec.compiler import GrammarCompiler
    from structspec.explanation import Explanation, explain
    from structspec.generation import Generation
    from structspec.hooks import HookEvent
    from structspec.llm import LLM
    from structspec.tool_calls import ToolCall, parse_tool_calls
    from structspec.tool_conversation import ToolRun

_LAZY = {
    "AsyncClient": "structspec.client.async_client",
    "AsyncLLM": "structspec.async_llm",
    "Chosen": "structspec.choosing",
    "Client": "structspec.client.sync_client",
    "Explanation": "structspec.explanation",
    "Generation": "structspec.generation",
    "GrammarCompiler": "structspec.compiler",
    "HookEvent": "structspec.hooks",
    "LLM": "structspec.llm",
    "ToolCall": "structspec.tool_calls",
    "ToolRun": "structspec.tool_conversation",
    "explain": "structspec.explanation",
    "parse_tool_calls": "structspec.tool_calls",
}

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncLLM",
    "Cancelled",
    "Choice",
    "Chosen",
    "Client",
    "CompileTimeout",
    "Constraint",
    "EngineConfig",
    "EngineError",
    "Explanation",
    "Generation",
    "GenerationError",
    "Grammar",
    "GrammarCompiler",
    "GrammarError",
    "HookEvent",
    "InvalidRequest",
    "JsonSchema",
    "LLM",
    "ModelError",
    "ModelNotFound",
    "NothingAllowed",
    "OutOfMemory",
    "OutputInvalid",
    "PromptTooLong",
    "Reasoning",
    "Regex",
    "SamplingParams",
    "ServerError",
    "Speculation",
    "SpeculativeConfig",
    "StructspecError",
    "StructuralTag",
    "TokenDetail",
    "TokenLogprob",
    "ToolCall",
    "ToolRun",
    "Tools",
    "Truncated",
    "UnsupportedConstraint",
    "Usage",
    "Vocabulary",
    "explain",
    "parse_tool_calls",
]


def __getattr__(name: str) -> Any:
    """Load the engine the first time one of its names is used (PEP 562)."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'structspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
