"""The `structspec` command: `generate` one output, or watch the `demo`.

Results go to stdout, everything else to stderr. Exit status: 0 done, 1 the output did not come to
its end or does not validate, 2 the call itself is wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from structspec.cli.arguments import build_parser
from structspec.errors import GenerationError, StructspecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except GenerationError as error:
        _complain(error)
        if error.text:
            print(f"The output so far:\n{error.text}", file=sys.stderr)
        return 1
    except StructspecError as error:
        _complain(error)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not try to flush it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _complain(error: StructspecError) -> None:
    print(f"structspec: {error}", file=sys.stderr)
