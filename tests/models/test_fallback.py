"""Other architectures, run with our paged attention, give the logits that transformers gives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from structspec import LLM
from structspec.config import EngineConfig
from structspec.engine.model_runner import ModelRunner
from structspec.errors import InvalidRequest, ModelError, ModelNotFound
from structspec.models import LoadedModel, load_model
from structspec.models.folder import SINGLE_FILE
from structspec.models.linear import can_pack
from structspec.models.loading import load_tokenizer
from tests.engine.feeding import feed, make_request, run_step
from tests.models.reference import (
    TINY_VOCAB_SIZE,
    random_ids,
    reference_logits,
    save_tiny_model,
)

IDS = random_ids(100, TINY_VOCAB_SIZE)
SCATTERED = [17, 3, 11, 0, 8, 5, 14]  # blocks of one request, in no order

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0}
YARN["original_max_position_embeddings"] = 32
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}

# What sets each apart from a llama.
TINY_MODELS = [
    pytest.param(("gpt2", {"tie_word_embeddings": True}), id="gpt2-learned-positions-tied"),
    pytest.param(("gpt_bigcode", {}), id="gpt_bigcode-one-kv-head"),
    pytest.param(("gpt_neox", {}), id="gpt_neox-parallel-partial-rotary"),
    pytest.param(("glm", {"head_dim": 16}), id="glm-interleaved-rotary"),
    pytest.param(("opt", {"ffn_dim": 80, "word_embed_proj_dim": 48}), id="opt-positions-offset"),
    pytest.param(("phi", {}), id="phi-biases-everywhere"),
    pytest.param(("phi3", {}), id="phi3-joint-qkv"),
    pytest.param(
        ("gemma", {"head_dim": 16, "tie_word_embeddings": True}), id="gemma-wide-heads-tied"
    ),
    pytest.param(("olmo2", {}), id="olmo2-norms-behind"),
    pytest.param(("granite", {"attention_multiplier": 0.5}), id="granite-own-scale"),
    pytest.param(("cohere", {"logit_scale": 1.0}), id="cohere-parallel"),
    pytest.param(("starcoder2", {}), id="starcoder2-layer-norms"),
    pytest.param(("llama", {"hidden_act": "gelu"}), id="llama-gelu"),
    pytest.param(("qwen2", {"rope_parameters": YARN}), id="qwen2-yarn"),
    pytest.param(("qwen3_moe", EXPERTS | {"moe_intermediate_size": 32}), id="qwen3_moe-experts"),
]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small are done before a second thread wakes up."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module", params=TINY_MODELS)
def pair(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, Any]:
    """Our model and what transformers' own attention makes of IDS with the same weights."""
    folder = tmp_path_factory.mktemp("tiny")
    architecture, changes = request.param
    reference = save_tiny_model(folder, architecture, **changes)
    reference.set_attn_implementation("eager")
    return load_model(folder), reference_logits(reference, IDS)


@pytest.mark.parametrize(
    "sizes",
    [[100], [40, 23, 37], [88] + [1] * 12, [60, 16, 16, 8]],
    ids=["prefill", "chunked-prefill", "prefill-then-decode", "verification"],
)
def test_every_position_agrees_however_a_text_is_cut_into_steps(
    pair: tuple[LoadedModel, torch.Tensor], sizes: list[int]
) -> None:
    loaded, expected = pair
    runner = ModelRunner(loaded, EngineConfig(num_blocks=18))
    logits = feed(runner, make_request(IDS, SCATTERED), sizes)
    assert logits.shape == expected.shape
    assert (logits - expected).abs().max() <= 1e-3 * expected.std()


def test_two_requests_in_a_batch_do_not_meet(pair: tuple[LoadedModel, torch.Tensor]) -> None:
    loaded, expected = pair
    runner = ModelRunner(loaded, EngineConfig(num_blocks=26, block_size=8))
    first = make_request(IDS, range(0, 26, 2))
    second = make_request(IDS[:70], range(1, 19, 2))
    run_step(runner, (first, 90, 0), (second, 33, 0))
    ours = run_step(runner, (first, 1, 9), (second, 1, 30))
    tolerance = 1e-3 * expected.std()
    assert (ours[0] - expected[90:]).abs().max() <= tolerance
    assert (ours[1] - expected[33:64]).abs().max() <= tolerance


def test_the_cache_is_shaped_as_the_model_attends(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, "gpt_bigcode")
    config = load_model(tmp_path).config
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (2, 6, 1)
    assert (config.head_dim, config.vocab_size, config.max_model_len) == (8, TINY_VOCAB_SIZE, 128)


@pytest.mark.skipif(not can_pack(torch.empty(0)), reason="this CPU cannot pack weights")
@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "olmo2", "cohere"])
def test_a_row_has_the_same_bits_alone_and_verified(tmp_path: Path, architecture: str) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    save_tiny_model(tmp_path, architecture, **sizes)
    runner = ModelRunner(load_model(tmp_path), EngineConfig(num_blocks=18))
    ids = IDS[:40]
    alone = feed(runner, make_request(ids, range(4)), [1] * 40)
    assert torch.equal(feed(runner, make_request(ids, range(4, 8)), [40]), alone)
    assert torch.equal(feed(runner, make_request(ids, range(4)), [22, 16, 2]), alone)


def test_half_precision_agrees_roughly(tmp_path: Path) -> None:
    reference = save_tiny_model(tmp_path, "gpt_neox")
    expected = reference_logits(reference, IDS)
    runner = ModelRunner(load_model(tmp_path, dtype=torch.bfloat16), EngineConfig(num_blocks=18))
    logits = feed(runner, make_request(IDS, SCATTERED), [50, 1, 49])
    assert (logits - expected).abs().mean() <= 0.05 * expected.std()


def test_models_on_two_threads_do_not_take_each_others_cache(tmp_path: Path) -> None:
    reference = save_tiny_model(tmp_path, "gpt2")
    expected = reference_logits(reference, IDS)
    runners = [ModelRunner(load_model(tmp_path), EngineConfig(num_blocks=18)) for _ in range(2)]
    requests = [make_request(IDS, SCATTERED), make_request(IDS[:60], range(4))]
    with ThreadPoolExecutor() as threads:
        sizes = [[1] * 100, [1] * 60]
        for logits in threads.map(feed, runners, requests, sizes):
            assert (logits - expected[: len(logits)]).abs().max() <= 1e-3 * expected.std()


def test_greedy_text_is_that_of_transformers(tmp_path: Path) -> None:
    reference = save_tiny_model(tmp_path, "gpt_neox")
    tokenizer = load_tokenizer(tmp_path)
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Hello, who is there?"}])
    greedy = GenerationConfig(do_sample=False, max_new_tokens=40, eos_token_id=257, pad_token_id=0)
    expected = reference.generate(torch.tensor([prompt]), generation_config=greedy)[0]
    with LLM(tmp_path) as llm:
        result = llm.generate_raw("Hello, who is there?", max_tokens=40, temperature=0.0)
    assert list(result.token_ids) == expected[len(prompt) :].tolist()


def test_a_schema_is_met_by_any_architecture(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, "opt", ffn_dim=80, word_embed_proj_dim=48)
    with LLM(tmp_path) as llm:
        assert llm.generate("Pick one.", choices=["red", "green"]) in ("red", "green")


def test_weights_of_a_dummy_are_drawn_and_always_the_same(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, "gpt2")
    (tmp_path / SINGLE_FILE).unlink()
    with pytest.raises(ModelNotFound, match="safetensors"):
        load_model(tmp_path)
    runs = [
        feed(
            ModelRunner(load_model(tmp_path, load_format="dummy"), EngineConfig(num_blocks=18)),
            make_request(IDS, SCATTERED),
            [100],
        )
        for _ in range(2)
    ]
    assert torch.equal(*runs)
    assert runs[0].std() > 0


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    reference = save_tiny_model(tmp_path, "gpt_neox")
    reference.config.num_hidden_layers = 3
    reference.config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"lacks the weight .*layers\.2\."):
        load_model(tmp_path)


def test_tokens_that_meet_outside_of_attention_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny_model(tmp_path, "gpt2")
    forward = GPT2MLP.forward

    def forward_with_memory(self: GPT2MLP, hidden_states: torch.Tensor) -> torch.Tensor:
        return forward(self, hidden_states + hidden_states.roll(1, dims=1))

    monkeypatch.setattr(GPT2MLP, "forward", forward_with_memory)
    with pytest.raises(ModelError, match="'gpt2' is not supported: its tokens meet outside"):
        load_model(tmp_path)


def test_a_window_limits_the_context_in_the_users_words(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, "starcoder2", sliding_window=64)
    with pytest.raises(ModelError, match="up to 64 tokens.*slides.*pass max_model_len=64"):
        load_model(tmp_path)
    assert load_model(tmp_path, max_model_len=64).config.max_model_len == 64
    with pytest.raises(InvalidRequest, match="129 is beyond the model's context of 128"):
        load_model(tmp_path, max_model_len=129)
