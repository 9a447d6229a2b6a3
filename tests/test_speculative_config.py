"""SpeculativeConfig: which method is meant, and what contradicts what."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec import InvalidRequest, SpeculativeConfig
from structspec.speculative_config import METHODS


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({}, "hybrid"),
        ({"num_speculative_tokens": 4}, "hybrid"),
        ({"num_speculative_tokens": 0}, "none"),
        ({"max_guess_rows": 30}, "hybrid"),
        ({"prompt_lookup_max": 3}, "ngram"),
        ({"suffix_decoding_max_tree_depth": 12}, "suffix"),
        ({"suffix_decoding_max_tree_depth": 12, "prompt_lookup_max": 3}, "hybrid"),
        ({"model": "my_package.drafters.Mine"}, "custom_class"),
        ({"model": "my_package.drafters.Mine", "prompt_lookup_max": 3}, "custom_class"),
        ({"method": "hybrid", "suffix_decoding_min_token_prob": 0.3}, "hybrid"),
        ({"method": "none"}, "none"),
    ],
)
def test_the_method_follows_from_what_is_given(settings, method):
    assert SpeculativeConfig(**settings).resolved_method == method


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_speculative_tokens": -1}, "num_speculative_tokens must be an integer"),
        ({"max_guess_rows": -1}, "max_guess_rows"),
        ({"prompt_lookup_min": 0}, "prompt_lookup_min"),
        ({"prompt_lookup_min": 9}, "prompt_lookup_min must not be above prompt_lookup_max"),
        ({"suffix_decoding_max_tree_depth": 1}, "suffix_decoding_max_tree_depth"),
        ({"suffix_decoding_max_cached_requests": 3}, "0 or at least 4"),
        ({"suffix_decoding_max_cached_bytes": 1}, "suffix_decoding_max_cached_bytes"),
        ({"suffix_decoding_max_spec_factor": -1}, "suffix_decoding_max_spec_factor"),
        ({"suffix_decoding_min_token_prob": 2}, "suffix_decoding_min_token_prob"),
        ({"suffix_decoding_min_token_prob": float("nan")}, "suffix_decoding_min_token_prob"),
        ({"method": "oracle"}, "method must be one of hybrid, .*, not 'oracle'"),
        ({"method": "medusa"}, "'medusa' is not there yet"),
        ({"method": "eagle3"}, "'eagle3' is not there yet"),
        ({"model": "meta-llama/Llama-3.2-1B"}, "models that draft are not there yet"),
        ({"model": "NoModule"}, "dotted path"),
        ({"method": "custom_class"}, "'custom_class' needs model"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "'ngram' contradicts num_spec.*=0"),
        ({"method": "none", "num_speculative_tokens": 4}, "'none' contradicts num_spec.*=4"),
        ({"method": "ngram", "model": "a.B"}, "'ngram' contradicts model, which is of custom_cla"),
        ({"method": "suffix", "prompt_lookup_max": 2}, "'suffix' contradicts prompt_lookup_max"),
        ({"method": "ngram", "suffix_decoding_max_spec_factor": 2}, "'ngram' contradicts suffix_"),
        ({"method": "forced", "max_guess_rows": 2}, "'forced' contradicts max_guess_rows"),
    ],
)
def test_what_is_impossible_or_contradicts_is_refused_by_name(settings, message):
    with pytest.raises(InvalidRequest, match=message):
        SpeculativeConfig(**settings)


def test_without_a_method_or_tokens_nothing_is_drafted():
    for config in (SpeculativeConfig(method="none"), SpeculativeConfig(num_speculative_tokens=0)):
        assert (config.resolved_method, config.num_speculative_tokens) == ("none", 0)
        assert config.drafters == ()


@given(st.sampled_from([one for one in METHODS if one != "custom_class"]), st.integers(1, 99))
def test_settings_by_name_are_the_same_and_can_be_replaced(method, num_tokens):
    settings = {"method": method}
    if method != "none":
        settings["num_speculative_tokens"] = num_tokens
    config = SpeculativeConfig(**settings)
    assert SpeculativeConfig.from_dict(settings) == config == replace(config)


def test_an_unknown_setting_is_told_the_known_ones():
    with pytest.raises(InvalidRequest, match="unknown speculative setting 'k'; known are method"):
        SpeculativeConfig.from_dict({"k": 3})
    with pytest.raises(InvalidRequest, match="must be an object, not 3"):
        SpeculativeConfig.from_dict(3)
