"""`structspec --completion SHELL`: a script that has the shell complete commands and options.

Written from the parser itself, so it knows what the parser knows. Not by argcomplete, which starts
Python at every press of Tab, nor by shtab, whose scripts are like these but for what is known here
of models, and which would have to be installed before anything is completed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from structspec.cli.completion.bash import bash_script
from structspec.cli.completion.commands import Command, read_commands
from structspec.cli.completion.fish import fish_script
from structspec.cli.completion.zsh import zsh_script

SHELLS: dict[str, Callable[[Sequence[Command]], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}


class CompletionAction(argparse.Action):
    """Print the script for a shell, and be done."""

    def __init__(self, option_strings: Sequence[str], dest: str, **rest: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, choices=tuple(SHELLS), **rest)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        print(SHELLS[values](read_commands(parser)), end="")
        parser.exit()
