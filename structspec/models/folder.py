"""Load a folder as the Hugging Face hub keeps models: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors import SafetensorError, safe_open

from structspec.errors import ModelError, ModelNotFound
from structspec.models.tokenizer import Tokenizer, make_tokenizer
from structspec.tokenizer_files import eos_token_ids, read_json

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


class SafetensorsWeights(Mapping[str, torch.Tensor]):
    """The tensors of one or several safetensors files; each access reads from disk."""

    def __init__(self, folder: Path) -> None:
        index = folder / INDEX_FILE
        if index.is_file():
            file_names: dict[str, str] = read_json(index)["weight_map"]
            paths = {folder / name for name in file_names.values()}
        else:
            paths = set(folder.glob("*.safetensors"))
        if not paths:
            raise ModelNotFound(f"{folder} has no *.safetensors weights")
        self._readers: dict[str, Any] = {}
        for path in sorted(paths):
            if not path.is_file():
                raise ModelNotFound(f"{INDEX_FILE} names {path.name}, which is not in {folder}")
            try:
                reader: Any = safe_open(path, framework="pt")
            except SafetensorError as error:
                raise ModelError(f"{path} is damaged: {error}") from None
            self._readers.update(dict.fromkeys(reader.keys(), reader))

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._readers[name].get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def tokenizer_from_folder(folder: Path, vocab_size: int) -> Tokenizer:
    """The folder's tokenizer with its chat template; raises ModelNotFound where there is none."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelNotFound(f"{folder} has no tokenizer.json; other tokenizers are not read")
    settings = read_json(folder / "tokenizer_config.json", is_optional=True)
    return make_tokenizer(
        tokenizers.Tokenizer.from_file(str(path)),
        vocab_size=vocab_size,
        eos_token_ids=eos_token_ids(folder),
        chat_template=_chat_template(folder, settings),
        special_tokens=_special_tokens(settings),
    )


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    own_file = folder / "chat_template.jinja"
    if own_file.is_file():
        return own_file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named ones
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    given = {name: settings.get(name) for name in names}
    return {
        name: token["content"] if isinstance(token, dict) else token
        for name, token in given.items()
        if token is not None
    }
