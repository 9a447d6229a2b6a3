import pytest

from structspec import InvalidRequest
from structspec.config import EngineConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("block_size", value) for value in (0, 1.5, "x", None, True)),
        ("num_blocks", 0),
        ("max_model_len", -1),
        ("max_num_requests", 0),
        ("max_num_requests", True),
        ("max_num_batched_tokens", 0),
        ("max_num_draft_tokens", -2),
        ("num_compile_threads", 0),
        *(("compile_timeout_s", value) for value in (0, -1.0, float("nan"))),
        *(("gpu_memory_utilization", value) for value in (0, -0.5, 1.1, float("nan"))),
        *(("batch_invariant", value) for value in (None, 1)),
        ("speculative", None),
    ],
)
def test_an_impossible_setting_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest, match=name):
        EngineConfig(**{name: value})


def test_what_has_no_default_size_may_be_left_open():
    config = EngineConfig(num_blocks=None, max_model_len=None)
    assert (config.num_blocks, config.max_model_len) == (None, None)
