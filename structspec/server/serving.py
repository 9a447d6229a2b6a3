"""The application behind a socket."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import uvicorn

from structspec.server.app import make_app
from structspec.server.outgoing import gathering_protocol
from structspec.server.settings import ServerSettings
from structspec.service import Service

_BACKLOG = 2048
_LAST_WORDS_S = 5  # for streams to say why they end, once the time to finish is up
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Server(uvicorn.Server):
    """Finishes what runs when it is told to stop, and then returns as if it had ended by itself.

    What still runs after `drain_s` is cancelled in the engine, so that clients are told.
    """

    def __init__(self, config: uvicorn.Config, service: Service, drain_s: float) -> None:
        super().__init__(config)
        self._drained = threading.Timer(drain_s, service.close)
        self._drained.daemon = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self.config.app.state.is_draining = True  # type: ignore[union-attr]
            self._drained.start()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but signals are not raised again at the end: they were obeyed."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            self._drained.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)


def make_config(service: Service, settings: ServerSettings) -> uvicorn.Config:
    """How uvicorn is to run the application."""
    return uvicorn.Config(
        make_app(service, settings),
        http=gathering_protocol(),
        log_level="warning",
        timeout_graceful_shutdown=round(settings.drain_s) + _LAST_WORDS_S,
    )


def serve(service: Service, settings: ServerSettings, *, host: str, port: int) -> None:
    """Answer until SIGTERM or SIGINT, then finish what runs; prints where it listens."""
    listener = socket.create_server((host, port), backlog=_BACKLOG, reuse_port=False)
    config = make_config(service, settings)
    address, bound = listener.getsockname()[:2]
    root = f"http://{address}:{bound}"
    told = f"{settings.model_name} is at {root}/v1\nA page to try it out: {root}/"
    print(told, file=sys.stderr, flush=True)
    _Server(config, service, settings.drain_s).run([listener])
