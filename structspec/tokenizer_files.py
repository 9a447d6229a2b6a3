"""Tokenizers on disk, with what the files beside them say about the model they belong to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structspec.errors import ModelError, ModelNotFound
from structspec.sentencepiece import spec_of_sentencepiece
from structspec.tekken import is_tekken, spec_of_tekken
from structspec.tokenizer_spec import Spec

_NAMES = ("tokenizer.json", "tekken.json", "tokenizer.model")  # the first found is read


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a model's folder tells about its vocabulary; what it does not is empty."""

    eos_tokens: tuple[str, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    vocab_size: int | None = None


def read_spec(path: Path) -> Spec:
    """The tokenizer in a file, or a folder, of any known kind, as a `tokenizer.json`.

    Raises ModelNotFound where there is none, ModelError where it cannot be read.
    """
    file = path
    if path.is_dir():
        files = [path / name for name in _NAMES if (path / name).is_file()]
        if not files:
            raise ModelNotFound(f"{path} has none of {', '.join(_NAMES)}")
        file = files[0]
    if not file.is_file():
        raise ModelNotFound(f"there is no tokenizer at {file}")
    content = file.read_bytes()
    if not content.lstrip().startswith(b"{"):
        try:
            return spec_of_sentencepiece(content)
        except ModelError as error:
            raise ModelError(f"{file}: {error}") from None
    data = read_json(file)
    if is_tekken(data):
        return spec_of_tekken(data)
    if "vocab" not in (data.get("model") or {}):
        raise ModelError(f"{file} is no tokenizer.json: it has no model with a vocab")
    return data


def read_settings(folder: Path) -> ModelSettings:
    """What the configs in a folder say; a missing one says nothing."""
    named = read_json(folder / "tokenizer_config.json", is_optional=True).get("eos_token")
    eos_token = named["content"] if isinstance(named, dict) else named
    config = read_json(folder / "config.json", is_optional=True)
    return ModelSettings(
        () if eos_token is None else (eos_token,),
        eos_token_ids(folder),
        config.get("vocab_size"),
    )


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """The end tokens of generation_config.json, else of config.json."""
    for name in ("generation_config.json", "config.json"):
        ids = read_json(folder / name, is_optional=True).get("eos_token_id")
        if ids is not None:
            return tuple(ids) if isinstance(ids, list) else (ids,)
    return ()


def read_json(path: Path, *, is_optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file; an optional one that is missing is empty."""
    if not path.is_file():
        if is_optional:
            return {}
        raise ModelNotFound(f"{path.parent} has no {path.name}")
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    return data
