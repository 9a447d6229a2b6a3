"""What the command line says about drafting."""

import argparse
import json

import pytest

from structspec import InvalidRequest, SpeculativeConfig
from structspec.cli import main
from structspec.cli.arguments import build_parser
from structspec.cli.speculation import (
    add_speculation,
    check_speculation,
    read_prediction,
    read_speculation,
    read_unremembered,
)


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_speculation(parser)
    return parser.parse_args(arguments)


def read(*arguments):
    return read_speculation(parse(*arguments))


def generate(*arguments):
    """The options of `generate`, once they were checked."""
    options = build_parser().parse_args(["generate", "--prompt", "Hi", *arguments])
    check_speculation(options, read_speculation(options))
    return options


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        ([], SpeculativeConfig()),
        (["--spec-method", "ngram"], SpeculativeConfig(method="ngram")),
        (["--spec-tokens", "0"], SpeculativeConfig(num_speculative_tokens=0)),
        (["--spec-model", "a.B"], SpeculativeConfig(model="a.B")),
        (["--spec-verification", "block"], SpeculativeConfig(rejection_sample_method="block")),
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


def test_a_benchmark_remembers_nothing_unless_it_is_told_to():
    def unremembered(*arguments):
        return read_unremembered(parse(*arguments))

    forgets = {"suffix_decoding_max_cached_requests": 0}
    assert unremembered() == SpeculativeConfig(method="hybrid", **forgets)
    assert unremembered("--spec-method", "suffix") == SpeculativeConfig(method="suffix", **forgets)
    assert unremembered("--spec-method", "ngram") == SpeculativeConfig(method="ngram")
    told = '{"suffix_decoding_max_cached_requests": 10000}'
    assert unremembered("--speculative-config", told) == SpeculativeConfig()


@pytest.mark.parametrize(
    "flags",
    [
        ["--spec-method", "ngram"],
        ["--spec-model", "a.B"],
        ["--spec-tokens", "3"],
        ["--speculative-config", '{"method": "suffix"}'],
        ["--prediction", "x"],
    ],
    ids=" ".join,
)
def test_drafts_cannot_be_off_and_described(flags):
    with pytest.raises(InvalidRequest, match="--no-speculation contradicts"):
        generate("--no-speculation", *flags)
    generate(*flags)


def test_drafts_may_be_off_twice():
    generate("--no-speculation", "--spec-method", "none")
    generate("--no-speculation", "--spec-tokens", "0")


def test_the_prediction_is_text_or_a_file(tmp_path):
    path = tmp_path / "old.py"
    path.write_text("x = 1\n")
    assert read_prediction(generate()) is None
    assert read_prediction(generate("--prediction", "x = 2")) == "x = 2"
    assert read_prediction(generate("--prediction-file", str(path))) == "x = 1\n"


def test_drafting_from_a_prediction_needs_one():
    with pytest.raises(InvalidRequest, match="needs --prediction or --prediction-file"):
        generate("--spec-method", "prediction")
    generate("--spec-method", "prediction", "--prediction", "x")


def test_prompt_and_prediction_do_not_share_stdin():
    options = build_parser().parse_args(
        ["generate", "--prompt-file", "-", "--prediction-file", "-"]
    )
    with pytest.raises(InvalidRequest, match="cannot both read stdin"):
        read_prediction(options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["engine", "none.json", "--spec-method", "ngram"], "add --part drafts"),
        (["quality", "--resume", "x", "--spec-tokens", "3"], "--resume keeps outputs"),
        (["engine", "none.json", "--part", "drafts", "--spec-method", "magic"], "'magic'"),
        (["quality", "--spec-method", "magic"], "'magic'"),
    ],
    ids=" ".join,
)
def test_benchmarks_refuse_what_they_would_not_measure(arguments, message, capsys):
    assert main(["bench", *arguments]) != 0
    assert message in capsys.readouterr().err
