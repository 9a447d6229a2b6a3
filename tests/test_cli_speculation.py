"""What the command line says about drafting."""

import argparse
import json

import pytest

from structspec import InvalidRequest, SpeculativeConfig
from structspec.cli.speculation import add_speculation, read_speculation


def read(*arguments):
    parser = argparse.ArgumentParser()
    add_speculation(parser)
    return read_speculation(parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        ([], SpeculativeConfig()),
        (["--spec-method", "ngram"], SpeculativeConfig(method="ngram")),
        (["--spec-tokens", "0"], SpeculativeConfig(num_speculative_tokens=0)),
        (["--spec-model", "a.B"], SpeculativeConfig(model="a.B")),
        (
            ["--speculative-config", '{"method": "suffix"}', "--spec-tokens", "4"],
            SpeculativeConfig(method="suffix", num_speculative_tokens=4),
        ),
        (
            ["--speculative-config", '{"method": "suffix"}', "--spec-method", "suffix"],
            SpeculativeConfig(method="suffix"),
        ),
    ],
)
def test_flags_and_json_say_the_same(arguments, config):
    assert read(*arguments) == config


def test_a_clash_names_both():
    settings = json.dumps({"method": "suffix", "num_speculative_tokens": 4})
    with pytest.raises(InvalidRequest, match="--spec-tokens 5 .* 4 in --speculative-config"):
        read("--speculative-config", settings, "--spec-tokens", "5")
    with pytest.raises(InvalidRequest, match="--spec-method ngram .* 'suffix' in --speculative-c"):
        read("--speculative-config", settings, "--spec-method", "ngram")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is no JSON"), ("[]", "must be a JSON object"), ('{"k": 1}', "unknown .* 'k'")],
)
def test_what_is_no_object_of_settings_is_refused(text, message):
    with pytest.raises(InvalidRequest, match=message):
        read("--speculative-config", text)
