"""The vocabulary that `--vocab` names."""

from __future__ import annotations

from structspec.vocabulary import Vocabulary

BYTES = "bytes"
SMOLLM2 = "smollm2"


def load_vocabulary(name: str) -> Vocabulary:
    """`bytes` (every byte a token), `smollm2`, or the path of a tokenizer."""
    if name == BYTES:
        return Vocabulary.bytes()
    if name == SMOLLM2:
        from structspec.models.gguf_file import GgufFile
        from structspec.models.gguf_tokenizer import tokenizer_from_gguf
        from structspec.models.loading import find_model

        return tokenizer_from_gguf(GgufFile(find_model("smollm2-135m"))).vocabulary
    return Vocabulary.from_tokenizer(name)
