"""A small index without a network: texts are near each other if they share words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

NUM_BUCKETS = 256


class WordEmbedding(BaseEmbedding):
    """How often each word comes, by its hash."""

    def _get_text_embedding(self, text: str) -> list[float]:
        counts = [0.0] * NUM_BUCKETS
        for word in re.findall(r"\w+", text.lower()):
            counts[zlib.crc32(word.encode()) % NUM_BUCKETS] += 1
        return counts

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def index_of(texts: Sequence[str], **options: Any) -> VectorStoreIndex:
    """An index of these texts, each a node of its own."""
    nodes = [TextNode(text=text) for text in texts]
    return VectorStoreIndex(nodes, embed_model=WordEmbedding(), **options)
