"""`structspec serve`: OpenAI's endpoints over one model."""

from __future__ import annotations

import argparse
import os
import socket

from structspec.cli.speculation import add_speculation, read_speculation
from structspec.config import EngineConfig
from structspec.errors import InvalidRequest

EXAMPLES = """\
examples:
  structspec serve smollm2-135m
  structspec serve meta-llama/Llama-3.1-8B-Instruct --host 0.0.0.0 --port 8080
  STRUCTSPEC_API_KEY=secret structspec serve smollm2-135m
  curl localhost:8000/v1/chat/completions -H "content-type: application/json" -d '{
    "messages": [{"role": "user", "content": "Ada Lovelace, born 1815 in London."}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": {
      "type": "object", "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
      "required": ["name", "born"]}}}}'
"""


_COUNTS = (
    (
        "--max-requests",
        1024,
        "choices written at a time, waiting ones included; more get 429 (default: %(default)s)",
    ),
    ("--max-choices", 128, "of one request: n, times its prompts (default: %(default)s)"),
    ("--max-body-bytes", 8 * 2**20, "of one request (default: %(default)s)"),
    (
        "--max-total-body-bytes",
        2**28,
        "of all requests that are answered; more get 429 (default: %(default)s)",
    ),
    ("--max-schema-bytes", 2**20, "of a request's schemas and grammars (default: %(default)s)"),
    ("--max-stored-responses", 1000, "for previous_response_id, in memory (default: %(default)s)"),
)
_TIMES = (
    (
        "--compile-timeout-seconds",
        10.0,
        "how long a constraint may take to compile, else 400 (default: %(default)s)",
    ),
    (
        "--body-timeout-seconds",
        60.0,
        "how long a request's body may take to come, else 408 (default: %(default)s)",
    ),
)


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "serve",
        help="answer OpenAI's clients over HTTP",
        description="Serve one model to OpenAI's clients; needs the extra structspec-sdk[server].",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_serve)
    parser.add_argument(
        "model",
        nargs="?",
        default="smollm2-135m",
        help="a known name, a .gguf file, a model folder or a hub id (default: %(default)s)",
    )
    parser.add_argument(
        "--device", default="auto", help="cpu or cuda (default: a GPU if there is one)"
    )
    http = parser.add_argument_group("the server")
    http.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    http.add_argument("--port", type=int, default=8000, help="default: %(default)s; 0: any")
    http.add_argument(
        "--served-model-name", metavar="NAME", help="what clients call it (default: MODEL)"
    )
    http.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help="let in only who sends it; several times for several"
        " (default: STRUCTSPEC_API_KEY, if that is set)",
    )
    http.add_argument(
        "--allowed-origins",
        type=_split,
        default=(),
        metavar="LIST",
        help="let pages from there ask in browsers: https://example.com,https://other.org, or *"
        " for all (default: none)",
    )
    http.add_argument(
        "--drain-seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="what runs may take so long to finish after SIGTERM (default: %(default)s)",
    )
    http.add_argument(
        "--max-pieces-per-second",
        type=float,
        default=EngineConfig().max_pieces_per_second,
        metavar="N",
        help="of text, to all streams together, once there are more than four of them; 0 is no"
        " limit (default: %(default)g)",
    )
    _add_limits(parser)
    add_speculation(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits")
    for name, default, text in _COUNTS:
        limits.add_argument(name, type=int, default=default, metavar="N", help=text)
    for name, seconds, text in _TIMES:
        limits.add_argument(name, type=float, default=seconds, metavar="S", help=text)
    limits.add_argument(
        "--max-model-len", type=int, metavar="N", help="of prompt and output (default: the model's)"
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _check_address(host: str, port: int) -> None:
    """Raise where nobody could listen; before a model is loaded, which takes its time."""
    if not 0 <= port < 2**16:
        raise InvalidRequest(f"--port must be from 0 to {2**16 - 1}, not {port}")
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise InvalidRequest(
            f"cannot listen at {host}:{port}: {error.strerror}; choose another --host or --port"
        ) from None


def run_serve(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InvalidRequest(
            f"serving needs {error.name}: pip install 'structspec-sdk[server]'"
        ) from None
    from structspec.server.settings import ServerSettings

    _check_address(options.host, options.port)
    keys = options.api_key or [os.environ.get("STRUCTSPEC_API_KEY", "")]
    settings = ServerSettings(
        options.served_model_name or options.model,
        api_keys=tuple(key for key in keys if key),
        allowed_origins=options.allowed_origins,
        max_requests=options.max_requests,
        max_choices=options.max_choices,
        max_body_bytes=options.max_body_bytes,
        max_total_body_bytes=options.max_total_body_bytes,
        max_schema_bytes=options.max_schema_bytes,
        max_stored_responses=options.max_stored_responses,
        body_timeout_s=options.body_timeout_seconds,
        drain_s=options.drain_seconds,
    )
    config = EngineConfig(
        speculative=read_speculation(options),
        max_pieces_per_second=options.max_pieces_per_second,
        max_model_len=options.max_model_len,
        compile_timeout_s=options.compile_timeout_seconds,
    )
    from structspec.heap import bound_heap, kept_from_collector

    bound_heap()
    from structspec.server.serving import serve
    from structspec.service import Service

    service = Service(options.model, device=options.device, config=config)
    try:
        with kept_from_collector():
            serve(service, settings, host=options.host, port=options.port)
    finally:
        service.close()
    return 0
