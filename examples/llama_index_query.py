"""LlamaIndex: questions to an index of texts, answered by objects, all on this machine."""

import re
import zlib

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from pydantic import BaseModel, Field

from structspec.integrations.llama_index import StructSpec

TEXTS = [
    "Mount Elbert is a mountain in Colorado. It is 4401 metres high.",
    "The river Elbe is 1094 kilometres long and flows into the North Sea.",
    "A common swift weighs about 40 grams and sleeps in the air.",
]


class Fact(BaseModel):
    """What a text says of a thing."""

    thing: str = Field(max_length=30)
    number: int = Field(ge=0, le=9999)
    unit: str = Field(max_length=15)


class Words(BaseEmbedding):
    """Texts are near each other if they share words; a real one is a package of LlamaIndex's."""

    def _get_text_embedding(self, text: str) -> list[float]:
        counts = [0.0] * 256
        for word in re.findall(r"\w+", text.lower()):
            counts[zlib.crc32(word.encode()) % 256] += 1
        return counts

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def main(llm: StructSpec) -> None:
    index = VectorStoreIndex([TextNode(text=text) for text in TEXTS], embed_model=Words())
    engine = index.as_query_engine(llm=llm, output_cls=Fact, similarity_top_k=1)
    for question in ("How high is Mount Elbert?", "How long is the river Elbe?"):
        print(repr(engine.query(question).response))


if __name__ == "__main__":
    main(StructSpec("smollm2-135m", temperature=0, max_tokens=80))
