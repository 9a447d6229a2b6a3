"""Random weights of a model's shape: the names and shapes of a real checkpoint, nothing read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from structspec.config import EngineConfig
from structspec.errors import InvalidRequest, ModelNotFound
from structspec.models.config import config_from_json
from structspec.models.dummy import DummyWeights
from structspec.models.folder import SINGLE_FILE, SafetensorsWeights
from structspec.models.loading import load_model
from structspec.tokenizer_files import read_json
from tests.models.reference import save_tiny_model


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("is_tied", [False, True], ids=["own-head", "tied"])
def test_names_and_shapes_are_those_of_a_checkpoint(architecture, is_tied, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, architecture, tie_word_embeddings=is_tied)
    config = config_from_json(read_json(tmp_path / "config.json"))
    dummy = DummyWeights(config, torch.float32, torch.device("cpu"))
    real = SafetensorsWeights(tmp_path)
    assert {name: dummy[name].shape for name in dummy} == {name: real[name].shape for name in real}


def test_a_folder_without_weights_loads_and_gives_the_same_model_every_time(tmp_path) -> None:
    save_tiny_model(tmp_path, "llama")
    (tmp_path / SINGLE_FILE).unlink()
    with pytest.raises(ModelNotFound):
        load_model(tmp_path)
    embeddings = [load_model(tmp_path, load_format="dummy").network._embedding for _ in range(2)]
    assert torch.equal(*embeddings)
    assert 0.01 < embeddings[0].std() < 0.03


def test_another_format_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="load_format"):
        EngineConfig(load_format="safetensors")  # type: ignore[arg-type]
