"""`structspec --completion SHELL`: the shells themselves are asked what they would complete."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from structspec.cli import main
from structspec.cli.arguments import build_parser
from structspec.cli.completion import SHELLS
from structspec.cli.completion.commands import Command, read_commands

COMMANDS = read_commands(build_parser())
every_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda one: " ".join(one.path))


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}")
    return path


@pytest.fixture
def script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Path:
    """The script that the command prints, for the shell that the test is about."""
    with pytest.raises(SystemExit) as ended:
        main(["--completion", request.param])
    assert ended.value.code == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    return path


def run(*command: str | Path) -> list[str]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines()


def option_names(command: Command) -> set[str]:
    return {name for option in command.options for name in option.names}


def bash(script: Path, line: str) -> list[str]:
    """What bash offers for the last word of a line; = stands apart there."""
    words = [part for word in line.split(" ") for part in re.split("(=)", word) if part or not word]
    asks = f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}"
    shows = '_structspec; for word in "${COMPREPLY[@]}"; do echo "$word"; done'
    return run(shell("bash"), "--norc", "-c", f"source {script}; {asks}; {shows}")


@every_command
def test_no_command_or_option_is_forgotten(command: Command) -> None:
    parser: argparse.ArgumentParser = build_parser()
    for name in command.path[1:]:
        [below] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        parser = below.choices[name]
    assert option_names(command) == set(parser._option_string_actions)


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@every_command
def test_bash_offers_all_options_of_a_command(script: Path, command: Command) -> None:
    assert set(bash(script, f"{' '.join(command.path)} --")) == {
        name for name in option_names(command) if name.startswith("--")
    }
    if command.parts:
        assert set(command.parts) <= set(bash(script, f"{' '.join(command.path)} "))


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("structspec gen", ["generate"]),
        ("structspec bench q", ["quality"]),
        ("structspec generate --schema x.json --style c", ["compact"]),
        ("structspec generate --style=c", ["compact"]),
        ("structspec generate --style=", ["spaced", "compact", "pretty", "flexible"]),
        ("structspec generate --choice generate --sty", ["--style"]),
        ("structspec serve smol", ["smollm2-135m"]),
        ("structspec generate --prompt smol", []),
    ],
)
def test_bash_offers_what_may_follow(script: Path, line: str, offers: list[str]) -> None:
    assert bash(script, line) == offers


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_offers_files_where_a_file_is_meant(script: Path, tmp_path: Path) -> None:
    (tmp_path / "my schema.json").write_text("{}")
    [found] = bash(script, f"structspec generate --schema {tmp_path}/my")
    assert found == f"{tmp_path}/my schema.json"


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("structspec gen", {"generate"}),
        ("structspec bench q", {"quality"}),
        ("structspec generate --style c", {"compact"}),
        ("structspec generate --sty", {"--style"}),
        ("structspec chat smol", {"smollm2-135m"}),
        ("structspec bench engine --part-", {"--part-seconds"}),
    ],
)
def test_fish_offers_what_may_follow(script: Path, line: str, offers: set[str]) -> None:
    asked = run(shell("fish"), "--no-config", "-c", f"source {script}; complete -C '{line}'")
    assert {one.split("\t")[0] for one in asked} == offers


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
@every_command
def test_zsh_is_told_all_options_of_a_command(script: Path, command: Command) -> None:
    """Its own _arguments is replaced by one that shows what it is given."""
    shows = 'compdef() { }; _values() { }; _arguments() { print -rl -- "$@" }'
    told = run(shell("zsh"), "-fc", f"{shows}; source {script}; {'_' + '_'.join(command.path)}")
    names = {match[1] for one in told if (match := re.match(r"\*?(--?[\w-]+)\[", one))}
    assert names == option_names(command)


def test_there_is_a_script_for_each_shell_and_for_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(SHELLS) == {"bash", "zsh", "fish"}
    with pytest.raises(SystemExit) as ended:
        main(["--completion", "tcsh"])
    assert ended.value.code == 2
    assert "choose from" in capsys.readouterr().err


@every_command
def test_every_help_has_examples_that_the_parser_takes(command: Command) -> None:
    parser: argparse.ArgumentParser = build_parser()
    for name in command.path[1:]:
        [below] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        parser = below.choices[name]
    examples = list(examples_in(parser.format_help()))
    assert any(words[: len(command.path)] == [*command.path] for words in examples)
    for words in examples:
        if words[1:] != ["COMMAND", "--help"]:
            assert callable(build_parser().parse_args(words[1:]).run)


def examples_in(text: str) -> Iterator[list[str]]:
    """The calls of structspec among the examples, without what they are piped from or into."""
    block = text.split("examples:\n")[1].split("\n\n")[0]
    for line in block.splitlines():
        if "structspec" not in line.split():
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
        lexer.whitespace_split = True
        words = list(lexer)
        words = words[words.index("structspec") :]
        yield words[: words.index("|")] if "|" in words else words
