"""The application behind a socket."""

from __future__ import annotations

import socket
import sys
from types import FrameType

import uvicorn

from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from structspec.service import Service

_BACKLOG = 2048


class _Server(uvicorn.Server):
    """Says that it is draining as soon as it is told to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.is_draining = True  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


def serve(service: Service, settings: ServerSettings, *, host: str, port: int) -> None:
    """Answer until SIGTERM or SIGINT, then finish what runs; prints where it listens."""
    listener = socket.create_server((host, port), backlog=_BACKLOG, reuse_port=False)
    config = uvicorn.Config(
        make_app(service, settings),
        log_level="warning",
        timeout_graceful_shutdown=round(settings.drain_s),
    )
    address, bound = listener.getsockname()[:2]
    print(f"{settings.model_name} is at http://{address}:{bound}/v1", file=sys.stderr, flush=True)
    _Server(config).run([listener])
