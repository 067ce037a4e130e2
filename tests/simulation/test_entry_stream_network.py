"""Streams of entries behind a hostile network: every entry once and in order, whatever happens to connections.

1. Messages are published while the network is sound: batches, single ones, chunked ones. 2. Faults: connections are cut
at any byte, go silent, are refused, carry garbage (which damages entries on the way); the broker restarts, is slow or
stalls. Streams from the beginning and from the middle are read meanwhile. 3. The network is healed: everything from
each start on must come, once, in order, and nothing else.
"""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga import sim
from support.house.weekly_sample import SeedCheck, few_and_blocks
from support.worlds.client_scenario import ClientScenario
from support.worlds.client_world import SLOW, STRUCK

FAULTS_S = 15.0
#: Virtual seconds in which everything must have come once the network is healed.
HEALED_S = 90.0
TOPIC = "topic"
FAULTS = (*STRUCK, *SLOW, "broker.restart", "attached again", "started in the middle", "chunked")


async def publish(client: gc.Client, world: sim.SimWorld) -> list[bytes]:
    """Three kinds of entries, in an order that the seed draws; the payloads, each its own."""
    rng = world.rng("publish")
    sent: list[bytes] = []
    while len(sent) < 150:
        kind = rng.choice(["batch", "single", "chunked"])
        options: gc.ProducerArguments = {"batching_enabled": kind == "batch", "batching_max_messages": 7}
        if kind == "chunked":
            world.points.hits["chunked"] += 1
            options |= {"chunking_enabled": True, "chunk_max_message_size": 600}
        async with await client.create_producer(TOPIC, **options) as producer:
            for _ in range(1 if kind == "chunked" else 20):
                sent.append(b"%d." % len(sent) * (500 if kind == "chunked" else 1))
                producer.send_nowait(sent[-1])
    return sent


async def hostile_network(world: sim.SimWorld) -> None:
    rng = world.rng("scenario")
    stage = await ClientScenario(world).start()

    async def publish_all(_: sim.SimNode) -> list[bytes]:
        async with stage.connect() as client:
            await (await client.subscribe(TOPIC, "keep", initial_position=gc.InitialPosition.Earliest)).close()
            return await publish(client, world)

    sent = await stage.client_node.run(publish_all)
    stored = await stage.broker_node.run(lambda _: stage.broker.messages(f"persistent://public/default/{TOPIC}"))
    assert [message.payload for message in stored] == sent
    middle = rng.choice(stored)
    world.points.hits["started in the middle"] += 1
    #: Start -> what must come: all messages whose (last) entry is not before it.
    starts = {(-1, -1): sent}
    start = (middle.ledger_id, max(0, middle.entry_id - rng.randrange(3)))
    starts[start] = [message.payload for message in stored if (message.ledger_id, message.entry_id) >= start]

    async def read(client: gc.Client, at: tuple[int, int], expected: list[bytes]) -> None:
        async def opened() -> tuple[gc.EntryStream, gc.BatchSource]:
            window_bytes, permits_max = rng.choice([1, 2000, 1 << 20]), rng.choice([100_000, 1, 10])
            stream = client.entry_stream(TOPIC, at, window_bytes=window_bytes, permits_max=permits_max)
            return stream, await gc.open_batches(stream)

        stream, source = await stage.insist(opened)
        found: list[bytes] = []
        while len(found) < len(expected):
            for entry in await stream.take(3000):
                found += [entry.payload(index) for index in entry.order]
            if rng.random() < 0.3:
                await world.sleep(rng.uniform(0, 1))
        assert found == expected
        assert source.chunks_without_beginning == []
        assert await stream.take(2000) == []
        world.points.hits["attached again"] += stream.attached_count > 1
        await stream.close()

    async def read_all(_: sim.SimNode) -> None:
        async with stage.connect() as client:
            await asyncio.gather(*(read(client, at, expected) for at, expected in starts.items()))
        assert client.pool.open_connections == 0

    faults = stage.faults(rng, FAULTS_S)
    async with asyncio.timeout(FAULTS_S + HEALED_S):
        await stage.client_node.run(read_all)
    await faults
    await stage.check_nothing_left()
    await world.sleep(120)  # the broker finds out about connections that hear nothing
    topic = stage.broker.broker.topics.get(f"persistent://public/default/{TOPIC}")
    assert topic is None or list(topic.subscriptions) == ["keep"]


@pytest.mark.slow
@few_and_blocks(range(1000), least=12, most=200, many=range(1000, 1500), block=50, hits_min=1)
def test_entry_streams_survive_a_hostile_network(check: SeedCheck) -> None:
    check(hostile_network, FAULTS)
