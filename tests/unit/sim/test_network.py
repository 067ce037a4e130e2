"""Simulated links under faults: partitions, resets, crashes, half-open peers, slow readers, refusals."""

from __future__ import annotations

import asyncio
import errno

import pytest

from geminga import sim

PORT = 6650


class End(asyncio.Protocol):
    """Notes what arrives."""

    def __init__(self):
        self.data = bytearray()
        self.arrivals = []
        self.lost = None
        self.events = []
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        self.arrivals.append(len(data))

    def connection_lost(self, exc):
        self.lost = (type(exc),)

    def pause_writing(self):
        self.events.append("pause")

    def resume_writing(self):
        self.events.append("resume")


async def connect(node, host="server"):
    """The end of a connection from there."""
    _, end = await node.runtime.network.connect(End, host, PORT)
    return end


async def pair(world, host="0.0.0.0"):
    """Nodes ``server`` and ``client``, and the two ends of a connection between them, each owned by its node."""
    server, client = world.node("server"), world.node("client")
    ends = []

    def accept():
        ends.append(End())
        return ends[-1]

    async def listen(node):
        return await node.runtime.network.listen(accept, host, PORT)

    await server.run(listen)
    far = await client.run(connect)
    return server, client, ends[0], far


def test_two_way_partition_holds_back_and_heals_without_loss():
    async def scenario(world):
        server, client, near, far = await pair(world)
        world.network.partition(server, client)
        far.transport.write(b"one")
        near.transport.write(b"two")
        await world.sleep(60)
        assert (near.data, far.data) == (b"", b"")
        far.transport.write(b"three")
        far.transport.close()
        await world.sleep(60)
        assert far.lost == (type(None),)
        assert near.lost is None
        world.network.heal()
        await world.sleep(5)
        assert near.data == b"onethree"
        assert near.lost == (type(None),)

    for seed in range(5):
        sim.run(scenario, seed)


def test_one_link_heals_and_the_other_stays_cut():
    async def scenario(world):
        server, client, near, far = await pair(world)
        world.network.partition(server, client)
        world.network.partition(server, world.node("other"))
        far.transport.write(b"one")
        await world.sleep(1)
        world.network.heal(server, world.node("other"))
        await world.sleep(1)
        assert near.data == b""
        world.network.heal(server, client)
        await world.sleep(1)
        assert near.data == b"one"

    sim.run(scenario)


def test_one_way_partition_lets_the_other_way_through():
    async def scenario(world):
        server, client, near, far = await pair(world)
        world.network.partition(server, client, one_way=True)
        far.transport.write(b"to server")
        near.transport.write(b"to client")
        await world.sleep(60)
        assert near.data == b"to server"
        assert far.data == b""
        world.network.heal()
        await world.sleep(1)
        assert far.data == b"to client"

    sim.run(scenario)


def test_reset_is_held_back_by_a_partition():
    async def scenario(world):
        server, client, near, far = await pair(world)
        world.network.partition(server, client)
        far.transport.abort()
        await world.sleep(60)
        assert near.lost is None
        world.network.heal()
        await world.sleep(2)
        assert near.lost == (ConnectionResetError,)

    sim.run(scenario)


def test_connect_over_a_partition_times_out_or_succeeds_after_it_heals():
    async def scenario(world):
        server, client, _, _ = await pair(world)
        world.network.partition(server, client)
        start = world.now
        with pytest.raises(TimeoutError) as failure:
            await client.run(connect)
        assert failure.value.errno == errno.ETIMEDOUT
        assert 20 <= world.now - start < 25
        late = client.run(connect)
        await world.sleep(5)
        world.network.heal()
        await late

    sim.run(scenario)


def test_reset_connections_breaks_both_ends():
    async def scenario(world):
        server, client, near, far = await pair(world)
        assert len(world.network.connections(server)) == len(world.network.connections(client)) == 1
        assert world.network.reset_connections(client, world.node("third")) == 0
        assert world.network.reset_connections(client, server) == 1
        await world.sleep(1)
        assert near.lost == far.lost == (ConnectionResetError,)
        assert world.network.reset_connections(client) == 0
        assert world.network.connections(client) == []

    sim.run(scenario)


def test_crash_resets_peers_after_what_was_sent():
    async def scenario(world):
        server, client, near, far = await pair(world)
        near.transport.write(b"last words" * 100)
        world.crash(server)
        await world.sleep(1)
        assert far.data == b"last words" * 100
        assert far.lost == (ConnectionResetError,)
        assert near.lost is None
        with pytest.raises(ConnectionRefusedError):
            await client.run(connect)

    for seed in range(10):
        sim.run(scenario, seed)


def test_code_of_a_crashed_node_sends_nothing():
    async def scenario(world):
        server, _, near, far = await pair(world)
        world.crash(server)
        near.transport.write(b"ghost")
        near.transport.write_eof()
        near.transport.close()
        near.transport.abort()
        await world.sleep(1)
        assert far.data == b""

    sim.run(scenario)


def test_half_open_peer_hears_nothing_until_the_node_is_back():
    async def scenario(world):
        server, _, _, far = await pair(world)
        world.crash(server, reset_peers=False)
        far.transport.write(b"anyone there?")
        await world.sleep(3600)
        assert far.lost is None
        server.start()
        await world.sleep(1)
        assert far.lost == (ConnectionResetError,)

    sim.run(scenario)


def test_half_open_peer_that_writes_after_the_restart_is_reset():
    async def scenario(world):
        server, _, _, far = await pair(world)
        world.crash(server, reset_peers=False)
        server.start()
        await world.sleep(3600)
        assert far.lost is None
        far.transport.write(b"hello?")
        await world.sleep(1)
        assert far.lost == (ConnectionResetError,)

    sim.run(scenario)


def test_paused_node_receives_everything_later():
    async def scenario(world):
        server, _, near, far = await pair(world)
        world.pause(server)
        far.transport.write(b"while you slept")
        await world.sleep(60)
        assert near.data == b""
        world.resume(server)
        await world.sleep(1)
        assert near.data == b"while you slept"

    sim.run(scenario)


def test_slow_link_pauses_the_writer():
    async def scenario(world):
        server, client, near, far = await pair(world)
        world.network.set_bandwidth(client, server, 100_000)
        start = world.now
        for _ in range(10):
            far.transport.write(b"x" * 100_000)
        assert far.events == ["pause"]
        while len(near.data) < 1_000_000:
            await world.sleep(0.1)
        assert far.events == ["pause", "resume"]
        assert 9 < world.now - start < 12
        world.network.set_bandwidth(client, server, None)
        far.transport.write(b"y" * 100_000)
        await world.sleep(0.5)
        assert len(near.data) == 1_100_000

    sim.run(scenario)


def test_bytes_are_cut_and_joined_at_will_but_stay_in_order():
    shapes = set()

    async def scenario(world):
        _, _, near, far = await pair(world)
        sent = b"".join(b"%06d" % number for number in range(300))
        for start in range(0, len(sent), 60):
            far.transport.write(sent[start : start + 60])
        await world.sleep(5)
        assert near.data == sent
        shapes.update(near.arrivals)

    for seed in range(10):
        sim.run(scenario, seed)
    assert min(shapes) < 60 < max(shapes)


def test_delay_of_a_link_is_as_set():
    async def scenario(world):
        server, client, near, far = await pair(world)
        world.network.retransmit_percent = 0
        world.network.set_delay(server, client, 3.0, 3.0)
        far.transport.write(b"x")
        await world.sleep(2.9)
        assert near.data == b""
        await world.sleep(0.2)
        assert near.data == b"x"

    sim.run(scenario)


def test_refusing_and_loopback_and_unknown_hosts():
    async def scenario(world):
        server, client, _, far = await pair(world)
        assert far.transport.get_extra_info("peername") == (server.address, PORT)
        await client.run(lambda node: connect(node, server.address))
        world.network.refuse(server)
        with pytest.raises(ConnectionRefusedError):
            await client.run(connect)
        world.network.refuse(server, refuse=False)
        await client.run(connect)
        await server.run(lambda node: connect(node, "localhost"))
        with pytest.raises(OSError, match="not known"):
            await client.run(lambda node: connect(node, "nowhere"))
        with pytest.raises(ConnectionRefusedError):
            await client.run(lambda node: connect(node, "127.0.0.1"))

    sim.run(scenario)


def test_port_bound_to_loopback_refuses_other_nodes():
    async def scenario(world):
        with pytest.raises(ConnectionRefusedError):
            await pair(world, host="127.0.0.1")
        with pytest.raises(OSError, match="not an address"):
            await world.node("x").runtime.network.listen(End, "10.9.9.9", 1)

    sim.run(scenario)


def test_cancelled_connect_leaves_no_connection():
    async def scenario(world):
        server, client, near, _ = await pair(world)
        world.network.set_delay(server, client, 1.0, 1.0)

        async def give_up(node):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await connect(node)

        await client.run(give_up)
        await world.sleep(10)
        assert len(world.network.connections(server)) == len(world.network.connections(client)) == 1
        assert near.lost is None

    sim.run(scenario)


def test_tls_is_not_simulated():
    async def scenario(world):
        network = world.node("a").runtime.network
        with pytest.raises(sim.SimError, match="TLS"):
            await network.listen(End, "", 0, tls=object())

    sim.run(scenario)
