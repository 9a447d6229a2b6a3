"""The script for fish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structspec.cli.completion.commands import Argument, Command


def fish_script(commands: Sequence[Command]) -> str:
    """One `complete` for each word that may stand somewhere."""
    by_path = {command.path: command for command in commands}
    lines = [
        "# fish completion of structspec: structspec --completion fish | source",
        "complete -c structspec -f",
    ]
    for command in commands:
        lines += _lines(command, by_path)
    return "\n".join(lines) + "\n"


def _lines(command: Command, by_path: dict[tuple[str, ...], Command]) -> Iterator[str]:
    begin = f"complete -c structspec -n {_quoted(_condition(command))}"
    for name in command.parts:
        text = by_path[(*command.path, name)].help
        yield f"{begin} -a {name} -d {_quoted(text)}"
    for option in command.options:
        names = " ".join(_flag(name) for name in option.names)
        value = _value(option) if option.takes_value else ""
        yield f"{begin} {names}{value} -d {_quoted(option.help)}"
    for argument in command.positionals:
        yield f"{begin}{_offer(argument)}"


def _condition(command: Command) -> str:
    """Whether this command is the one that was named last."""
    named = [f"__fish_seen_subcommand_from {name}" for name in command.path[1:]]
    if command.parts:
        named.append(f"not __fish_seen_subcommand_from {' '.join(command.parts)}")
    return "; and ".join(named)


def _flag(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _value(option: Argument) -> str:
    """That one is needed, and which; -x says that it is no file."""
    return (" -r" if option.is_path else " -x") + _offer(option)


def _offer(argument: Argument) -> str:
    words = f" -a {_quoted(' '.join(argument.choices))}" if argument.choices else ""
    return words + (" -F" if argument.is_path else "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
