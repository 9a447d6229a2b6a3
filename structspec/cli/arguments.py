"""The options of the command line; importing this loads neither torch nor a model."""

from __future__ import annotations

import argparse

import structspec
from structspec.cli.bench import add_bench
from structspec.cli.chat import add_chat
from structspec.cli.completion import SHELLS, CompletionAction
from structspec.cli.constraints import add_compiling, add_policy, add_text_constraints
from structspec.cli.demo import run_demo
from structspec.cli.explain import add_explain
from structspec.cli.generate import run_generate
from structspec.cli.logits import add_logits
from structspec.cli.reasoning import add_reasoning
from structspec.cli.serve import add_serve
from structspec.cli.speculation import add_prediction, add_speculation

EXAMPLES = """\
examples:
  structspec generate --schema person.json --prompt "Ada Lovelace, born 1815 in London."
  structspec chat smollm2-135m --schema person.json
  structspec serve smollm2-135m
  structspec explain person.json
  structspec demo
  structspec COMMAND --help

exit status: 0 done; 1 the output was cut, is not valid or cannot be written; 2 the call is wrong
or asks for what cannot be had; 130 interrupted

completion of commands and options:
  eval "$(structspec --completion bash)"      in ~/.bashrc
  eval "$(structspec --completion zsh)"       in ~/.zshrc, behind compinit
  structspec --completion fish | source       in ~/.config/fish/config.fish
"""
GENERATE_EXAMPLES = """\
examples:
  structspec generate --schema person.json --prompt "Ada Lovelace, born 1815 in London."
  structspec generate --schema app.models:Invoice --prompt-file mail.txt --stats
  echo "Great phone, weak battery." | structspec generate --choice good --choice bad --prompt-file -
  structspec generate --regex "[0-9]{4}-[0-9]{2}-[0-9]{2}" --prompt "When was the moon landing?"
  structspec generate --schema person.json --prompt "Ada, born 1815" --n 3 --temperature 0.8 --raw
"""
DEMO_EXAMPLES = """\
examples:
  structspec demo
  structspec demo --model HuggingFaceTB/SmolLM2-360M-Instruct
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser; `run` on its result is the function to call with it."""
    parser = argparse.ArgumentParser(
        prog="structspec",
        description="Validated structured output from language models.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"structspec {structspec.__version__}"
    )
    parser.add_argument(
        "--completion",
        action=CompletionAction,
        metavar="SHELL",
        help=f"print a script that has the shell complete options: {', '.join(SHELLS)}",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_generate(commands)
    add_chat(commands)
    add_serve(commands)
    add_explain(commands)
    _add_demo(commands)
    add_bench(commands)
    return parser


def _add_generate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "generate",
        help="write one output that conforms, to stdout",
        description="Write one output that conforms, to stdout; everything else goes to stderr.",
        epilog=GENERATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_generate)
    _add_model(parser)
    parser.add_argument(
        "--device", default="auto", help="cpu or cuda (default: a GPU if there is one)"
    )
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", help="what to answer")
    prompt.add_argument(
        "--prompt-file", metavar="FILE", help="read the prompt from here; - is stdin"
    )
    _add_constraint(parser)
    _add_sampling(parser)
    add_reasoning(parser)
    add_speculation(parser)
    add_prediction(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--raw",
        action="store_true",
        help="print value, text, usage and statistics as one JSON object",
    )
    output.add_argument("--stats", action="store_true", help="print what it took, to stderr")


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        help="watch a real model fill in a table of tasks",
        description="Run a dozen small tasks on a real model and print what came of them.",
        epilog=DEMO_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_demo)
    _add_model(parser)
    add_speculation(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default="smollm2-135m",
        help="a known name, a .gguf file, a model folder or a hub id (default: %(default)s)",
    )


def _add_constraint(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what the output must be (without any: free text)")
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--schema",
        help="a JSON schema (file or text), or a Python type as package.module:Name",
    )
    add_text_constraints(one)
    add_policy(group)
    add_compiling(group)
    group.add_argument(
        "--schema-in-prompt",
        choices=("auto", "always", "never"),
        help="tell the model the schema (default: auto, unless the prompt already does)",
    )


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling (what is not given comes from the model)")
    group.add_argument(
        "--n", type=int, default=1, metavar="N", help="so many outputs, one behind the other"
    )
    for name, kind, says in (
        ("--max-tokens", int, "write at most so many tokens"),
        ("--min-tokens", int, "and at least so many, where a constraint does not end it sooner"),
        ("--temperature", float, "0 always takes the likeliest token"),
        ("--top-k", int, "draw among the N likeliest tokens"),
        ("--top-p", float, "draw among the likeliest tokens that hold this share"),
        ("--min-p", float, "leave out tokens below this share of the likeliest one's"),
        ("--seed", int, "draw the same again"),
    ):
        group.add_argument(name, type=kind, metavar="N", help=says)
    group.add_argument(
        "--stop", action="append", metavar="TEXT", help="end the output here; give it several times"
    )
    group.add_argument(
        "--bad-word",
        dest="bad_words",
        action="append",
        metavar="TEXT",
        help="write nothing that contains this; give it several times",
    )
    for name, says in (
        ("--stop-token-id", "this token ends the output too; give it several times"),
        ("--allowed-token-id", "write only this token and others so given"),
    ):
        plural = name.removeprefix("--").replace("-", "_") + "s"
        group.add_argument(name, dest=plural, action="append", type=int, metavar="ID", help=says)
    add_logits(group)
    group.add_argument(
        "--no-speculation",
        dest="speculative",
        action="store_false",
        default=None,
        help="one token per step; at temperature 0, in float32, the same output, only slower",
    )
