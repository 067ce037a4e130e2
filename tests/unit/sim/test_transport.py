"""The simulated transport beyond the contract suite: buffered protocols, pauses while data is under way, closing."""

from __future__ import annotations

import asyncio

import pytest

from geminga import sim
from geminga.sim.transport import WINDOW_BYTES


class Sink(asyncio.Protocol):
    def __init__(self):
        self.data = bytearray()
        self.lost = None
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data

    def connection_lost(self, exc):
        self.lost = (type(exc),)


class BufferedSink(asyncio.BufferedProtocol):
    """Takes at most seven bytes at a time."""

    def __init__(self):
        self.buffer = bytearray(7)
        self.data = bytearray()
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.data += self.buffer[:nbytes]


async def joined(world, server_class=Sink):
    network = world.node("a").runtime.network
    ends = []
    await network.listen(lambda: ends.append(server_class()) or ends[-1], "", 1)
    _, client = await network.connect(Sink, "a", 1)
    return ends[0], client


def test_buffered_protocol_gets_everything_through_its_buffer():
    async def scenario(world):
        server, client = await joined(world, BufferedSink)
        client.transport.write(b"0123456789" * 10)
        await world.sleep(1)
        assert server.data == b"0123456789" * 10

    sim.run(scenario)


def test_window_bounds_what_is_under_way_to_a_reader_that_does_not_read():
    async def scenario(world):
        server, client = await joined(world)
        server.transport.pause_reading()
        client.transport.write(b"x" * (WINDOW_BYTES + 1000))
        await world.sleep(10)
        assert client.transport.get_write_buffer_size() == 1000
        assert server.data == b""
        server.transport.resume_reading()
        await world.sleep(10)
        assert len(server.data) == WINDOW_BYTES + 1000

    for seed in range(5):
        sim.run(scenario, seed)


def test_write_after_write_eof_is_an_error_and_after_close_ignored():
    async def scenario(world):
        server, client = await joined(world)
        client.transport.write(b"all")
        client.transport.write_eof()
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            client.transport.write(b"more")
        client.transport.close()
        client.transport.write(b"more")
        client.transport.close()
        await world.sleep(1)
        assert server.data == b"all"
        assert server.lost == client.lost == (type(None),)

    sim.run(scenario)


def test_data_for_an_end_that_closed_resets_the_sender():
    async def scenario(world):
        server, client = await joined(world)
        server.transport.pause_reading()
        server.transport.close()
        client.transport.write(b"too late")
        await world.sleep(1)
        client.transport.write(b"far too late")
        await world.sleep(1)
        assert server.data == b""
        assert server.lost == (type(None),)
        assert client.lost is not None

    for seed in range(10):
        sim.run(scenario, seed)


def test_close_waits_for_a_slow_reader_and_abort_does_not():
    async def scenario(world, *, abort):
        server, client = await joined(world)
        server.transport.pause_reading()
        client.transport.write(b"x" * 2 * WINDOW_BYTES)
        (client.transport.abort if abort else client.transport.close)()
        await world.sleep(60)
        assert client.lost == ((type(None),) if abort else None)
        server.transport.resume_reading()
        await world.sleep(60)
        assert client.lost == (type(None),)
        return len(server.data), server.lost

    assert sim.run(lambda world: scenario(world, abort=False)) == (2 * WINDOW_BYTES, (type(None),))
    received, lost = sim.run(lambda world: scenario(world, abort=True))
    assert received < 2 * WINDOW_BYTES
    assert lost == (ConnectionResetError,)
