"""`structspec explain`: what would be enforced of a constraint, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from structspec.cli.constraints import add_compiling, add_text_constraints
from structspec.cli.inputs import load_schema, read_file, read_stdin
from structspec.constraint import Choice, Grammar, Regex
from structspec.errors import GrammarError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from structspec.explanation import Explanation
    from structspec.vocabulary import Vocabulary

COLORS = {"exact": "green", "approximated": "yellow", "refused": "red"}


EXAMPLES = """\
examples:
  structspec explain person.json
  structspec explain app.models:Invoice --model smollm2-135m
  curl -s https://example.com/schema.json | structspec explain - --json
  structspec explain --regex "[0-9]{4}-[0-9]{2}"

exit status: 0 exact or approximated, 2 refused or wrong
"""


def add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = commands.add_parser(
        "explain",
        help="say what of a constraint is enforced, approximated or refused",
        description="Say of each part of a constraint whether the mask enforces it, whether it is\n"
        "validated once the text is finished, or refused; and what compiling costs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_explain)
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument(
        "schema",
        nargs="?",
        help="a JSON schema (file, text, or - for stdin), or a Python type as package.module:Name",
    )
    add_text_constraints(one)
    add_compiling(parser)
    vocabulary = parser.add_mutually_exclusive_group()
    vocabulary.add_argument("--model", help="compile for this model's tokens, not for bytes")
    vocabulary.add_argument(
        "--tokenizer", metavar="PATH", help="the same for a tokenizer.json or a folder with one"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run_explain(options: argparse.Namespace) -> int:
    """Explain and print; 2 where the constraint is refused, and where it is wrong with --json."""
    from structspec.explanation import explain

    constraint = read_constraint(options)
    settings = {
        name: getattr(options, name)
        for name in ("backend", "style", "property_order", "closed")
        if getattr(options, name) is not None
    }
    try:
        explanation = explain(constraint, vocabulary=load_vocabulary(options), **settings)
    except GrammarError as error:
        if not options.json:
            raise
        print(json.dumps(describe_error(error), ensure_ascii=False, indent=2))
        return 2
    if options.json:
        print(json.dumps(explanation.to_dict(), ensure_ascii=False, indent=2))
    else:
        show(explanation)
    return 2 if explanation.verdict == "refused" else 0


def read_constraint(options: argparse.Namespace) -> Any:
    """What the command line asks about."""
    if options.regex is not None:
        return Regex(options.regex)
    if options.choice is not None:
        return Choice(tuple(options.choice))
    if options.grammar is not None:
        return Grammar(read_file(options.grammar))
    if options.schema == "-":
        return read_stdin()
    return load_schema(options.schema)


def load_vocabulary(options: argparse.Namespace) -> Vocabulary | None:
    """That of the model or tokenizer named; None where none is."""
    if options.tokenizer is not None:
        from structspec.vocabulary import Vocabulary

        return Vocabulary.from_tokenizer(options.tokenizer)
    if options.model is not None:
        from structspec.models.loading import load_tokenizer

        return load_tokenizer(options.model).vocabulary
    return None


def describe_error(error: GrammarError) -> dict[str, Any]:
    """A wrong constraint as plain values."""
    return {
        "verdict": "invalid",
        "summary": str(error),
        "pointer": error.pointer,
        "line": error.line,
        "column": error.column,
    }


def show(explanation: Explanation) -> None:
    """Print the verdict in a line, and the findings in tables below it."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    color = COLORS[explanation.verdict]
    console.print(Text.assemble((explanation.verdict, f"bold {color}"), f": {explanation.summary}"))
    console.print(Text(f"backend: {explanation.backend}"))
    console.print(Text(explanation.cost))
    for title, rows in explanation.groups():
        console.print(Text(f"\n{title} ({len(rows)})", style="bold"))
        console.print(build_table(rows, max_where=console.width // 2))


def build_table(rows: Sequence[tuple[str, str]], max_where: int) -> RenderableType:
    """Places on the left, what is said of each on the right; long ones go on in the next line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    if any(where for where, _ in rows):
        width = min(max(len(where) for where, _ in rows), max_where)
        table.add_column(width=width, overflow="fold", style="cyan")
    table.add_column(overflow="fold")
    for where, what in rows:
        table.add_row(*([Text(where)] if len(table.columns) > 1 else []), Text(what))
    return table
