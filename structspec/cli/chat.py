"""`structspec chat`: a conversation in the terminal, its answers written as they come."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from structspec.cli.constraints import add_text_constraints
from structspec.cli.inputs import load_schema, read_file
from structspec.cli.speculation import add_speculation, read_speculation
from structspec.config import EngineConfig
from structspec.errors import GenerationError, InvalidRequest

if TYPE_CHECKING:
    from rich.console import Console

    from structspec.llm import LLM
    from structspec.metrics import Metrics

EXAMPLES = """\
examples:
  structspec chat smollm2-135m
  structspec chat smollm2-135m --schema app.models:Invoice --system "Read invoices."
  echo "Ada Lovelace, born 1815." | structspec chat --schema person.json

  /reset forgets what was said, /quit or end of input ends, Ctrl-C stops an answer.
"""
_HELP = "Type a message; /reset forgets what was said, Ctrl-C stops an answer, /quit ends."


def add_chat(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "chat",
        help="talk to a model; with a schema every answer is an object",
        description="Talk to a model. With a constraint every answer conforms to it, and is shown"
        " while it is written.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_chat)
    parser.add_argument(
        "model",
        nargs="?",
        default="smollm2-135m",
        help="a known name, a .gguf file, a model folder or a hub id (default: %(default)s)",
    )
    parser.add_argument(
        "--device", default="auto", help="cpu or cuda (default: a GPU if there is one)"
    )
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before all else")
    group = parser.add_argument_group("what every answer must be (without any: free text)")
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--schema",
        help="a JSON schema (file or text), or a Python type as package.module:Name",
    )
    add_text_constraints(one)
    sampling = parser.add_argument_group("sampling (what is not given comes from the model)")
    sampling.add_argument("--max-tokens", type=int, metavar="N", help="of an answer")
    sampling.add_argument("--temperature", type=float, metavar="N")
    sampling.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--stats", action="store_true", help="say after each answer what it took")
    add_speculation(parser)


def run_chat(options: argparse.Namespace) -> int:
    """Talk until the input ends; a message that fails does not end the conversation."""
    from structspec.cli.generate import check

    arguments = _read_arguments(options)
    check(arguments)  # before the model is loaded: mistakes show at once
    config = EngineConfig(speculative=read_speculation(options))
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"Loading {options.model}"):
        from structspec.llm import LLM

        llm = LLM(options.model, device=options.device, config=config)
    with llm:
        if sys.stdin.isatty():
            console.print(_HELP, highlight=False)
        return _talk(llm, options, arguments)


def _read_arguments(options: argparse.Namespace) -> dict[str, Any]:
    names = ("regex", "max_tokens", "temperature", "seed")
    arguments = {name: getattr(options, name) for name in names} | {"choices": options.choice}
    if options.schema is not None:
        arguments["schema"] = load_schema(options.schema)
    if options.grammar is not None:
        arguments["grammar"] = read_file(options.grammar)
    return {name: value for name, value in arguments.items() if value is not None}


def _talk(llm: LLM, options: argparse.Namespace, arguments: dict[str, Any]) -> int:
    beginning = [] if options.system is None else [{"role": "system", "content": options.system}]
    messages, status = [*beginning], 0
    for said in _read_lines():
        if said == "/quit":
            break
        if said == "/reset":
            messages = [*beginning]
            continue
        asked = [*messages, {"role": "user", "content": said}]
        try:
            text = _answer(llm, asked, arguments, has_stats=options.stats)
            messages = [*asked, {"role": "assistant", "content": text}]
            status = 0
        except (GenerationError, InvalidRequest) as error:
            print(f"structspec: {error}", file=sys.stderr)
            status = 1 if isinstance(error, GenerationError) else 2
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            print("\n(stopped)", file=sys.stderr)  # the answer, not the conversation
    return status


def _read_lines() -> Iterator[str]:
    """What is said, one line at a time, without empty ones."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        import readline  # noqa: F401 - lines can be edited, and earlier ones recalled
    while True:
        try:
            line = input("> " if is_terminal else "")
        except EOFError:
            return
        if line.strip():
            yield line.strip()


def _answer(
    llm: LLM, messages: list[dict[str, Any]], arguments: dict[str, Any], *, has_stats: bool
) -> str:
    """Write an answer as it comes; returns its text."""
    before, start = llm.metrics(), time.perf_counter()
    pieces = llm.stream(messages, **arguments)
    if sys.stdout.isatty() and "schema" in arguments:
        from rich.console import Console

        text = show_growing(pieces, Console())
    else:
        text = ""
        for piece in pieces:
            print(piece, end="", flush=True)
            text += piece
        print()
    if has_stats:
        seconds = time.perf_counter() - start
        print(_describe(before, llm.metrics(), seconds), file=sys.stderr)
    return text


def show_growing(pieces: Iterable[str], console: Console) -> str:
    """An object as it grows, indented; what stays on the screen is the whole of it.

    While it grows only its end is shown, as much as the screen has room for.
    """
    from rich.highlighter import JSONHighlighter
    from rich.live import Live

    text, coloured = "", JSONHighlighter()
    with Live(console=console, auto_refresh=False) as live:
        for piece in pieces:
            text += piece
            end = indent(text).splitlines()[-max(1, console.height - 1) :]
            live.update(coloured("\n".join(end)), refresh=True)
        live.update(coloured(indent(text)), refresh=True)
    return text


def indent(text: str) -> str:
    """A beginning of JSON text as `json.dumps(…, indent=2)` would write it."""
    written: list[str] = []
    depth, is_string, is_escaped, last = 0, False, False, ""
    for character in text:
        if is_string:
            written.append(character)
            is_string = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
            continue
        if character.isspace():
            continue
        is_end = character in "]}"
        depth -= is_end
        if last == "," or is_end != (last in ("[", "{")):
            written.append(f"\n{'  ' * depth}")
        written.append(": " if character == ":" else character)
        depth += character in "[{"
        is_string, last = character == '"', character
    return "".join(written)


def _describe(before: Metrics, after: Metrics, seconds: float) -> str:
    """What was written between two moments, so many seconds apart."""
    num_tokens = after.generation_tokens - before.generation_tokens
    drafts, earlier = after.spec_decode, before.spec_decode
    num_drafted = drafts.num_draft_tokens - earlier.num_draft_tokens
    num_accepted = drafts.num_accepted_tokens - earlier.num_accepted_tokens
    speed = (
        f"{num_tokens} tokens in {seconds:.2f} s ({num_tokens / max(seconds, 1e-9):.0f} a second)"
    )
    return f"{speed}; {num_accepted} of {num_drafted} drafts accepted"
