"""What is written to many connections at once arrives at each: all of it, in its order."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.server import outgoing
from structspec.server.outgoing import GatheringTransport, Outbox, send_each

NUM_CONNECTIONS = 7  # more than are sent by themselves
OUTBOX = Outbox()


@contextlib.asynccontextmanager
async def connected(
    outbox: Outbox, count: int = NUM_CONNECTIONS
) -> AsyncIterator[list[tuple[GatheringTransport, socket.socket]]]:
    """Transports, each with the socket at its other end."""
    loop, found = asyncio.get_running_loop(), []
    for _ in range(count):
        here, there = socket.socketpair()
        here.setblocking(False)
        there.setblocking(False)
        inner, _ = await loop.create_connection(asyncio.Protocol, sock=here)
        found.append((GatheringTransport(inner, outbox), there))
    try:
        yield found
    finally:
        for transport, there in found:
            there.close()
            transport.close()


async def read(there: socket.socket, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        part = await asyncio.get_running_loop().sock_recv(there, 2**20)
        if not part:
            break
        data += part
    return data


WRITES = st.lists(  # of each turn of the loop: to which connection, and what
    st.lists(
        st.tuples(
            st.integers(0, NUM_CONNECTIONS - 1),
            st.binary(max_size=20) | st.sampled_from([b"x" * 400_000]),
        ),
        max_size=12,
    ),
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(WRITES)
def test_every_reader_gets_what_was_written_to_it(turns: Sequence[Sequence[tuple[int, bytes]]]):
    async def write_and_read() -> list[bytes]:
        async with connected(OUTBOX) as pairs:
            wanted = [0] * len(pairs)
            for writes in turns:
                for index, data in writes:
                    pairs[index][0].write(data)
                    wanted[index] += len(data)
                await asyncio.sleep(0)
            return await asyncio.gather(
                *(read(there, count) for (_, there), count in zip(pairs, wanted, strict=True))
            )

    told = asyncio.run(write_and_read())
    for index, data in enumerate(told):
        assert data == b"".join(data for writes in turns for to, data in writes if to == index)


@pytest.mark.parametrize("flags", [outgoing._FLAGS, None], ids=["files", "no-files"])
def test_what_was_written_before_a_connection_is_closed_still_goes_out(
    flags: int | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outgoing, "_FLAGS", flags)

    async def write_and_read() -> list[bytes]:
        async with connected(Outbox()) as pairs:
            for index, (transport, _) in enumerate(pairs):
                transport.write(b"last ")
                transport.write(b"words")
                if index % 2:
                    transport.close()
            return [await read(there, 10) for _, there in pairs]

    assert asyncio.run(write_and_read()) == [b"last words"] * NUM_CONNECTIONS


def test_who_has_gone_costs_the_others_nothing():
    async def write_and_read() -> list[bytes]:
        async with connected(OUTBOX) as pairs:
            pairs[0][1].close()
            pairs[1][0].inner.abort()
            for _ in range(3):
                for transport, _ in pairs:
                    transport.write(b"piece ")
                await asyncio.sleep(0)
            return [await read(there, 18) for _, there in pairs[2:]]

    assert asyncio.run(write_and_read()) == [b"piece piece piece "] * (NUM_CONNECTIONS - 2)


def test_a_socket_takes_what_it_has_room_for_and_says_how_much():
    (full, _reader), (open_, reader) = socket.socketpair(), socket.socketpair()
    for one in (full, open_):
        one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            full.send(b"x" * 4096)
    with full, _reader, open_, reader:
        assert send_each([full.fileno(), open_.fileno()], [b"more", b"some"]) == [-1, 4]
        assert reader.recv(10) == b"some"


def test_all_that_is_written_in_one_turn_is_sent_by_one_call(monkeypatch: pytest.MonkeyPatch):
    calls: list[Sequence[bytes]] = []

    def send(fds: Sequence[int], parts: Sequence[bytes]) -> list[int]:
        calls.append(parts)
        return send_each(fds, parts)

    async def write() -> None:
        async with connected(OUTBOX) as pairs:
            for transport, _ in pairs:
                transport.write(b"a")
                transport.write(b"b")
            await asyncio.sleep(0)

    monkeypatch.setattr(outgoing, "send_each", send)
    asyncio.run(write())
    assert calls == [[b"ab"] * NUM_CONNECTIONS]


def loops() -> list[type[asyncio.AbstractEventLoop]]:
    """The event loops that a server may run in here."""
    found: list[type[asyncio.AbstractEventLoop]] = [asyncio.SelectorEventLoop]
    with contextlib.suppress(ImportError):
        import uvloop

        found.append(uvloop.Loop)
    return found


@pytest.mark.parametrize("count", [2, NUM_CONNECTIONS])
@pytest.mark.parametrize("loop", loops())
@pytest.mark.parametrize("fault", ["closed before", "closed meanwhile", "raises"])
def test_a_connection_that_is_gone_keeps_nothing_from_the_others(
    fault: str,
    loop: type[asyncio.AbstractEventLoop],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """Neither now nor with what is written later, however many there are."""

    async def write_and_read() -> list[bytes]:
        async with connected(Outbox(), count) as pairs:
            gone = pairs[0][0]
            if fault == "closed before":
                gone.inner.abort()
                await asyncio.sleep(0.01)
            if fault == "raises":
                monkeypatch.setattr(GatheringTransport, "is_ready", property(lambda self: False))
                gone.inner = Raising(gone.inner)
            for text in (b"one ", b"two"):
                for transport, _ in pairs:
                    transport.write(text)
                if fault == "closed meanwhile":
                    gone.inner.abort()
                await asyncio.sleep(0.01)
            async with asyncio.timeout(5):
                return await asyncio.gather(*(read(there, 7) for _, there in pairs[1:]))

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(write_and_read()) == [b"one two"] * (count - 1)
    assert bool(caplog.records) == (fault == "raises")


class Raising:
    """A transport that cannot be written to, and does not know it."""

    def __init__(self, inner: asyncio.Transport) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def write(self, data: bytes) -> None:
        raise RuntimeError("the handler is closed")
