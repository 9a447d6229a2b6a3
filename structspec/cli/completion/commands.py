"""What a parser knows, as a shell needs it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PATHS = ("FILE", "PATH", "DATA", "MODEL")  # by metavar
_PATH_NAMES = ("schema", "model", "tokenizer")  # these may be files beside what else they may be
_KNOWN_MODELS = ("smollm2-135m",)  # of structspec.models, which takes seconds to import


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or where `names` is empty a positional argument.

    What may follow it: one of the `choices`, a path, or something nobody can guess.
    """

    names: tuple[str, ...]
    label: str  # of its value
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    is_path: bool
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class Command:
    """One parser: `path` is how it is called, `parts` are the commands below it."""

    path: tuple[str, ...]
    help: str
    arguments: tuple[Argument, ...]
    parts: tuple[str, ...]

    @property
    def options(self) -> list[Argument]:
        """Arguments with names."""
        return [argument for argument in self.arguments if argument.names]

    @property
    def positionals(self) -> list[Argument]:
        """Arguments without."""
        return [argument for argument in self.arguments if not argument.names]


def read_commands(parser: argparse.ArgumentParser) -> list[Command]:
    """A parser and all below it, each behind the one that it is part of."""
    return list(_read(parser, (parser.prog,), ""))


def _read(parser: argparse.ArgumentParser, path: tuple[str, ...], text: str) -> Iterator[Command]:
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    arguments = [_argument(one) for one in parser._actions if one not in below]
    parts = {name: part for one in below for name, part in one.choices.items()}
    helps = {part.dest: part.help or "" for one in below for part in one._choices_actions}
    yield Command(path, text, tuple(arguments), tuple(parts))
    for name, part in parts.items():
        yield from _read(part, (*path, name), helps.get(name, ""))


def _argument(action: argparse.Action) -> Argument:
    choices: Sequence[str] = [str(choice) for choice in action.choices or ()]
    if action.dest == "model":
        choices = _KNOWN_MODELS
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return Argument(
        names=tuple(action.option_strings),
        label=(metavar or action.dest).lower().replace("_", " "),
        help=(action.help or "") % {"default": action.default, "prog": "structspec"},
        takes_value=action.nargs != 0,
        choices=tuple(choices),
        is_path=metavar in _PATHS or action.dest in _PATH_NAMES,
        is_repeated=isinstance(action, argparse._AppendAction),
    )
