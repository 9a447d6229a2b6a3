"""The script for zsh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structspec.cli.completion.commands import Argument, Command

_TAIL = """\
if [[ $funcstack[1] == _structspec ]]; then
  _structspec "$@"
else
  compdef _structspec structspec
fi
"""


def zsh_script(commands: Sequence[Command]) -> str:
    """One function for each command; works from a folder of $fpath, and by eval."""
    head = '#compdef structspec\n# eval "$(structspec --completion zsh)", behind compinit\n'
    by_path = {command.path: command for command in commands}
    functions = ["\n".join(_function(command, by_path)) for command in commands]
    return f"{head}\n" + "\n\n".join(functions) + f"\n\n{_TAIL}"


def _name(path: Sequence[str]) -> str:
    return "_" + "_".join(path)


def _function(command: Command, by_path: dict[tuple[str, ...], Command]) -> Iterator[str]:
    yield f"{_name(command.path)}() {{"
    specs = [_option(one) for one in command.options] + [
        _in_quotes(f"{place}:{_positional(one)}")
        for place, one in enumerate(command.positionals, 1)
    ]
    if not command.parts:
        yield "  _arguments -s \\"
        yield " \\\n".join(f"    {spec}" for spec in specs)
        yield "}"
        return
    yield "  local context state state_descr line"
    yield "  typeset -A opt_args"
    specs += ["'1:command:->command'", "'*::argument:->argument'"]
    yield "  _arguments -C \\"
    yield " \\\n".join(f"    {spec}" for spec in specs)
    parts = [by_path[(*command.path, name)] for name in command.parts]
    yield "  case $state in"
    yield "    command) _values command \\"
    words = [_in_quotes(f"{one.path[-1]}[{_escaped(one.help)}]") for one in parts]
    yield " \\\n".join(f"      {word}" for word in words) + " ;;"
    yield "    argument) case $words[1] in"
    for one in parts:
        yield f"      {one.path[-1]}) {_name(one.path)} ;;"
    yield "    esac ;;"
    yield "  esac"
    yield "}"


def _option(option: Argument) -> str:
    repeated = "*" if option.is_repeated else ""
    value = f":{_positional(option)}" if option.takes_value else ""
    rest = f"[{_escaped(option.help)}]{value}"
    if len(option.names) == 1:
        return _in_quotes(repeated + option.names[0] + rest)
    # braces are for the shell, which makes a word of each name
    return f"{repeated and _in_quotes(repeated)}{{{','.join(option.names)}}}{_in_quotes(rest)}"


def _positional(argument: Argument) -> str:
    label = _escaped(argument.label)
    words = " ".join(argument.choices)
    if argument.choices and argument.is_path:
        return f"{label}:{{_alternative 'word:known:({words})' 'file:file:_files'}}"
    if argument.choices:
        return f"{label}:({words})"
    return f"{label}:{'_files' if argument.is_path else ' '}"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    return text.replace(":", "\\:")


def _in_quotes(text: str) -> str:
    quoted = text.replace("'", "'\\''")
    return f"'{quoted}'"
