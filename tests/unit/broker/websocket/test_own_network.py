"""Connections in memory between a broker's client and its broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga.broker.websocket.own_network import OwnNetwork, PipeTransport
from geminga.runtime import AsyncioNetwork, next_turn
from geminga.runtime.tls.peer import peer_certificate


class End(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: PipeTransport
        self.got = bytearray()
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PipeTransport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.got += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class BufferedEnd(asyncio.BufferedProtocol):
    """Takes a few bytes at a time, and no more than one piece before it is asked to."""

    def __init__(self) -> None:
        self.transport: PipeTransport
        self.got = bytearray()
        self.buffer = bytearray(7)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PipeTransport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self.buffer[:nbytes]
        self.transport.pause_reading()


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


async def settle(turns: int = 20) -> None:
    for _ in range(turns):
        await next_turn()


async def connected(certificate: bytes | None = None) -> tuple[End, End]:
    far = End()
    network = OwnNetwork(AsyncioNetwork(), lambda: {("own", 1)}, lambda: far, certificate)
    _, near = await network.connect(End, "own", 1)
    assert isinstance(near, End)
    return near, far


def test_bytes_go_both_ways_in_order_and_not_within_the_call() -> None:
    async def story() -> None:
        near, far = await connected()
        changed = bytearray(b"one ")
        near.transport.write(changed)
        changed[:] = b"XXXX"
        near.transport.writelines([b"two ", memoryview(b"three")])
        assert far.got == b""
        far.transport.write(b"back")
        await settle()
        assert (bytes(far.got), bytes(near.got)) == (b"one two three", b"back")

    run(story)


def test_writer_is_told_to_pause_while_the_other_end_does_not_read() -> None:
    async def story() -> None:
        near, far = await connected()
        far.transport.pause_reading()
        near.transport.set_write_buffer_limits(high=100)
        near.transport.write(b"x" * 100)
        assert near.events == ["made"]
        near.transport.write(b"x")
        await settle()
        assert near.events == ["made", "pause"]
        assert near.transport.get_write_buffer_size() == 101
        assert far.got == b""
        far.transport.resume_reading()
        await settle()
        assert near.events == ["made", "pause", "resume"]
        assert len(far.got) == 101

    run(story)


def test_a_protocol_with_a_buffer_of_its_own_gets_every_byte_once() -> None:
    async def story() -> None:
        near, far = End(), BufferedEnd()
        one, other = PipeTransport(near, None), PipeTransport(far, None)
        one.join(other)
        one.begin()
        other.begin()
        sent = bytes(range(256)) * 3
        one.write(sent)
        for _ in range(len(sent)):
            other.resume_reading()
            await settle(2)
        assert bytes(far.got) == sent
        assert one.get_write_buffer_size() == 0

    run(story)


def test_close_hands_over_what_was_written_and_abort_does_not() -> None:
    async def story() -> None:
        near, far = await connected()
        near.transport.write(b"last")
        near.transport.close()
        near.transport.write(b"too late")
        await settle()
        assert bytes(far.got) == b"last"
        assert (near.events, far.events) == (["made", "lost"], ["made", "lost"])
        near, far = await connected()
        near.transport.write(b"lost")
        near.transport.abort()
        near.transport.abort()
        await settle()
        assert far.got == b""
        assert (near.events, far.events) == (["made", "lost"], ["made", "lost"])

    run(story)


def test_close_waits_for_an_end_that_does_not_read_yet() -> None:
    async def story() -> None:
        near, far = await connected()
        far.transport.pause_reading()
        near.transport.write(b"last")
        near.transport.close()
        await settle()
        assert far.events == ["made"]
        far.transport.resume_reading()
        await settle()
        assert bytes(far.got) == b"last"
        assert far.events == ["made", "lost"]

    run(story)


def test_certificate_of_whom_the_client_stands_for_is_shown() -> None:
    async def story() -> None:
        near, far = await connected(b"DER")
        assert peer_certificate(far.transport) == b"DER"
        assert peer_certificate(near.transport) is None
        _, plain = await connected()
        assert peer_certificate(plain.transport) is None

    run(story)


def test_other_addresses_are_of_the_network() -> None:
    async def story() -> None:
        server = await asyncio.get_running_loop().create_server(End, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        network = OwnNetwork(AsyncioNetwork(), lambda: {("own", 1)}, End, None)
        transport, _ = await network.connect(asyncio.Protocol, "127.0.0.1", port)
        assert not isinstance(transport, PipeTransport)
        transport.abort()
        server.close()

    run(story)
