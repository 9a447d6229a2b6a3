"""The command line: results on stdout and only there, mistakes as one readable message."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import structspec
import structspec.llm
from structspec.cli import main
from structspec.cli.generate import describe
from structspec.config import EngineConfig
from structspec.errors import ModelNotFound, Truncated
from structspec.generation import Generation
from structspec.grammars.base import Finding, Report
from structspec.request import RequestStats, Usage
from structspec.speculative_config import SpeculativeConfig


class FakeLLM:
    """Answers with `text`, or raises `error`, and remembers what it was asked."""

    text = '{"name": "Ada", "age": 36}'
    error: Exception | None = None
    asked: dict[str, Any]
    device: str
    config: EngineConfig

    def __init__(self, model: str, *, device: str, config: EngineConfig) -> None:
        type(self).asked, type(self).device = {"model": model}, device
        type(self).config = config

    def __enter__(self) -> FakeLLM:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def generate_raw(self, prompt: str, *, n: int, **options: Any) -> list[Generation]:
        self.asked.update(prompt=prompt, **options)
        if self.error is not None:
            raise self.error
        stats = RequestStats(
            num_target_steps=3, num_drafted=8, num_accepted=6, seconds=0.5, backend="llguidance"
        )
        return [Generation(self.text, self.text, (1, 2), "stop", Usage(10, 9), stats, None)] * n


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeLLM]:
    class Fresh(FakeLLM):
        pass

    monkeypatch.setattr(structspec.llm, "LLM", Fresh)
    return Fresh


def test_output_is_all_there_is_on_stdout(
    fake: type[FakeLLM], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "--prompt", "Who?", "--schema", '{"type": "object"}', "--stats"]) == 0
    printed = capsys.readouterr()
    assert printed.out == FakeLLM.text + "\n"
    assert printed.err == (
        "9 tokens in 3 target steps; 3.00 tokens per step; 6 of 8 drafts accepted;"
        " 0.50 s (18 tokens/s); compiled by llguidance in 0.0 ms\n"
    )


def test_several_outputs_are_printed_one_behind_the_other(
    fake: type[FakeLLM], capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--bad-word", "x", "--bad-word", "y", "--allowed-token-id", "3", "--min-tokens", "2"]
    assert main(["generate", "--prompt", "Who?", "--n", "2", "--stop-token-id", "4", *limits]) == 0
    assert capsys.readouterr().out == f"{FakeLLM.text}\n" * 2
    asked = {name: fake.asked[name] for name in ("bad_words", "min_tokens", "stop_token_ids")}
    assert asked == {"bad_words": ["x", "y"], "min_tokens": 2, "stop_token_ids": [4]}
    assert fake.asked["allowed_token_ids"] == [3]
    assert main(["generate", "--prompt", "Who?", "--n", "0"]) == 2
    assert "n must be a number of at least 1" in capsys.readouterr().err


def test_raw_output_is_one_json_object(
    fake: type[FakeLLM], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "--prompt", "Who?", "--schema", '{"type": "object"}', "--raw"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["value"] == {"name": "Ada", "age": 36}
    assert printed["text"] == FakeLLM.text
    assert printed["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 9,
        "reasoning_tokens": 0,
    }


def test_reasoning_is_asked_for_on_the_command_line(fake: type[FakeLLM]) -> None:
    markers = ["--reasoning-markers", "<t>", "</t>"]
    main(["generate", "--prompt", "Hi", *markers, "--max-reasoning-tokens", "9"])
    assert fake.asked["reasoning"] == {"start": "<t>", "end": "</t>"}
    assert fake.asked["max_reasoning_tokens"] == 9
    main(["generate", "--prompt", "Hi", "--reasoning", "off"])
    assert fake.asked["reasoning"] == {"mode": "off"}


def test_only_options_that_were_given_are_passed_on(fake: type[FakeLLM]) -> None:
    main(["generate", "--prompt", "Hi"])
    assert fake.asked == {"model": "smollm2-135m", "prompt": "Hi"} and fake.device == "auto"
    main(
        [
            "generate",
            "--prompt",
            "Hi",
            "--choice",
            "a",
            "--choice",
            "b",
            "--seed",
            "3",
            "--no-speculation",
            "--model",
            "m",
            "--device",
            "cpu",
        ]
    )
    assert fake.asked == {
        **{"model": "m", "prompt": "Hi", "choices": ["a", "b"]},
        **{"seed": 3, "speculative": False},
    }
    assert fake.device == "cpu"


def test_how_to_draft_is_for_the_engine(fake: type[FakeLLM]) -> None:
    main(["generate", "--prompt", "Hi", "--spec-method", "ngram"])
    assert fake.asked == {"model": "smollm2-135m", "prompt": "Hi"}
    assert fake.config.speculative == SpeculativeConfig(method="ngram")


def test_what_goes_with_a_constraint_is_passed_on_as_python_says_it(fake: type[FakeLLM]) -> None:
    flags = ["--on-unsupported", "ignore", "--max-attempts", "5", "--property-order", "schema"]
    flags += ["--retry-feedback"]
    flags += ["--style", "compact", "--no-closed"]
    assert main(["generate", "--prompt", "x", "--schema", '{"type": "object"}', *flags]) == 0
    assert fake.asked == {
        **{"model": "smollm2-135m", "prompt": "x", "schema": '{"type": "object"}'},
        **{"on_unsupported": "ignore", "max_attempts": 5, "property_order": "schema"},
        **{"style": "compact", "closed": False, "retry_feedback": True},
    }


def test_stats_say_which_attempt_it_was_and_what_the_mask_did_not_hold() -> None:
    loose = Report("llguidance", approximated=(Finding("#/a", "uniqueItems"),))
    stats = RequestStats(num_target_steps=1, seconds=1.0)
    told = describe(Generation([1], "[1]", (1,), "stop", Usage(1, 1), stats, loose, 2))
    assert told.endswith("; attempt 2; not wholly in the mask: #/a/uniqueItems")


def test_schema_may_be_a_file_or_a_python_type(
    fake: type[FakeLLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("person.json").write_text('{"title": "Person"}')
    Path("my_models.py").write_text("class Outer:\n    Inner = int\n")
    main(["generate", "--prompt", "x", "--schema", "person.json"])
    assert fake.asked["schema"] == '{"title": "Person"}'
    main(["generate", "--prompt", "x", "--schema", "my_models:Outer.Inner"])
    assert fake.asked["schema"] is int


def test_prompt_and_grammar_may_come_from_files(
    fake: type[FakeLLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.txt").write_text("¿Quién?")
    (tmp_path / "g.lark").write_text('start: "a"')
    arguments = ["--prompt-file", str(tmp_path / "prompt.txt")]
    main(["generate", *arguments, "--grammar", str(tmp_path / "g.lark")])
    assert (fake.asked["prompt"], fake.asked["grammar"]) == ("¿Quién?", 'start: "a"')
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    main(["generate", "--prompt-file", "-"])
    assert fake.asked["prompt"] == "from a pipe"


MISTAKES = [
    (["--schema", "nowhere.json"], "cannot read nowhere.json: No such file or directory"),
    (["--schema", "no_such_module:Person"], "No module named 'no_such_module'"),
    (["--schema", "json:Person"], "json has no 'Person'"),
    (["--schema", "app.models.Person"], "written with a colon: app.models:Person"),
    (["--schema", "{"], "line 1, column 2: the schema is not JSON"),
    (
        ["--schema", '{"type": "int"}'],
        "#/type: 'int' is not a type; use one of array, boolean, int",
    ),
    (["--temperature", "-1", "--regex", "a"], "temperature must be"),
    (["--style", "compact"], "style= goes with schema="),
    (["--regex", "a(b"], "line 1, column 4"),
    (
        ["--schema", '{"properties": {"a": {"$ref": "#/$defs/B"}}}'],
        "#/properties/a/$ref",
    ),
    (["--schema", '{"not": {}}'], "#: no finite value"),
    (["--spec-tokens", "-1"], "num_speculative_tokens must be"),
    (["--max-attempts", "2"], "max_attempts= is about output that does not meet its constraint"),
    (
        ["--schema", '{"items": {"type": "string"}, "uniqueItems": true}']
        + ["--on-unsupported", "error"],
        "#: uniqueItems is not wholly in the mask",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistake_is_one_line_on_stderr_and_status_2(
    arguments: list[str],
    message: str,
    fake: type[FakeLLM],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["generate", "--prompt", "x", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("structspec: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert not hasattr(fake, "asked"), "a mistake shows before the model is loaded"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["generate"],
        ["generate", "--prompt", "x", "--regex", "a", "--choice", "b"],
        ["generate", "--prompt", "x", "--seed", "one"],
        ["generate", "--prompt", "x", "--unknown"],
    ],
)
def test_unusable_command_line_is_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_output_that_was_cut_is_status_1_and_shows_how_far_it_came(
    fake: type[FakeLLM], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.error = Truncated("cut after 3 tokens", text='{"name')
    assert main(["generate", "--prompt", "x"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == 'structspec: cut after 3 tokens\nThe output so far:\n{"name\n'


def test_unknown_model_is_status_2(fake: type[FakeLLM], capsys: pytest.CaptureFixture[str]) -> None:
    fake.error = ModelNotFound("no model 'x'")
    assert main(["generate", "--prompt", "x", "--model", "x"]) == 2
    assert capsys.readouterr().err == "structspec: no model 'x'\n"


def test_interrupt_is_status_130(fake: type[FakeLLM], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: FakeLLM, prompt: str, **options: Any) -> Generation:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "generate_raw", interrupt)
    assert main(["generate", "--prompt", "x"]) == 130


COMMANDS = (
    "demo",
    "generate",
    "explain",
    "bench",
    "bench grammars",
    "bench quality",
    "bench engine",
)
WITHOUT_PACKAGES = """
import sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path] + [sys.argv[1]]
from structspec.cli import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], *([*command.split(), "--help"] for command in COMMANDS)],
    ids=" ".join,
)
def test_help_and_version_need_no_package(arguments: list[str]) -> None:
    root = str(Path(structspec.__file__).resolve().parents[1])
    program = [sys.executable, "-S", "-c", WITHOUT_PACKAGES, root, *arguments]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "structspec" in done.stdout


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    assert "structspec generate --schema person.json" in capsys.readouterr().out


def test_a_port_that_is_taken_is_told_of_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "no-such-model", "--port", str(port)]) == 2
    assert f"cannot listen at 127.0.0.1:{port}: " in capsys.readouterr().err
    assert main(["serve", "no-such-model", "--port", "99999"]) == 2
    assert "--port must be from 0 to 65535, not 99999" in capsys.readouterr().err
