"""The script for bash, 3.2 or newer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from structspec.cli.completion.commands import Argument, Command

_HEAD = """\
# bash completion of structspec: eval "$(structspec --completion bash)"
_structspec() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=structspec i
  if [[ $current == "=" ]]; then current=""; fi  # --option=value comes in three words
  if [[ $before == "=" ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${COMP_WORDS[i]}" in
      %(commands)s) command+=" ${COMP_WORDS[i]}" ;;
    esac
  done
  COMPREPLY=()
  case "$command $before" in
"""
_MIDDLE = """\
  esac
  case "$command" in
"""
_TAIL = """\
  esac
}
_structspec_words() { COMPREPLY+=($(compgen -W "$1" -- "$2")); }
_structspec_files() {
  local IFS=$'\\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY+=($(compgen -f -- "$1"))
}
complete -F _structspec structspec
"""


def bash_script(commands: Sequence[Command]) -> str:
    """A function that is called with what was typed so far."""
    below = " | ".join(f'"{" ".join(one.path)}"' for one in commands if len(one.path) > 1)
    values = [line for command in commands for line in _values(command)]
    words = [line for command in commands for line in _words(command)]
    return (
        _HEAD.replace("%(commands)s", below)
        + "\n".join(values)
        + f"\n{_MIDDLE}"
        + "\n".join(words)
        + f"\n{_TAIL}"
    )


def _values(command: Command) -> Iterator[str]:
    """What may follow each option that takes a value."""
    for option in command.options:
        if option.takes_value:
            names = " | ".join(f'"{" ".join(command.path)} {name}"' for name in option.names)
            yield f"    {names}) {_offer(option)}return ;;"


def _words(command: Command) -> Iterator[str]:
    """What may stand where no value is missing."""
    names = " ".join(name for option in command.options for name in option.names)
    offers = "".join(_offer(one) for one in command.positionals)
    yield f'    "{" ".join(command.path)}")'
    if command.parts:
        offers += f'_structspec_words {shlex.quote(" ".join(command.parts))} "$current"; '
    if offers:
        yield f"      if [[ $current != -* ]]; then {offers}fi"
    yield "      if [[ $current == -* || -z $current ]]; then"
    yield f'        _structspec_words {shlex.quote(names)} "$current"'
    yield "      fi ;;"


def _offer(argument: Argument) -> str:
    words = " ".join(argument.choices)
    offer = f'_structspec_words {shlex.quote(words)} "$current"; ' if words else ""
    return offer + ('_structspec_files "$current"; ' if argument.is_path else "")
