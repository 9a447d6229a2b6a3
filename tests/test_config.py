import pytest

from structspec import InvalidRequest
from structspec.config import EngineConfig, SpeculativeConfig


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((EngineConfig, "block_size", value) for value in (0, 1.5, "x", None, True)),
        (EngineConfig, "num_blocks", 0),
        (EngineConfig, "max_model_len", -1),
        (EngineConfig, "max_num_requests", 0),
        (EngineConfig, "max_num_requests", True),
        (EngineConfig, "max_num_batched_tokens", 0),
        (EngineConfig, "max_num_draft_tokens", -2),
        (EngineConfig, "num_compile_threads", 0),
        *((EngineConfig, "compile_timeout_s", value) for value in (0, -1.0, float("nan"))),
        *(
            (EngineConfig, "gpu_memory_utilization", value)
            for value in (0, -0.5, 1.1, float("nan"))
        ),
        *((EngineConfig, "batch_invariant", value) for value in (None, 1)),
        (EngineConfig, "speculative", None),
        (SpeculativeConfig, "num_speculative_tokens", -1),
        (SpeculativeConfig, "max_guess_rows", -1),
        (SpeculativeConfig, "prompt_lookup_min", 0),
        (SpeculativeConfig, "prompt_lookup_min", 9),
    ],
)
def test_an_impossible_setting_is_refused_by_name(kind, name, value):
    with pytest.raises(InvalidRequest, match=name):
        kind(**{name: value})


def test_what_has_no_default_size_may_be_left_open():
    config = EngineConfig(num_blocks=None, max_model_len=None)
    assert (config.num_blocks, config.max_model_len) == (None, None)
