"""One suite for every ``Network``: simulated, and asyncio's on the loopback interface."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from geminga import sim
from geminga.runtime import AsyncioNetwork, Network

Story = Callable[[Network], Awaitable[None]]
Run = Callable[[Story], None]
HOST = "127.0.0.1"


class Recorder(asyncio.Protocol):
    """Notes what happens; ``reach`` waits until a condition on it holds."""

    def __init__(self):
        self.transport = None
        self.data = bytearray()
        self.events = []
        self.lost = None
        self._waiters = []

    def connection_made(self, transport):
        self.transport = transport
        self.note("made")

    def data_received(self, data):
        self.data += data
        self.note("data")

    def eof_received(self):
        self.note("eof")
        return False

    def connection_lost(self, exc):
        self.lost = (exc,)
        self.note("lost")

    def pause_writing(self):
        self.note("pause")

    def resume_writing(self):
        self.note("resume")

    def note(self, event):
        if self.events[-1:] != [event]:
            self.events.append(event)
        for waiter in self._waiters:
            waiter.set()

    async def reach(self, condition):
        woken = asyncio.Event()
        self._waiters.append(woken)
        while not condition(self):
            await woken.wait()
            woken.clear()


class Echo(Recorder):
    def data_received(self, data):
        super().data_received(data)
        self.transport.write(data)


class HalfOpen(Recorder):
    """Goes on sending after the peer's end of stream."""

    def eof_received(self):
        super().eof_received()
        return True


def run_asyncio(story: Story) -> None:
    asyncio.run(asyncio.wait_for(story(AsyncioNetwork()), 30))


def run_sim(story: Story) -> None:
    async def scenario(world):
        await world.node("host").run(lambda node: story(node.runtime.network))

    for seed in range(5):
        sim.run(scenario, seed)


@pytest.fixture(params=[run_asyncio, run_sim], ids=["asyncio", "sim"])
def run(request) -> Run:
    return request.param


@asynccontextmanager
async def joined(network, server_class=Recorder, client_class=Recorder):
    """A listener and the two protocols of a connection to it; all closed at the end."""
    servers = []
    accepted = asyncio.Event()

    def accept():
        servers.append(server_class())
        accepted.set()
        return servers[-1]

    listener = await network.listen(accept, HOST, 0)
    _, client = await network.connect(client_class, HOST, listener.port)
    await accepted.wait()
    await servers[0].reach(lambda s: s.transport)
    try:
        yield listener, servers[0], client
    finally:
        await listener.close()
        for end in (client, servers[0]):
            end.transport.abort()
            await end.reach(lambda e: e.lost)


def test_bytes_arrive_in_order_both_ways(run):
    async def story(network):
        async with joined(network, server_class=Echo) as (listener, _, client):
            sent = b"".join(b"%d," % number for number in range(5000))
            for start in range(0, len(sent), 1000):
                client.transport.write(sent[start : start + 1000])
            await client.reach(lambda c: len(c.data) >= len(sent))
            assert bytes(client.data) == sent
            client.transport.close()
            await client.reach(lambda c: c.lost)
            await listener.close()

    run(story)


def test_writelines_sends_all_buffers(run):
    async def story(network):
        async with joined(network) as (_, server, client):
            client.transport.writelines([b"a", bytearray(b"b"), memoryview(b"c")])
            await server.reach(lambda s: len(s.data) == 3)
            assert server.data == b"abc"
            client.transport.abort()
            await client.reach(lambda c: c.lost)

    run(story)


def test_addresses_of_both_ends_match(run):
    async def story(network):
        async with joined(network) as (listener, server, client):
            assert client.transport.get_extra_info("peername")[:2] == (HOST, listener.port)
            assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info("peername")
            assert client.transport.get_extra_info("no such thing", 7) == 7
            client.transport.abort()
            await client.reach(lambda c: c.lost)

    run(story)


def test_close_sends_what_is_buffered_then_ends_both(run):
    async def story(network):
        async with joined(network) as (_, server, client):
            client.transport.write(b"x" * 1_000_000)
            client.transport.close()
            assert client.transport.is_closing()
            assert client.lost is None
            await server.reach(lambda s: s.lost)
            await client.reach(lambda c: c.lost)
            assert len(server.data) == 1_000_000
            assert server.lost == client.lost == (None,)
            assert server.events == ["made", "data", "eof", "lost"]

    run(story)


def test_abort_breaks_the_peer(run):
    async def story(network):
        async with joined(network, server_class=HalfOpen) as (_, server, client):
            server.transport.pause_reading()
            client.transport.write(b"x" * 10_000_000)
            client.transport.abort()
            await client.reach(lambda c: c.lost)
            assert client.lost == (None,)
            server.transport.resume_reading()
            await server.reach(lambda s: s.lost or "eof" in s.events)
            assert len(server.data) < 10_000_000
            server.transport.abort()
            await server.reach(lambda s: s.lost)

    run(story)


def test_half_closed_connection_still_carries_the_answer(run):
    async def story(network):
        async with joined(network, server_class=HalfOpen) as (_, server, client):
            assert client.transport.can_write_eof()
            client.transport.write(b"question")
            client.transport.write_eof()
            await server.reach(lambda s: "eof" in s.events)
            assert server.data == b"question"
            server.transport.write(b"answer")
            server.transport.close()
            await client.reach(lambda c: c.lost)
            assert client.data == b"answer"
            assert client.lost == (None,)

    run(story)


def test_slow_reader_pauses_the_writer_and_resumes_it(run):
    async def story(network):
        async with joined(network) as (_, server, client):
            server.transport.pause_reading()
            assert not server.transport.is_reading()
            written = 0
            while "pause" not in client.events:
                client.transport.write(b"y" * 100_000)
                written += 100_000
            assert client.transport.get_write_buffer_size() > client.transport.get_write_buffer_limits()[1]
            server.transport.resume_reading()
            await client.reach(lambda c: "resume" in c.events)
            assert client.transport.get_write_buffer_size() <= client.transport.get_write_buffer_limits()[0]
            await server.reach(lambda s: len(s.data) == written)
            client.transport.close()
            await server.reach(lambda s: s.lost)

    run(story)


def test_write_buffer_limits_follow_asyncio(run):
    async def story(network):
        async with joined(network) as (_, _, client):
            transport = client.transport
            assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
            transport.set_write_buffer_limits(high=1000)
            assert transport.get_write_buffer_limits() == (250, 1000)
            transport.set_write_buffer_limits(low=10)
            assert transport.get_write_buffer_limits() == (10, 40)
            with pytest.raises(ValueError, match="must be >="):
                transport.set_write_buffer_limits(high=1, low=2)
            transport.abort()
            await client.reach(lambda c: c.lost)

    run(story)


def test_connect_to_a_closed_port_is_refused(run):
    async def story(network):
        listener = await network.listen(Recorder, HOST, 0)
        port = listener.port
        await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(Recorder, HOST, port)

    run(story)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("two..dots", 6650),
        (".dot", 6650),
        ("x" * 70, 6650),
        ("with\0zero", 6650),
        ("half\ud800", 6650),
        ("\u00fc" * 63, 6650),
        (HOST, 70_000),
        (HOST, -1),
    ],
)
@pytest.mark.parametrize("is_connected", [True, False])
def test_what_is_no_address_is_an_error_of_the_system_as_others_are(run, host, port, is_connected):
    """Who connects to where a client, a broker or a file says handles those."""

    async def story(network):
        with pytest.raises(OSError):
            await (network.connect(Recorder, host, port) if is_connected else network.listen(Recorder, host, port))

    run(story)


def test_a_port_beyond_the_last_is_none_of_the_others(run):
    """The system would take its lower half."""

    async def story(network):
        async with joined(network) as (listener, _, _client):
            with pytest.raises(OSError):
                await network.connect(Recorder, HOST, listener.port + 65_536)
            if isinstance(network, AsyncioNetwork):
                with pytest.raises(OSError):
                    await network.connect(Recorder, HOST, listener.port + 65_536, preface=b"PROXY UNKNOWN\r\n")

    run(story)


def test_closed_listener_keeps_its_connections(run):
    async def story(network):
        async with joined(network, server_class=Echo) as (listener, server, client):
            await listener.close()
            client.transport.write(b"still there")
            await client.reach(lambda c: bytes(c.data).endswith(b"still there"))
            server.transport.close()
            await client.reach(lambda c: c.lost)

    run(story)


def test_listen_on_a_taken_port_fails(run):
    async def story(network):
        listener = await network.listen(Recorder, HOST, 0)
        with pytest.raises(OSError, match=r".*") as failure:
            await network.listen(Recorder, HOST, listener.port)
        assert failure.value.errno == errno.EADDRINUSE
        await listener.close()

    run(story)


def test_protocol_may_be_replaced_on_a_connection(run):
    async def story(network):
        async with joined(network, server_class=Echo) as (_, server, client):
            later = Recorder()
            client.transport.set_protocol(later)
            assert client.transport.get_protocol() is later
            server.transport.write(b"for the new one")
            await later.reach(lambda r: bytes(r.data).endswith(b"new one"))
            client.transport.set_protocol(client)
            client.transport.close()
            await client.reach(lambda c: c.lost)
            assert later.lost is None

    run(story)


def test_streams_of_asyncio_work_over_the_port(run):
    async def story(network):
        loop = asyncio.get_running_loop()

        async def serve(reader, writer):
            line = await reader.readline()
            writer.write(line.upper())
            await writer.drain()
            writer.close()

        listener = await network.listen(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), serve, loop=loop), HOST, 0
        )
        reader = asyncio.StreamReader()
        transport, protocol = await network.connect(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), HOST, listener.port
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        writer.write(b"hello\n")
        assert await reader.read() == b"HELLO\n"
        writer.close()
        await writer.wait_closed()
        await listener.close()

    run(story)


def test_bound_port_refuses_until_it_is_started(run):
    async def story(network):
        listener = await network.listen(Recorder, HOST, 0, start=False)
        with pytest.raises(ConnectionRefusedError):
            await network.connect(Recorder, HOST, listener.port)
        await listener.start()
        _, client = await network.connect(Recorder, HOST, listener.port)
        client.transport.abort()
        await client.reach(lambda c: c.lost)
        await listener.close()

    run(story)


async def refused_then_taken(network, set_limit):
    servers = []

    def accept():
        servers.append(Echo())
        return servers[-1]

    set_limit(20)
    listener = await network.listen(accept, HOST, 0, keep_free=20, refusal=b"later")
    for _ in range(3):
        _, client = await network.connect(Recorder, HOST, listener.port)
        await client.reach(lambda c: c.lost)
        assert bytes(client.data) == b"later"
    assert not servers
    set_limit(None)
    _, client = await network.connect(Recorder, HOST, listener.port)
    client.transport.write(b"question")
    await client.reach(lambda c: len(c.data) == 8)
    client.transport.close()
    await client.reach(lambda c: c.lost)
    await servers[0].reach(lambda s: s.lost)
    await listener.close()


def test_connection_that_would_leave_too_few_descriptors_is_told_so_asyncio():
    limit = [None]

    def set_limit(value):
        limit[0] = value

    network = AsyncioNetwork(lambda: limit[0])
    asyncio.run(asyncio.wait_for(refused_then_taken(network, set_limit), 30))


def test_connection_that_would_leave_too_few_descriptors_is_told_so_sim():
    async def scenario(world):
        node = world.node("host")
        await node.run(
            lambda node: refused_then_taken(
                node.runtime.network, lambda limit: world.network.limit_descriptors(node, limit)
            )
        )

    for seed in range(5):
        sim.run(scenario, seed)


# ---- Unix sockets


def test_local_socket_carries_bytes_both_ways_and_is_gone_with_its_listener(run, tmp_path):
    path = str(tmp_path / "local.socket")

    async def story(network):
        servers = []
        listener = await network.listen_local(lambda: servers.append(Echo()) or servers[-1], path)
        _, client = await network.connect_local(Recorder, path)
        client.transport.write(b"x" * 200_000)
        await client.reach(lambda c: len(c.data) == 200_000)
        await listener.close()
        client.transport.write(b"still there")
        await client.reach(lambda c: c.data.endswith(b"still there"))
        with pytest.raises(OSError):
            await network.connect_local(Recorder, path)
        client.transport.close()
        await client.reach(lambda c: c.lost)
        await servers[0].reach(lambda s: s.lost)

    run(story)


def test_local_socket_that_nobody_made_can_not_be_reached(run, tmp_path):
    async def story(network):
        with pytest.raises(OSError):
            await network.connect_local(Recorder, str(tmp_path / "nobody.socket"))

    run(story)


def test_local_socket_refuses_until_its_listener_is_started(run, tmp_path):
    path = str(tmp_path / "late.socket")

    async def story(network):
        listener = await network.listen_local(Recorder, path, start=False)
        with pytest.raises(ConnectionRefusedError):
            await network.connect_local(Recorder, path)
        await listener.start()
        _, client = await network.connect_local(Recorder, path)
        client.transport.abort()
        await client.reach(lambda c: c.lost)
        await listener.close()

    run(story)


def test_second_listener_takes_the_place_of_one_that_was_left(run, tmp_path):
    path = str(tmp_path / "left.socket")

    async def story(network):
        first = await network.listen_local(Recorder, path)
        second = await network.listen_local(Echo, path)
        _, client = await network.connect_local(Recorder, path)
        client.transport.write(b"x")
        await client.reach(lambda c: c.data == b"x")
        client.transport.abort()
        await client.reach(lambda c: c.lost)
        await second.close()
        await first.close()

    run(story)
