"""Where models come from, and what is said when one cannot be had."""

from __future__ import annotations

import json
import shutil
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from structspec.errors import InvalidRequest, ModelError, ModelNotFound, OutOfMemory
from structspec.models import find_model, load_model, loading
from structspec.models.config import config_from_json
from structspec.models.dummy import DummyWeights
from structspec.models.folder import INDEX_FILE, SINGLE_FILE, SafetensorsWeights
from structspec.models.gguf_file import GgufFile
from structspec.models.gguf_model import GgufWeights, config_from_gguf
from structspec.models.llama import Llama
from structspec.models.loading import choose_device, choose_dtype
from tests.models.reference import save_tiny_model

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "llama")
    return folder


@pytest.fixture
def copy_of_tiny(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def change_json(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(data | changes))


def test_shards_hold_the_same_weights_as_one_file(tiny: Path, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, "llama", max_shard_size="60KB")
    assert (tmp_path / INDEX_FILE).exists() and not (tmp_path / SINGLE_FILE).exists()
    whole, sharded = SafetensorsWeights(tiny), SafetensorsWeights(tmp_path)
    assert set(whole) == set(sharded)
    assert all(torch.equal(whole[name], sharded[name]) for name in whole)
    assert load_model(tmp_path).config == load_model(tiny).config


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, "llama", max_shard_size="60KB")
    shard = min(tmp_path.glob("model-*.safetensors"))
    shard.unlink()
    with pytest.raises(ModelNotFound, match=shard.name):
        load_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", SINGLE_FILE])
def test_a_missing_file_is_named(copy_of_tiny: Path, name: str) -> None:
    (copy_of_tiny / name).unlink()
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json|config\.json|safetensors") as caught:
        load_model(copy_of_tiny)
    assert Path(name).suffix in str(caught.value)


def test_a_missing_weight_is_named(copy_of_tiny: Path) -> None:
    change_json(copy_of_tiny / "config.json", num_hidden_layers=3)
    with pytest.raises(ModelError, match=r"model\.layers\.2\.input_layernorm\.weight"):
        load_model(copy_of_tiny)


@pytest.mark.parametrize("is_tied", [False, True], ids=["own-head", "tied-head"])
def test_each_weight_is_read_once(is_tied: bool) -> None:
    config = config_from_json({**LLAMA, "tie_word_embeddings": is_tied})
    stored = DummyWeights(config, torch.float32, torch.device("cpu"))
    num_reads: Counter[str] = Counter()

    class Counted(dict[str, torch.Tensor]):
        def __getitem__(self, name: str) -> torch.Tensor:
            num_reads[name] += 1
            return super().__getitem__(name)

    Llama(config, Counted(stored), torch.float32, torch.device("cpu"))
    assert num_reads == Counter(set(stored))


def test_an_unknown_name_lists_what_would_work() -> None:
    with pytest.raises(ModelNotFound) as caught:
        load_model("smollm3")
    for hint in ("smollm3", "smollm2-135m", ".gguf", "config.json", "org/name"):
        assert hint in str(caught.value)


def test_a_hub_id_without_network_says_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFound, match="nobody/nothing.*local cache"):
        load_model("nobody/nothing")


def test_an_architecture_that_nobody_knows_is_named(copy_of_tiny: Path) -> None:
    change_json(copy_of_tiny / "config.json", model_type="chameleon9")
    with pytest.raises(ModelError, match="chameleon9"):
        load_model(copy_of_tiny)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        ({"partial_rotary_factor": 0.5}, "rotating only a part"),
        ({"num_key_value_heads": 3}, "divide evenly"),
    ],
    ids=["activation", "rope", "partial-rotation", "heads"],
)
def test_what_would_change_the_result_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        config_from_json(LLAMA | changes)


def test_a_config_without_a_shape_names_the_key() -> None:
    with pytest.raises(ModelError, match="config.json lacks 'vocab_size'"):
        config_from_json({"model_type": "llama", "num_attention_heads": 1})


def test_sliding_windows_limit_the_context_where_they_are_used() -> None:
    assert config_from_json(LLAMA | {"sliding_window": 64}).max_model_len == 64
    unused = {"sliding_window": 64, "use_sliding_window": False}
    assert config_from_json(LLAMA | unused).max_model_len == 512


def test_both_spellings_of_rope_mean_the_same() -> None:
    scaling = {"rope_type": "linear", "factor": 2.0}
    old = config_from_json(LLAMA | {"rope_theta": 5e5, "rope_scaling": scaling})
    new = config_from_json(LLAMA | {"rope_parameters": scaling | {"rope_theta": 5e5}})
    assert old == new and old.rope.theta == 5e5 and old.rope.factor == 2.0


def test_context_can_be_shortened_but_not_stretched(tiny: Path) -> None:
    assert load_model(tiny, max_model_len=50).config.max_model_len == 50
    with pytest.raises(InvalidRequest, match="129 is beyond the model's context of 128"):
        load_model(tiny, max_model_len=129)


def test_sampling_defaults_come_from_the_generation_config(copy_of_tiny: Path) -> None:
    path = copy_of_tiny / "generation_config.json"
    change_json(path, do_sample=True, temperature=0.6, top_p=0.9, eos_token_id=[256, 258])
    loaded = load_model(copy_of_tiny)
    assert (loaded.generation.temperature, loaded.generation.top_p) == (0.6, 0.9)
    assert loaded.generation.top_k is None
    assert loaded.tokenizer.stop_token_ids == (256, 257, 258)  # 257 is a well-known end
    change_json(path, do_sample=False)
    assert load_model(copy_of_tiny).generation.temperature is None


@pytest.mark.parametrize("kind", ["file", "string", "named", "token-object"])
def test_chat_template_is_found_wherever_it_is_kept(copy_of_tiny: Path, kind: str) -> None:
    template = "{{ eos_token }}{{ messages[0].content }}"
    settings: dict[str, Any] = {"eos_token": "E", "chat_template": template}
    if kind == "file":
        (copy_of_tiny / "chat_template.jinja").write_text(template)
        settings.pop("chat_template")
    elif kind == "named":
        settings["chat_template"] = [{"name": "default", "template": template}]
    elif kind == "token-object":
        settings["eos_token"] = {"content": "E", "lstrip": False}
    change_json(copy_of_tiny / "tokenizer_config.json", **settings)
    tokenizer = load_model(copy_of_tiny).tokenizer
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]) == "EHi"


def test_gguf_is_loaded_by_path_as_by_name(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.symlink_to(find_model("smollm2-135m"))
    assert find_model(str(path)) == path
    assert config_from_gguf(GgufFile(path)).num_layers == 30


@pytest.mark.parametrize(
    ("keep", "complaint"),
    [(lambda data: b"nonsense" + data, "not a GGUF"), (lambda data: data[:-1], "cut short")],
    ids=["other-format", "truncated"],
)
def test_a_damaged_gguf_is_refused(tmp_path: Path, keep: Any, complaint: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(keep(find_model("smollm2-135m").read_bytes()))
    with pytest.raises(ModelError, match=complaint):
        load_model(path)


def test_a_gguf_cut_inside_its_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(find_model("smollm2-135m").read_bytes()[:100_000])
    with pytest.raises(ModelError, match="damaged"):
        load_model(path)


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_device_that_is_not_there_is_named(
    device: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match=f"device='{device}'"):
        load_model(tiny, device=device)


def test_gguf_tensors_equal_what_the_gguf_package_reads() -> None:
    gguf = pytest.importorskip("gguf")
    path = find_model("smollm2-135m")
    file, reader = GgufFile(path), gguf.GGUFReader(path)
    assert set(file) == {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors[::40]:
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert torch.equal(file[tensor.name], torch.from_numpy(expected.copy()))
    for key in ("llama.rope.freq_base", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
        assert file.metadata[key] == reader.get_field(key).contents()


def test_gguf_weights_cover_the_whole_model() -> None:
    file = GgufFile(find_model("smollm2-135m"))
    config = config_from_gguf(file)
    weights = GgufWeights(file, config)
    assert len(weights) == len(file)
    assert sum(weights[name].numel() for name in weights) == 134_515_008  # 135 M


def test_a_model_that_runs_with_transformers_code_is_not_batch_invariant_on_a_gpu(
    copy_of_tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_json(copy_of_tiny / "config.json", hidden_act="gelu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ModelError, match="pass batch_invariant=False"):
        load_model(copy_of_tiny, device="cuda", batch_invariant=True)


def test_weights_that_do_not_fit_are_a_typed_error_which_keeps_none_of_them(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[weakref.ref[torch.Tensor]] = []

    def run_out(config: Any, weights: Any, dtype: Any, device: Any, **options: Any) -> Any:
        tensor = weights["model.norm.weight"].clone()
        loaded.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError("Tried to allocate 9 GiB. Of the allocated memory 1 GiB is")

    monkeypatch.setattr(loading, "Llama", run_out)
    with pytest.raises(OutOfMemory, match=r"\(Tried to allocate 9 GiB.\): take a smaller model"):
        load_model(tiny)
    assert loaded[0]() is None


def test_auto_is_what_the_machine_has_and_is_fastest_with() -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_dtype("float16", torch.device("cpu")) == torch.float16
    assert choose_dtype(torch.float32, torch.device("cuda")) == torch.float32


@pytest.mark.parametrize("dtype", ["float8", "tensor", torch.int8, "cuda"])
def test_a_type_that_no_model_runs_in_is_named(dtype: Any) -> None:
    with pytest.raises(ModelError, match=r"dtype=.*bfloat16"):
        choose_dtype(dtype, torch.device("cpu"))
