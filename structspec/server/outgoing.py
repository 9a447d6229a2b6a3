"""What many connections write in one turn of the event loop, sent by one call.

`socket.send` gives up the interpreter and has to get it back, each time from an engine that is
busy with it: for 64 streams that is 128 changes of hands a step. Here they are sent by compiled
code, which gives it up once and for as long as all of it takes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from structspec.kernels.compiled import compiled

logger = logging.getLogger("structspec")
_FEW = 4  # so many are as quickly sent by themselves
_FLAGS = getattr(socket, "MSG_DONTWAIT", None)  # None: a system whose sockets are no files
_send = numba.types.ExternalFunction(
    "send",
    numba.types.intp(numba.types.intc, numba.types.uintp, numba.types.uintp, numba.types.intc),
)


@compiled
def _send_each(
    fds: Any,  # [n] int32
    addresses: Any,  # [n + 1] uint64: where each one's bytes begin, and the last ones end
    sent: Any,  # [n] int64, written: how many bytes went out, or -1
    flags: Any,
) -> None:
    for i in range(fds.size):
        sent[i] = _send(fds[i], addresses[i], addresses[i + 1] - addresses[i], flags)


def send_each(fds: Sequence[int], parts: Sequence[bytes]) -> list[int]:
    """Send each socket its bytes without waiting; how many of them went out, -1 for none."""
    data = np.frombuffer(b"".join(parts), np.uint8)
    addresses = np.zeros(len(parts) + 1, np.uint64)
    np.cumsum([len(part) for part in parts], out=addresses[1:])
    addresses += np.uint64(data.ctypes.data)
    sent = np.empty(len(parts), np.int64)
    _send_each(np.array(fds, np.int32), addresses, sent, _FLAGS)
    told: list[int] = sent.tolist()
    return told


class Outbox:
    """Transports with something to send, which is sent in the loop's next turn; of one loop."""

    def __init__(self) -> None:
        self._waiting: list[GatheringTransport] = []
        if _FLAGS is not None:
            send_each([], [])  # compiled, or found on disk, before anybody waits for it

    def add(self, transport: GatheringTransport) -> None:
        """One that has begun to wait."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.append(transport)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        if _FLAGS is None or len(waiting) <= _FEW:
            for transport in waiting:
                transport.flush()
            return
        ready: list[GatheringTransport] = []
        for transport in waiting:
            if transport.is_ready:
                ready.append(transport)
            else:
                transport.flush()
        parts = [transport.take() for transport in ready]
        sent = send_each([transport.fd for transport in ready], parts)
        for transport, part, num_sent in zip(ready, parts, sent, strict=True):
            if num_sent < len(part):  # what is wrong with it, if anything, the transport finds out
                transport.write_now(part[max(0, num_sent) :])


class GatheringTransport:
    """Another transport whose writes wait in an outbox for those of other connections."""

    def __init__(self, inner: asyncio.Transport, outbox: Outbox) -> None:
        self.inner = inner
        self._outbox = outbox
        self._waiting: list[bytes] = []
        of_plain = None if inner.get_extra_info("sslcontext") else inner.get_extra_info("socket")
        self.fd: int = -1 if of_plain is None else of_plain.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(self, data: bytes) -> None:
        """Send this soon, behind all that was written before."""
        if data:
            if not self._waiting:
                self._outbox.add(self)
            self._waiting.append(data)

    def close(self) -> None:
        """Send what waits, and close."""
        self.flush()
        self.inner.close()

    @property
    def is_ready(self) -> bool:
        """Whether its socket may be written to past the transport: what waits comes next there."""
        inner = self.inner  # one that closes may have given back its number to another connection
        return self.fd >= 0 and not inner.is_closing() and not inner.get_write_buffer_size()

    def flush(self) -> None:
        """Hand over what waits to the transport."""
        if self._waiting:
            self.write_now(self.take())

    def write_now(self, data: bytes) -> None:
        """Hand this over to the transport; where it is closed nobody is there to read it.

        What goes wrong ends this connection, and no other's bytes wait for it.
        """
        try:
            if not self.inner.is_closing():
                self.inner.write(data)
        except Exception:
            logger.exception("a connection could not be written to")
            self.inner.abort()

    def take(self) -> bytes:
        """All that waits, which then does not any more."""
        waiting, self._waiting = self._waiting, []
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)


def gathering_protocol() -> type[asyncio.Protocol]:
    """Uvicorn's protocol, the fastest there is, for a server whose answers go out together."""
    outbox = Outbox()

    class GatheringProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(GatheringTransport(transport, outbox))

    return GatheringProtocol
