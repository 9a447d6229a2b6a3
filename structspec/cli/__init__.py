"""The `structspec` command.

Results go to stdout, everything else to stderr. Exit status: 0 done, 1 the output did not come to
its end, does not validate or cannot be written, 2 the call itself is wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from structspec.cli.arguments import build_parser
from structspec.errors import GenerationError, InvalidRequest, StructspecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    if sys.stderr is None:  # closed; print would write to stdout instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    options = build_parser().parse_args(arguments)
    try:
        if sys.stdout is None:
            raise InvalidRequest("stdout is closed: the result has nowhere to go")
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except GenerationError as error:
        _complain(error)
        if error.text:
            print(f"The output so far:\n{error.text}", file=sys.stderr)
        return 1
    except StructspecError as error:
        _complain(error)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough
        _give_up_stdout()
        return 0
    except OSError as error:
        if error.filename is not None:  # what the call named
            _complain(InvalidRequest(f"cannot use {error.filename}: {error.strerror}"))
            return 2
        _give_up_stdout()
        _complain(error)
        return 1
    except KeyboardInterrupt:
        return 130


def _give_up_stdout() -> None:
    """Python must not try to write what is left at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: Exception) -> None:
    print(f"structspec: {error}", file=sys.stderr)
