"""Fetch a model from the Hugging Face hub, or find it in the local cache."""

from __future__ import annotations

import re
from pathlib import Path

from structspec.errors import ModelNotFound
from structspec.models.folder import INDEX_FILE, SINGLE_FILE
from structspec.tokenizer_files import read_json

_SETTINGS = ("generation_config.json", "tokenizer_config.json", "chat_template.jinja")


def looks_like_hub_id(model: str) -> bool:
    """Whether this is written as org/name."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", model) is not None and not model.startswith(".")


def download(hub_id: str) -> Path:
    """The local folder of a hub model, through transformers' cache; raises ModelNotFound."""
    from transformers.utils import cached_file  # slow to import, and only needed here

    def fetch(name: str, *, is_optional: bool = False) -> Path | None:
        try:
            path = cached_file(
                hub_id,
                name,
                _raise_exceptions_for_missing_entries=not is_optional,
            )
        except OSError as error:  # offline, unknown and gated are all raised as this
            reason = " ".join(str(error).split())
            raise ModelNotFound(
                f"{hub_id} cannot be had from the Hugging Face hub ({name}): {reason} Tried the"
                " local cache and the network. Check the id and the connection, log in if the"
                " model is gated, or give the path of a local folder or .gguf file"
            ) from error
        return None if path is None else Path(path)

    config = fetch("config.json")
    fetch("tokenizer.json")
    for name in _SETTINGS:
        fetch(name, is_optional=True)
    index = fetch(INDEX_FILE, is_optional=True)
    files = set(read_json(index)["weight_map"].values()) if index else {SINGLE_FILE}
    for name in sorted(files):
        fetch(name)
    assert config is not None
    return config.parent
