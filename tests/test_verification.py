"""How drafts are to be verified: what may be asked for, and what it comes to."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec import InvalidRequest, SpeculativeConfig
from structspec.verification import acceptance_chances, warn_if_lossy, window_size


def settings(method, num_tokens=3, **others):
    return {"rejection_sample_method": method, "num_speculative_tokens": num_tokens, **others}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (settings("typical"), "must be one of standard, block, synthetic, fly, not 'typical'"),
        (settings("synthetic"), "takes one of .*, and none was given"),
        (
            settings("synthetic", synthetic_acceptance_rate=1, synthetic_acceptance_length=2),
            "synthetic_acceptance_rate and synthetic_acceptance_length was given",
        ),
        (settings("synthetic", synthetic_acceptance_rate=1.5), "must be a number from 0 to 1"),
        (settings("synthetic", synthetic_acceptance_length=4.5), "must be a number from 1 to 4"),
        (settings("synthetic", synthetic_acceptance_rates=[0.5]), "3 numbers from 0 to 1"),
        (settings("synthetic", synthetic_acceptance_rates=[0.5, 0.6, 0.1]), "none above the one"),
        (settings("synthetic", synthetic_acceptance_rates=[0.5, 0.4, -0.1]), "from 0 to 1"),
        (settings("synthetic", synthetic_acceptance_rates=[1, 1, float("nan")]), "from 0 to 1"),
        (settings("synthetic", synthetic_acceptance_rates="abc"), "3 numbers"),
        (settings("synthetic", 0, synthetic_acceptance_rate=1), "'synthetic' needs drafts"),
        (settings("fly", 0), "'fly' needs drafts"),
        (settings("fly", 1), "fly_window_size must be below num_speculative_tokens.* 0 of 1"),
        (settings("fly", fly_window_size=3), "must be below num_speculative_tokens.* 3 of 3"),
        (settings("fly", fly_window_size=0), "fly_window_size must be an integer of at least 1"),
        (settings("fly", fly_entropy_threshold=-1), "fly_entropy_threshold must be a number"),
        (settings("fly", fly_entropy_top_k=0), "fly_entropy_top_k must be an integer"),
    ],
)
def test_what_cannot_be_is_refused(given, message):
    with pytest.raises(InvalidRequest, match=message):
        SpeculativeConfig(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("synthetic_acceptance_rate", 0.5),
        ("synthetic_acceptance_rates", (0.5,) * 15),
        ("synthetic_acceptance_length", 2.0),
        ("fly_window_size", 2),
        ("fly_entropy_threshold", 0.5),
        ("fly_entropy_top_k", 5),
    ],
)
def test_what_changes_the_output_is_never_inferred_from_a_setting(name, value):
    owner = name.partition("_")[0]
    with pytest.raises(InvalidRequest, match=f"{name} is of rejection_sample_method '{owner}'"):
        SpeculativeConfig(**{name: value})


@pytest.mark.parametrize(
    ("given", "chances"),
    [
        ({"synthetic_acceptance_rate": 0.5}, [0.5, 0.5, 0.5]),
        ({"synthetic_acceptance_rates": [0.5, 0.25, 0.0]}, [0.5, 0.5, 0.0]),
        ({"synthetic_acceptance_rates": [1, 0, 0]}, [1.0, 0.0, 0.0]),
        ({"synthetic_acceptance_length": 1}, [0.0, 0.0, 0.0]),
        ({"synthetic_acceptance_length": 2.5}, [1.0, 0.5, 0.0]),
        ({"synthetic_acceptance_length": 4}, [1.0, 1.0, 1.0]),
    ],
)
def test_rates_and_lengths_come_to_a_chance_for_each_draft(given, chances):
    assert acceptance_chances(SpeculativeConfig(**settings("synthetic", **given))) == chances


@given(st.integers(1, 20), st.floats(0, 1))
def test_a_length_is_the_mean_of_the_tokens_that_its_chances_write(num_tokens, share):
    length = 1 + num_tokens * share
    config = SpeculativeConfig(
        **settings("synthetic", num_tokens, synthetic_acceptance_length=length)
    )
    mean, all_before = 1.0, 1.0
    for chance in acceptance_chances(config):
        all_before *= chance
        mean += all_before
    assert mean == pytest.approx(length)


def test_rates_may_come_from_json():
    config = SpeculativeConfig.from_dict(
        settings("synthetic", synthetic_acceptance_rates=[1, 1, 0])
    )
    assert hash(config) == hash(
        SpeculativeConfig(**settings("synthetic", synthetic_acceptance_rates=(1, 1, 0)))
    )


@pytest.mark.parametrize(("num_tokens", "window"), [(2, 1), (7, 6), (15, 6)])
def test_the_window_is_six_drafts_where_more_are_made(num_tokens, window):
    assert window_size(SpeculativeConfig(**settings("fly", num_tokens))) == window


@pytest.mark.parametrize(
    ("given", "is_lossy"),
    [
        (settings("standard"), False),
        (settings("block"), False),
        (settings("synthetic", synthetic_acceptance_rate=1.0), True),
        (settings("fly"), True),
    ],
)
def test_only_what_changes_the_output_is_warned_of(given, is_lossy, caplog):
    with caplog.at_level(logging.WARNING, "structspec"):
        warn_if_lossy(SpeculativeConfig(**given))
    assert len(caplog.records) == is_lossy
    assert given["rejection_sample_method"] in caplog.text or not is_lossy
