"""`structspec serve`: OpenAI's endpoints over one model."""

from __future__ import annotations

import argparse
import os

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
        "--max-requests",
        type=int,
        default=1024,
        metavar="N",
        help="answered at a time, waiting ones included; more get 429 (default: %(default)s)",
    )
    http.add_argument(
        "--drain-seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="what runs may take so long to finish after SIGTERM (default: %(default)s)",
    )
    http.add_argument(
        "--body-timeout-seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="how long a request's body may take to come (default: %(default)s)",
    )
    http.add_argument(
        "--max-model-len", type=int, metavar="N", help="of prompt and output (default: the model's)"
    )
    add_speculation(parser)


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

    keys = options.api_key or [os.environ.get("STRUCTSPEC_API_KEY", "")]
    settings = ServerSettings(
        options.served_model_name or options.model,
        api_keys=tuple(key for key in keys if key),
        max_requests=options.max_requests,
        body_timeout_s=options.body_timeout_seconds,
        drain_s=options.drain_seconds,
    )
    config = EngineConfig(
        speculative=read_speculation(options), max_model_len=options.max_model_len
    )
    from structspec.server.serving import serve
    from structspec.service import Service

    service = Service(options.model, device=options.device, config=config)
    try:
        serve(service, settings, host=options.host, port=options.port)
    finally:
        service.close()
    return 0
